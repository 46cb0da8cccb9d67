"""Whether the configured identity may do what a joiner and a learner need, as far as brokers tell it.

They tell what is allowed on topics and groups, and of what may not be described at all, that nothing is. They tell
nothing of topics that do not exist, and of transactional ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from stream_learner.config import Config
from stream_learner.operations.doctor.cluster import Cluster
from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.rights import GROUP, TOPIC, Right, commands, rights_of

ROLES = ("joiner", "learner")


def check_rights(cluster: Cluster, config: Config) -> Iterable[Finding]:
    """The rights without which a role stops.

    Each role may be a user of its own. So a role is judged if this one may write something that the role writes, or may
    be able to write all of it; and a joiner if it is none of them, since doctor reads what a joiner reads.
    """
    allowed = {(TOPIC, name): info.operations for name, info in cluster.topics.items()}
    allowed |= {(GROUP, name): operations for name, operations in cluster.groups.items()}

    def holds(right: Right) -> bool | None:
        operations = allowed.get((right.kind, right.name))
        return None if operations is None else right.operation in operations

    def is_for(rights: Iterable[Right]) -> bool:
        writes = [holds(right) for right in rights if right.kind == TOPIC and right.operation == "Write"]
        return True in writes or False not in writes

    rights = {role: rights_of(config, role) for role in ROLES}
    judged = [role for role in ROLES if is_for(rights[role])]
    for role in judged or ROLES[:1]:
        missing = [right for right in rights[role] if holds(right) is False and not right.without]
        if missing:
            what = ", ".join(f"{right.operation} on {right.kind} {right.name}" for right in missing)
            change = "; ".join(commands(missing, f"User:{cluster.principal}", cluster.bootstrap))
            seen = f"{cluster.principal} lacks what a {role} needs: {what}"
            yield Finding("stops", "rights", seen, f"the {role} stops (NotAuthorised)", change)
