"""Several models on the inputs or the training log of one site, for tests.

It must never reach into a role.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicPartition

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.conftest import MakeSite
from tests.e2e.site import COMPACTED, Site, running, wait_until
from tests.scenarios import scenario


def joined_site(make_site: MakeSite, name: str = "everything") -> Site:
    """A site whose training log is complete."""
    site = make_site(scenario(name))
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every tick closed")
    return site


def make_topics(site: Site, *plans: TopicPlan) -> None:
    """Make topics that go when the site goes, and wait until they can be asked."""
    site.admin.create(plans)
    site.topics.extend(plan.name for plan in plans)
    places = [(plan.name, partition) for plan in plans for partition in range(plan.partitions)]
    wait_until(lambda: len(site.admin.offsets.high_watermarks_known(places)[0]) == len(places), "leaders")


def variant(site: Site, name: str, **changes: dict[str, Any]) -> Config:
    """Another model of the site's training log, its snapshot topic made."""
    tree = {**site.tree, "model": f"{site.model}-{name}", "topics": {"examples": site.config.examples_topic}}
    tree["learner"] = {**site.tree["learner"], "state_dir": str(site.folder / name)}
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values}
    config = Config.model_validate(tree)
    if config.snapshots_topic not in site.topics:
        names = (config.snapshots_topic, config.checkpoints_topic)
        make_topics(site, *(TopicPlan(topic, config.snapshots.shards, configs=COMPACTED) for topic in names))
    return config


def role(*configs: Config, **options: Any) -> LearnerRole:
    return LearnerRole(configs, [Metrics(config.model) for config in configs], **options)


def run_until_done(learner: LearnerRole) -> LearnerRole:
    with running(learner):
        wait_until(lambda: learner.done, "all folded, published and kept")
    return learner


def delete_before(site: Site, topic: str, partition: int, offset: int) -> None:
    """Take away the beginning of a partition, as retention does."""
    for answer in site.plain_admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        answer.result()
