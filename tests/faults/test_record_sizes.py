"""Topics that take small records only: what is sent is made to fit, or refused before anything is sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.errors import ConfigError
from stream_learner.roles.common.record_sizes import OVERHEAD_BYTES
from tests.e2e.checks import assert_log_equals, assert_model_equals, expected_fold
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.e2e.variants import delete_before
from tests.faults.conftest import MakeSite
from tests.kafka_broker.broker import delete_topics
from tests.scenarios import scenario

SMALL_BYTES = OVERHEAD_BYTES + 2_400
COPIED_BYTES = OVERHEAD_BYTES + 6_000
"""A head, with what the learner notes in it, is not split."""
FEW = {"max_features": 100}


def with_small_records(site: Site, limit_bytes: int) -> None:
    """Make the model's own topics anew, with this limit."""
    c = site.config
    topics = {c.examples_topic: site.partitions, c.dead_letters_topic: 1}
    topics |= dict.fromkeys((c.snapshots_topic, c.checkpoints_topic), c.snapshots.shards)
    delete_topics(site.settings.bootstrap, list(topics))
    wait_until(lambda: not site.admin.describe(topics), "the topics are gone")
    site.admin.create([TopicPlan(t, n, configs={"max.message.bytes": str(limit_bytes)}) for t, n in topics.items()])
    places = [(topic, partition) for topic, partitions in topics.items() for partition in range(partitions)]
    wait_until(lambda: len(site.admin.offsets.high_watermarks_known(places)[0]) == len(places), "leaders")


def test_records_are_split_into_what_the_topics_take(make_site: MakeSite) -> None:
    """Ticks, deltas and pages that are larger than the limit, alone or as a batch: the log and the model are the
    oracle's, and a scorer has the last version.
    """
    site = make_site(scenario("everything", 1).with_settings(tick_ms=4_000), features=FEW, learner={"copies": False})
    with_small_records(site, SMALL_BYTES)
    learner = site.learner()
    with running(site.joiner()), running(learner), site.scorer() as scorer:
        site.produce()
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: site.folded(learner), "every tick folded")
        wait_until(lambda: scorer.version >= site.end_tick, "the last version is served")
        assert scorer.ready
    expected = site.scenario.expected()
    assert_log_equals(site, expected)
    assert_model_equals(learner.learner, expected_fold(expected, site.scenario.settings))
    records = [value for _, _, value, _ in site.records(site.config.examples_topic, 0)]
    assert max(map(len, records)) > SMALL_BYTES / 4
    assert any(len(tick.records) > 1 for tick in site.log(0).ticks)


def test_copies_of_checkpoints_are_split_into_what_their_topic_takes(make_site: MakeSite) -> None:
    """Pages and deltas that are larger than the limit: a learner with an empty disk has the model from the copy, since
    the log has lost its beginning.
    """
    gates = {"learner": {"gate": "off"}, "snapshots": {"shards": 1, "gate": "off"}}  # their state lies in the head
    site = make_site(scenario("traffic", 1), features=FEW, **gates)
    with_small_records(site, COPIED_BYTES)
    learner = site.learner()
    with running(site.joiner()), running(learner):
        site.produce()
        wait_until(lambda: site.folded(learner), "every tick folded")
    pieces = [value for _, key, value, _ in copied(site) if value is not None and key.startswith(b"piece/")]
    assert COPIED_BYTES / 2 < max(map(len, pieces)) < COPIED_BYTES < sum(map(len, pieces))
    shutil.rmtree(site.config.state_dir)
    delete_before(site, site.config.examples_topic, 0, 1)
    again = site.learner()
    with running(again):
        wait_until(lambda: site.folded(again), "the state is back")
    assert_model_equals(again.learner, expected_fold(site.scenario.expected(), site.scenario.settings))


def copied(site: Site) -> Iterator[tuple[int, bytes, bytes | None, int]]:
    """The records of the topic of the copies."""
    for shard in range(site.config.snapshots.shards):
        yield from site.records(site.config.checkpoints_topic, shard, headers=False)


def test_a_topic_that_cannot_hold_one_example_is_refused_at_the_start(make_site: MakeSite) -> None:
    """The message names the topic, its limit, and the two settings."""
    site = make_site(scenario("plain", 1))
    with_small_records(site, SMALL_BYTES)
    error = failure_of(site.joiner(), ConfigError)
    assert site.config.examples_topic in str(error)
    assert "max.message.bytes" in error.action and "features.max_features" in error.action
    assert site.log(0).position == 0
