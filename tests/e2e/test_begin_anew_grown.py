"""More partitions under the same model name, on a real Kafka: `begin-anew` after `kafka-topics.sh --alter`."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from structlog.testing import capture_logs

from stream_learner.config import Config
from stream_learner.core.log.marks import GENESIS, Mark
from stream_learner.errors import ConfigError, InputsChanged, PartitionCountsDiffer
from stream_learner.operations import begin_anew as command
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.begin_anew import BEGUN, LAST, OVERTAKEN, WRITTEN, BeginAnewRequest, begin_anew
from stream_learner.roles.learner.role import LearnerRole
from tests.cli_e2e.commands import answer_of
from tests.e2e.checks import balance_of
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.e2e.test_lost_disk import copied
from tests.e2e.test_refusals import remake
from tests.e2e.test_standby import add_control, members, standby
from tests.e2e.training_log import plain_examples
from tests.oracles import loop
from tests.scenarios import Message, Scenario, records, scenario
from tests.suite.share import cases

BEFORE, AFTER = 2, 4
TOGETHER = scenario("plain", AFTER)
MOMENT_MS = sorted(m.timestamp_ms for part in TOGETHER.impressions for m in part)[len(TOGETHER.impressions[0]) * 2]
"""From here on the producers know of all partitions."""


def cut(made: Scenario, *, before: bool) -> Scenario:
    """The records that producers send before the moment, or from it on."""

    def side(parts: list[list[Message]]) -> list[list[Message]]:
        return [[m for m in part if (m.timestamp_ms < MOMENT_MS) == before] for part in parts]

    return replace(made, impressions=side(made.impressions), clicks=side(made.clicks))


@pytest.fixture
def joined(make_site: MakeSite) -> Site:
    """A site with two partitions whose joiner has closed many ticks and is gone; then all topics have four."""
    site = make_site(cut(scenario("plain", BEFORE), before=True), learner={"copy_interval": "0ms"})
    site.produce()
    return site


def join_first(site: Site, *learners: LearnerRole) -> None:
    """Join what came before, with learners that fold it meanwhile."""
    with running(site.joiner(), *learners):
        wait_until(lambda: all(sum(map(positives, log.marks)) for log in site.logs()), "positives in every partition")
        for learner in learners:
            wait_until(lambda learner=learner: learner.tick >= site.last_tick() > 0, "folded")  # type: ignore[misc]
    nobody_joins(site)


def nobody_joins(site: Site) -> None:
    wait_until(lambda: site.members() == [], "the joiner has left its group")


def positives(mark: Mark) -> int:
    return mark.counts.impressions.positives


def grow(site: Site, *topics: str) -> None:
    """Give topics more partitions, and produce from now on for all of them."""
    asked = site.plain_admin.create_partitions([NewPartitions(topic, AFTER) for topic in topics])
    for answer in asked.values():
        answer.result()
    places = [(topic, partition) for topic in topics for partition in range(AFTER)]
    wait_until(lambda: len(site.admin.offsets.high_watermarks_known(places)[0]) == len(places), "leaders")


def grow_all(site: Site) -> None:
    grow(site, site.impressions, site.clicks, site.config.examples_topic)
    site.scenario, site.partitions = cut(TOGETHER, before=False), AFTER


def learner_apart(site: Site, name: str) -> LearnerRole:
    """A learner of the same log that publishes nothing, with a state of its own."""
    return site.learner(apart(site, name))


def apart(site: Site, name: str) -> Config:
    return site.changed(learner={**site.tree["learner"], "state_dir": str(site.folder / name), "publish": False})


def ended(site: Site, learner: LearnerRole) -> int:
    """The digest of a learner that folds up to the end."""
    with running(learner):
        wait_until(lambda: site.folded(learner), "every tick folded")
    return learner.learner.digest()


def labels(examples: Iterable[Any]) -> Counter[tuple[int, float]]:
    """Examples by the hash of their id and their label."""
    return Counter((example[2], example[3]) for example in examples)


def expected_since(site: Site, rows: list[dict[str, Any]], old: Scenario) -> list[loop.Joined]:
    """The join of the records from the offsets at which the partitions begin anew."""
    parts: list[list[list[Message]]] = [[], []]
    for row in rows:
        for into, name in enumerate(("impressions", "clicks")):
            number = row["partition"]
            before = getattr(old, name)[number] if number < BEFORE else []
            parts[into].append([*before, *getattr(site.scenario, name)[number]][row[f"{name}_from"] :])
    return loop.join_topics(records(parts[0]), records(parts[1]), site.scenario.settings)


def assert_labels_since(site: Site, rows: list[dict[str, Any]], old: Scenario) -> None:
    """Every label since the log began anew is the true one, and no impression of the time since is missing."""
    for log, row, made in zip(site.logs(), rows, expected_since(site, rows, old), strict=True):
        since = [example for example in log.examples() if example[0] > row["tick"]]
        assert labels(since) == labels(plain_examples(made.examples))
        assert any(label for _, label in labels(since))


def assert_sound(site: Site) -> None:
    """An audit finds nothing, with everything made again."""
    found = audit(site.config, AuditRequest(replay=True))
    assert found["sound"] and found["complete"], found
    assert balance_of(site).problems == []
    assert found["balance"] == balance_of(site).to_dict()


def test_a_log_goes_on_with_more_partitions_and_every_learner_has_the_same_digest(joined: Site) -> None:
    """One that lived through it, one that was stopped meanwhile, one with a lost disk, and one that reads all anew."""
    old, lived, stopped = joined.scenario, joined.learner(), learner_apart(joined, "stopped")
    with capture_logs() as logged, running(lived):
        join_first(joined, stopped)
        wait_until(lambda: copied(lived) > 0, "a checkpoint is copied")
        last = [marks[-1] for marks in joined.marks()]
        grow_all(joined)
        error = failure_of(joined.joiner(), InputsChanged)
        assert "now there are 4" in str(error)
        assert "stream-learner begin-anew --from MOMENT" in error.action
        nobody_joins(joined)
        assert joined.ends(joined.config.examples_topic, AFTER)[BEFORE:] == [0, 0], "no new partition was begun"
        path = str(joined.write_config())
        for where in (LAST, "earliest"):
            with pytest.raises(InputsChanged, match=r"partition 0, 1, 2, 3 must begin anew") as refused:
                begin_anew(joined.config, BeginAnewRequest(where, write=True))
            assert "--from MOMENT" in refused.value.action
        with pytest.raises(ConfigError, match="must begin anew"):
            begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, (0,), write=True))
        assert "nothing was written" in answer_of("begin-anew", "-c", path, "--from", iso(MOMENT_MS)).out
        rows = begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))["partitions"]
        assert [row["state"] for row in rows] == [WRITTEN] * AFTER
        assert [row["clicks_given_up"] for row in rows] == [*(m.counts.clicks.waiting for m in last), 0, 0]
        assert [row["impressions_lost"] for row in rows] == [
            *(len(part) - m.next_impression for part, m in zip(old.impressions, last, strict=True)), 0, 0
        ]  # fmt: skip
        ticks = [mark.last_tick + 1 for mark in last]
        assert [row["tick"] for row in rows] == [*ticks, min(ticks), min(ticks)]
        for marks in joined.marks()[BEFORE:]:
            assert (marks[0].predecessor, marks[0].first_tick, marks[0].begins_anew) == (GENESIS, 0, True)
        with running(joined.joiner()):
            joined.produce()
            wait_until(joined.closed, "every partition closed")
            wait_until(lambda: joined.folded(lived), "every tick folded")
    digest = lived.learner.digest()
    assert [line["before"] for line in logged if line["event"] == "partitions_added"] == [BEFORE]
    assert_labels_since(joined, rows, old)
    assert ended(joined, learner_apart(joined, "stopped")) == digest
    assert ended(joined, learner_apart(joined, "anew")) == digest
    shutil.rmtree(joined.config.state_dir)
    assert ended(joined, joined.learner()) == digest
    assert_sound(joined)


def iso(time_ms: int) -> str:
    """A moment as the command line takes it."""
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat()


@pytest.mark.thorough
def test_a_copy_from_before_is_restored_and_goes_on(joined: Site) -> None:
    """The disk is lost, and what is left is of two partitions. The digest is that of who reads all anew."""
    learner = joined.learner()
    with running(learner):
        join_first(joined)
        wait_until(lambda: copied(learner) > 0, "a checkpoint is copied")
    grow_all(joined)
    begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))
    found = audit(joined.config, AuditRequest())
    assert found["sound"], found["findings"]
    shutil.rmtree(joined.config.state_dir)
    restored = joined.learner()
    with capture_logs() as logged, running(joined.joiner(), restored):
        joined.produce()
        wait_until(joined.closed, "every partition closed")
        wait_until(lambda: joined.folded(restored), "every tick folded")
    assert [line["event"] for line in logged if line["event"] in ("state_restored", "partitions_added")] == [
        "state_restored",
        "partitions_added",
    ]
    assert ended(joined, learner_apart(joined, "anew")) == restored.learner.digest()
    assert_sound(joined)


@pytest.mark.parametrize("written", cases(range(4), [2]))
def test_a_crash_between_marks_is_gone_on_with(written: int, joined: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever marks are there: no joiner and no learner goes on without the others, and calling again adds them."""
    join_first(joined)
    grow_all(joined)
    real = command._BeginAnew._write
    left = [written]

    def dies(self: Any, partitions: list[Any]) -> None:
        some = partitions[: left[0]]
        left[0] -= len(some)
        real(self, some)
        if some != partitions:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(command._BeginAnew, "_write", dies)
        begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))
    error = failure_of(joined.joiner(), InputsChanged)
    assert "begin-anew --from MOMENT" in error.action
    nobody_joins(joined)
    learner = joined.learner()
    with running(learner):
        again = begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))["partitions"]
        assert [row["state"] for row in again] == [BEGUN] * written + [WRITTEN] * (AFTER - written)
        with running(joined.joiner()):
            joined.produce()
            wait_until(joined.closed, "every partition closed")
            wait_until(lambda: joined.folded(learner), "every tick folded")
    assert ended(joined, learner_apart(joined, "anew")) == learner.learner.digest()
    assert_sound(joined)


def test_no_added_partition_is_begun_after_another_joiner_was_faster(
    joined: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its examples could be of ticks that a learner has folded, as long as an old partition has not begun anew."""
    join_first(joined)
    grow_all(joined)
    real = command._BeginAnew._read_back

    def too_late(self: Any, one: Any, delivery: Any) -> None:
        real(self, one, delivery)
        one.state = OVERTAKEN

    with monkeypatch.context() as patched:
        patched.setattr(command._BeginAnew, "_read_back", too_late)
        rows = begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))["partitions"]
    assert [row["state"] for row in rows][:BEFORE] == [OVERTAKEN] * BEFORE
    assert joined.ends(joined.config.examples_topic, AFTER)[BEFORE:] == [0, 0]


@pytest.mark.thorough
def test_a_standby_that_lived_through_it_takes_over(make_site: MakeSite) -> None:
    """A standby that was started later, with an empty disk, takes over too."""
    control = f"control-{uuid.uuid4().hex[:8]}"
    site = make_site(cut(scenario("plain", BEFORE), before=True), topics={"control": control})
    add_control(site, control)
    site.produce()
    leader, second = site.learner(), standby(site, "second")
    with ExitStack() as leading:
        leading.enter_context(running(leader))
        wait_until(lambda: members(site) == 1, "the leader holds the lease")
        with running(second):
            join_first(site)
            wait_until(lambda: min(leader.tick, second.tick) >= site.last_tick() > 0, "both have folded")
            grow_all(site)
            begin_anew(site.config, BeginAnewRequest(MOMENT_MS, write=True))
            with running(site.joiner()):
                site.produce()
                wait_until(site.closed, "every partition closed")
                wait_until(lambda: site.folded(leader), "every tick folded")
            leading.close()
            wait_until(lambda: second.models[0].leads, "the standby leads")
            wait_until(lambda: site.folded(second), "every tick folded")
    assert second.learner.digest() == leader.learner.digest()
    assert ended(site, standby(site, "third")) == leader.learner.digest()
    assert_sound(site)


def test_impressions_whose_clicks_went_with_their_topic_are_left_behind(joined: Site) -> None:
    """The clicks' topic was deleted and made with more partitions, and holds those since a time after the moment."""
    join_first(joined)
    grow(joined, joined.impressions, joined.config.examples_topic)
    remake(joined, joined.clicks, AFTER)
    joined.scenario, joined.partitions = cut(TOGETHER, before=False), AFTER
    times = sorted(m.timestamp_ms for part in joined.scenario.clicks for m in part)
    since_ms = times[len(times) // 4]
    kept = [[m for m in part if m.timestamp_ms >= since_ms] for part in joined.scenario.clicks]
    joined.scenario = replace(joined.scenario, clicks=kept)
    joined.produce()
    rows = begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))["partitions"]
    assert all(row["impressions_from"] > 0 for row in rows)
    with running(joined.joiner()):
        wait_until(joined.closed, "every partition closed")
    full = replace(joined.scenario, clicks=cut(TOGETHER, before=False).clicks)
    every = loop.join_topics(records(full.impressions), records(full.clicks), full.settings)
    positives_since: list[float] = []
    for log, row, made in zip(joined.logs(), rows, every, strict=True):
        since = labels(example for example in log.examples() if example[0] > row["tick"])
        assert since - labels(plain_examples(made.examples)) == Counter(), "a label that is not true"
        positives_since.append(sum(label for _, label in since.elements()))
    assert any(positives_since)
    assert audit(joined.config, AuditRequest())["sound"]


def test_topics_with_other_numbers_are_refused_with_the_way_on(joined: Site) -> None:
    """The log was forgotten; or the inputs."""
    join_first(joined)
    grow(joined, joined.impressions, joined.clicks)
    with pytest.raises(PartitionCountsDiffer, match=f"{joined.config.examples_topic} has {BEFORE}") as refused:
        begin_anew(joined.config, BeginAnewRequest(MOMENT_MS, write=True))
    assert f"--partitions {AFTER}" in refused.value.action
