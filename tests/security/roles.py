"""Every role as a user of its own, with the least rights.

It must never give a right that the table of `operations/rights.py` does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stream_learner.config import Config
from stream_learner.operations.rights import rights_of
from stream_learner.roles.joiner.role import JoinerRole
from stream_learner.roles.learner.role import LearnerRole
from stream_learner.roles.scorer.scorer import Scorer
from tests.e2e.site import Site, running, wait_until
from tests.security.broker import Secured
from tests.waiting import patience

Options = Callable[[str], Mapping[str, Any]]
"""The `kafka` options of a user."""


def allow_role(secured: Secured, config: Config, role: str, user: str = "") -> None:
    """Give a role's rights to a user, by default the one of its name."""
    secured.allow_all(user or role, [(r.kind, r.name, r.operation) for r in rights_of(config, role)])


class Roles:
    """The roles of a site, each as the user of its name."""

    def __init__(self, site: Site, options: Options) -> None:
        self.site = site
        self._options = options

    def config(self, user: str, **changes: dict[str, Any]) -> Config:
        """The site's configuration with a user's options."""
        tree = self.site.changed(**changes).model_dump(mode="json", by_alias=True)
        session = {"session.timeout.ms": 3000}
        return Config.model_validate({**tree, "kafka": {**self._options(user), **session}})

    def joiner(self) -> JoinerRole:
        """The joiner, as `joiner`."""
        return self.site.joiner(self.config("joiner"))

    def learner(self) -> LearnerRole:
        """The learner, as `learner`."""
        return self.site.learner(self.config("learner"))

    def scorer(self, **options: Any) -> Scorer:
        """A scorer, as `scorer`; to be used in a `with` block."""
        config = self.config("scorer")
        given = {"control_topic": config.control_topic, "stale_after_ms": None, **options}
        return Scorer(**{"model": config.model, "kafka": config.kafka_options(), **given})

    def run_through(self) -> None:
        """Join, fold, publish and follow all input; fails where a role stops."""
        learner = self.learner()
        with running(self.joiner(), learner):
            wait_until(lambda: self.site.folded(learner), "every tick closed and folded")
        with self.scorer() as scorer:
            scorer.wait_ready(patience())
            wait_until(lambda: scorer.version == learner.tick, "the last version is served")
