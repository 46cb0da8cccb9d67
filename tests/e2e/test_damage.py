"""Bytes that are not ours, newer or damaged on the model's own topics: the reader says which record."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.header import VERSION, Kind, RecordHeader, seal
from stream_learner.core.log.marks import ImpressionCounts, TickCounts
from stream_learner.core.log.rule_w import Attempt
from stream_learner.errors import DamagedLog, NewerFormat
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.scenarios import scenario

NEWER = b"SLTL" + struct.pack("<H", VERSION + 1) + bytes(80)


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A site whose joiner has closed every partition and is gone."""
    made = make_site(scenario("plain", 2))
    made.produce()
    with running(made.joiner()):
        wait_until(made.closed, "every partition closed")
    return made


def next_tick(site: Site, partition: int) -> list[bytes]:
    """Records of an attempt that follows the last accepted mark: examples, and the mark."""
    log = site.log(partition)
    last = log.marks[-1]
    attempt = Attempt(partition, 77, last.id, log.position)
    one = np.ones(1)
    batch = ExampleBatch(
        np.ones(1, np.int64), np.ones(1, np.uint64), one, one, np.array([0, 1]), np.ones(1, np.uint64), one
    )
    return attempt.stamp(
        batch,
        first_tick=last.last_tick + 1,
        last_tick=last.last_tick + 1,
        next_impression=last.next_impression + 1,
        first_click=last.first_click,
        click_cursor=last.click_cursor,
        counts=TickCounts(ImpressionCounts(read=1, examples=1, positives=1)),
    )


def test_learner_and_joiner_stop_at_a_newer_record_and_name_it(site: Site) -> None:
    """A record of a later version of this program: topic, partition and offset are in the message."""
    offset = site.log(1).position
    site.append(site.config.examples_topic, 1, NEWER)
    for role in (site.learner(), site.joiner()):
        found = failure_of(role, NewerFormat)
        assert f"{site.config.examples_topic} partition 1 offset {offset}: version" in str(found)


def test_a_learner_stops_at_a_damaged_body_that_a_mark_accepts(site: Site) -> None:
    """One flipped bit among the examples of an accepted tick."""
    examples, mark = next_tick(site, 0)
    offset = site.log(0).position
    site.append(site.config.examples_topic, 0, examples[:-1] + bytes([examples[-1] ^ 1]), mark)
    found = failure_of(site.learner(), DamagedLog)
    assert f"{site.config.examples_topic} partition 0 offset {offset}" in str(found)


def test_bodies_of_an_attempt_that_lost_may_be_anything(site: Site) -> None:
    """Records without a mark, and a mark whose records are not all there, are ignored, whatever they hold."""
    topic = site.config.examples_topic
    last = site.log(0).last_tick
    examples, mark = next_tick(site, 0)
    for sequence in range(3):
        body = bytes(7) * sequence
        site.append(topic, 0, seal(RecordHeader(Kind.EXAMPLES, 0, 0, sequence, 99, last + 1), body))
    site.append(topic, 0, examples[:-1] + b"\x00", seal(RecordHeader(Kind.CODES, 0, 0, 5, 98, last + 1), b"codes"))
    wrong = seal(RecordHeader(Kind.EXAMPLES, 0, 0, 1, 77, last + 1), b"one too many")
    site.append(topic, 0, wrong, mark)
    learner = site.learner()
    with running(learner):
        wait_until(lambda: site.folded(learner), "every tick folded")
    log = site.log(0)
    assert log.last_tick == last
    assert log.rule.ignored_marks == 1


def snapshot_damages() -> dict[str, Callable[[bytes], bytes]]:
    """Damages of a version record's bytes."""
    return {
        "foreign": lambda value: b'{"not": "ours"}',
        "newer": lambda value: value[:4] + struct.pack("<H", 2) + value[6:],
        "damaged": lambda value: value[:-1] + bytes([value[-1] ^ 1]),
        "short": lambda value: value[:20],
    }


@pytest.mark.parametrize("kind", snapshot_damages())
def test_a_scorer_keeps_its_last_version_and_names_the_snapshot_record(kind: str, site: Site) -> None:
    """It says which, with partition and offset; predictions go on with the version before; the next one mends it."""
    event = site.scenario.impressions[0][0].value or b""
    learner = site.learner()
    with running(learner), site.scorer() as scorer:
        wait_until(lambda: scorer.version == site.end_tick, "the last version")
        before = scorer.predict(event)
        place = append_instead_of_version(site, shard=1, damage=snapshot_damages()[kind])
        wait_until(lambda: place in scorer.trouble, "it names the record")
        assert scorer.ready and scorer.predict(event) == before
        site.append(site.config.examples_topic, 0, *next_tick(site, 0))
        site.append(site.config.examples_topic, 1, *next_tick_without_examples(site, 1))
        wait_until(lambda: scorer.version == site.end_tick + 1, "the next version")
        wait_until(lambda: scorer.trouble == "", "whole again")
        assert scorer.weights == learner.learner.nonzero


def test_a_publisher_stops_at_a_damaged_last_version(site: Site) -> None:
    """It cannot know what was published last, so it names the record instead of publishing."""
    with running(site.learner()), site.scorer() as scorer:
        wait_until(lambda: scorer.version == site.end_tick, "the last version")
    place = append_instead_of_version(site, shard=1, damage=snapshot_damages()["damaged"])
    error = failure_of(site.learner(), DamagedLog)
    assert place.replace(",", "").removeprefix("topic ") in str(error)


def append_instead_of_version(site: Site, shard: int, damage: Callable[[bytes], bytes]) -> str:
    """Append a damaged copy of the last version record of a shard; says where."""
    topic = site.config.snapshots_topic
    (*_, version) = [value for _, key, value, _ in site.records(topic, shard) if key == b"version"]
    offset = site.ends(topic, shard + 1)[shard]
    site.append(topic, shard, damage(version), key=b"version")
    return f"topic {topic}, partition {shard}, offset {offset}"


def next_tick_without_examples(site: Site, partition: int) -> list[bytes]:
    """A mark of one empty tick after the last accepted one."""
    log = site.log(partition)
    last = log.marks[-1]
    none = np.zeros(0)
    batch = ExampleBatch(
        none.astype(np.int64),
        none.astype(np.uint64),
        none,
        none,
        np.zeros(1, np.int64),
        none.astype(np.uint64),
        none,
    )
    return Attempt(partition, 78, last.id, log.position).stamp(
        batch,
        first_tick=last.last_tick + 1,
        last_tick=last.last_tick + 1,
        next_impression=last.next_impression,
        first_click=last.first_click,
        click_cursor=last.click_cursor,
        counts=TickCounts(),
    )
