"""`audit`: a sound model passes, whatever happened while it was made; each kind of damage is found, and named."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from stream_learner.adapters.kafka import Appender, TopicPlan
from stream_learner.cli import main
from stream_learner.config.values import format_start
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import TickCounts
from stream_learner.core.log.rule_w import Attempt
from stream_learner.core.snapshots.records import (
    ModelRecord,
    decode,
    encode_model,
)
from stream_learner.errors import AuditFailed, AuditIncomplete, ConfigError, NotFound
from stream_learner.operations.audit import findings as checks
from stream_learner.operations.audit.request import AuditRequest, Range
from stream_learner.operations.audit.run import audit, verdict
from tests.e2e.audited import Model, copy_topic
from tests.e2e.conftest import MakeSite
from tests.e2e.damaged_copies import COPIES, SNAPSHOTS, foreign_digest, other_digest, with_head
from tests.e2e.processes import process_of
from tests.e2e.site import Site, running, wait_until
from tests.e2e.variants import delete_before
from tests.kafka_broker.broker import delete_topics
from tests.scenarios import scenario
from tests.suite.share import cases
from tests.waiting import patience

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
PARTITIONS = 2
REPLAY = AuditRequest(replay=True)
ZERO = AuditRequest(Range(), (0,))
ZERO_REPLAY = AuditRequest(Range(), (0,), replay=True)


@pytest.fixture(scope="module")
def site(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything that goes wrong in the field: dead letters, duplicates, sampled negatives, a joiner killed with
    `kill -9`, records of attempts that lost, several joiners, a learner that is started again. All folded, at rest.
    """
    sampled = {"keep_negatives": 0.6}
    site = Site(kafka, scenario("everything", PARTITIONS), tmp_path_factory.mktemp("audit"), join=sampled)
    with process_of(site, "join") as victim:
        site.produce(0, 0.4)
        wait_until(lambda: all(len(marks) > 10 for marks in site.marks()), "the log grows")
        victim.kill()
    for partition in range(PARTITIONS):
        site.append(site.config.examples_topic, partition, *left_behind(site, partition))
    with running(site.joiner(), site.learner()):
        site.produce(0.4, 0.7)
        wait_until(lambda: site.shared_by(1), "the first one has joined")
    learner = site.learner()
    with running(site.joiner(), site.joiner(), learner):
        wait_until(lambda: site.shared_by(2), "two joiners share the partitions")
        site.produce(0.7, 1.0)
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: site.folded(learner), "every tick folded")
    yield site
    site.close()
    delete_topics(kafka, site.topics)


def left_behind(site: Site, partition: int) -> list[bytes]:
    """The records of an attempt that came too late: a mark after one that is no longer the last, and records without a
    mark.
    """
    marks = site.log(partition).marks
    attempt = Attempt(partition, 77, marks[-2].id, 0)
    cut = {name: getattr(marks[-1], name) for name in ("next_impression", "first_click", "click_cursor")}
    first = marks[-1].first_tick
    return attempt.stamp(ExampleBatch.empty(), first_tick=first, last_tick=first, counts=TickCounts(), **cut)


@pytest.fixture(scope="module")
def model(site: Site) -> Model:
    """A copy of the sound model, to be damaged."""
    return Model(site)


def failed(found: dict[str, Any]) -> set[str]:
    """The checks that failed."""
    return {name for name, check in found["checks"].items() if check["status"] == checks.FAILS}


def test_a_sound_model_passes_and_its_figures_are_right(site: Site) -> None:
    """Every check, replayed: the figures are those of a plain reading of the log, the digest is the one published."""
    found = audit(site.config, REPLAY)
    assert verdict(found) is None, found["findings"]
    assert {check["status"] for check in found["checks"].values()} == {checks.HOLDS}
    balance = Balance()
    for marks in site.marks():
        for mark in marks:
            balance.add(mark)
    assert found["balance"] == balance.to_dict()
    assert found["balance"]["impressions"]["read"] == sum(
        len(site.scenario.before_sentinels(part)) for part in site.scenario.impressions
    )
    assert [row["examples"] for row in found["partitions"]] == [len(log.examples()) for log in site.logs()]
    assert [row["records"] for row in found["partitions"]] == site.ends(site.config.examples_topic, PARTITIONS)
    assert all(row["ignored_marks"] > 0 for row in found["partitions"])
    assert found["checks"][checks.DEAD_LETTERS]["checked"] > 0
    assert found["balance"]["impressions"]["sampled_out"] > 0
    assert found["published"]["compared"] == found["published"]["versions"] > 0
    assert found["folded"]["digest"] == found["published"]["digest"] == found["copied"]["digest"]
    assert found["copied"]["tick"] == found["folded"]["tick"]
    assert found["checks"][checks.COPIED_CHECKPOINT]["checked"] > PARTITIONS + 1
    assert found["checks"][checks.EXAMPLES_AGAIN]["checked"] == sum(row["marks"] for row in found["partitions"])


@pytest.mark.parametrize("replay", cases([False, True], [False]), ids=["", "replayed"])
def test_ranges_that_adjoin_add_up_to_the_whole(replay: bool, site: Site) -> None:
    """By ticks in the middle of the log, and by offsets of one partition; each begins after a mark that is accepted."""
    whole = audit(site.config, AuditRequest())
    parts = [audit(site.config, AuditRequest(wanted, replay=replay)) for wanted in split(middle_tick(site))]
    assert not any(failed(part) for part in parts)
    for name in ("marks", "examples", "positives", "records", "ignored_marks"):
        sums = [sum(part["partitions"][p][name] for part in parts) for p in range(PARTITIONS)]
        assert sums == [row[name] for row in whole["partitions"]], name
    for name in ("read", "examples", "duplicates", "dead_lettered"):
        parts_sum = sum(part["balance"]["impressions"][name] for part in parts)
        assert parts_sum == whole["balance"]["impressions"][name]
    at = whole["partitions"][1]["records"] // 2
    halves = [Range(until_offset=at), Range(from_offset=at)]
    rows = [audit(site.config, AuditRequest(half, (1,), replay))["partitions"][0] for half in halves]
    assert sum(row["examples"] for row in rows) == whole["partitions"][1]["examples"]


def middle_tick(site: Site) -> int:
    """The tick of a mark in the middle of partition 0."""
    marks = site.log(0).marks
    return marks[len(marks) // 2].last_tick


def split(tick: int) -> tuple[Range, Range]:
    """Two ranges that meet behind a tick."""
    return Range(until_tick=tick), Range(from_tick=tick + 1)


def flip_labels(batch: ExampleBatch) -> None:
    """One label up, another down: the counts stay as they were."""
    up, down = int(batch.label.argmin()), int(batch.label.argmax())
    batch.label[up], batch.label[down] = batch.label[down], batch.label[up]


def change_column(name: str, by: float) -> Any:
    """Something added to the first of a column."""

    def change(batch: ExampleBatch) -> None:
        getattr(batch, name)[0] += by

    return change


DAMAGES: dict[str, tuple[Any, str, bool, str]] = {
    "a flipped byte in examples": (lambda m: m.flipped(m.first, -1), checks.CHECKSUMS, False, "checksum"),
    "a flipped byte in a header": (lambda m: m.flipped(m.first, 20), checks.CHECKSUMS, False, "header's checksum"),
    "a flipped byte in a mark": (lambda m: m.flipped(m.at, -1), checks.CHECKSUMS, False, "checksum"),
    "a removed mark": (lambda m: m.put(m.at), checks.ORDER, False, "not in the log"),
    "removed examples": (lambda m: m.put(m.first), checks.ORDER, False, "not all are there"),
    "a wrong number of examples": (
        lambda m: m.with_mark(
            impressions={"examples": m.tick.examples + 1, "read": m.mark.counts.impressions.read + 1}
        ),
        checks.COUNTS,
        False,
        "the mark counts",
    ),
    "a wrong number of positives": (
        lambda m: m.with_mark(impressions={"positives": m.mark.counts.impressions.positives - 1}),
        checks.COUNTS,
        False,
        ", its examples are",
    ),
    "a count that does not add up": (
        lambda m: m.with_mark(impressions={"duplicates": m.mark.counts.impressions.duplicates + 1}),
        checks.BALANCE,
        False,
        "impressions that came in",
    ),
    "a dead click that was none": (
        lambda m: m.with_mark(
            clicks={"dead": m.mark.counts.clicks.dead + 1, "read": m.mark.counts.clicks.read + 1},
            click_cursor=m.mark.click_cursor + 1,
        ),
        checks.DEAD_LETTERS,
        False,
        "the marks count",
    ),
    "a position that goes back": (
        lambda m: m.with_mark(next_impression=m.ticks[m.place - 1].mark.next_impression - 1),
        checks.POSITIONS,
        False,
        "next_impression goes back",
    ),
    "a position beyond the end": (
        lambda m: m.with_mark(click_cursor=10**6),
        checks.POSITIONS,
        False,
        "beyond the end",
    ),
    "a label flipped": (
        lambda m: m.with_examples(lambda batch: batch.label.__setitem__(int(batch.label.argmin()), 1.0)),
        checks.COUNTS,
        False,
        ", its examples are",
    ),
    "a tick that is too early": (
        lambda m: m.with_examples(lambda batch: batch.log_time_ms.__iadd__(10**6)),
        checks.ORDER,
        False,
        "of stream time",
    ),
    "two labels exchanged": (lambda m: m.with_examples(flip_labels), checks.EXAMPLES_AGAIN, True, "another label"),
    "another value": (
        lambda m: m.with_examples(change_column("values", 0.5)),
        checks.EXAMPLES_AGAIN,
        True,
        "another features",
    ),
    "another id": (
        lambda m: m.with_examples(lambda batch: batch.id_hash.__setitem__(0, 5)),
        checks.EXAMPLES_AGAIN,
        True,
        "missing: ",
    ),
    "another weight": (
        lambda m: m.with_examples(change_column("weight", 1.0)),
        checks.EXAMPLES_AGAIN,
        True,
        "another weight",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_of_the_training_log_is_found_and_named(name: str, model: Model) -> None:
    """The check that it is for fails, in the tick that was damaged; what only --replay can see passes without it."""
    damage, check, only_replayed, words = DAMAGES[name]
    config = model.damaged(damage(model))
    plain = audit(config, ZERO)
    if only_replayed:
        assert failed(plain) == set(), plain["findings"]
        plain = audit(config, ZERO_REPLAY)
    assert check in failed(plain)
    mine = [finding for finding in plain["findings"] if finding["check"] == check]
    assert any(words in finding["what"] for finding in mine), mine
    assert all(finding["partition"] == 0 and finding["topic"] for finding in mine)
    assert isinstance(verdict(plain), AuditFailed)


def test_foreign_records_of_the_training_log_are_counted_and_no_finding(model: Model) -> None:
    """Every reader passes them over; the examples are the same, made again too."""
    config = model.damaged(lambda log: [b"junk", *log[:9], b"text", None, *log[9:], bytes(1000)])
    found = audit(config, ZERO_REPLAY)
    assert failed(found) <= {checks.SNAPSHOTS}, found["findings"]
    (row,) = found["partitions"]
    assert (row["foreign_records"], row["skipped_records"], row["lost_examples"]) == (4, 0, 0)
    assert row["examples"] == sum(tick.examples for tick in model.ticks)


def test_a_log_that_came_twice_is_sound(model: Model) -> None:
    """Every record repeated behind the others: ignored, and counted as such."""
    found = audit(model.damaged(lambda log: log + log), ZERO)
    assert failed(found) == set(), found["findings"]
    (row,) = found["partitions"]
    assert row["ignored_marks"] >= row["marks"]
    assert (row["records"], row["examples"]) == (2 * len(model.log), len(model.site.log(0).examples()))


def test_ticks_behind_a_gap_are_checked_too(model: Model) -> None:
    """A mark is missing early, a byte is wrong late: both are found, and the marks between them were read."""
    late = model.ticks[-5].mark_offset
    config = model.damaged(lambda log: model.put(model.at)(model.flipped(late, -1)(log)))
    found = audit(config, ZERO)
    assert {checks.ORDER, checks.CHECKSUMS} <= failed(found)
    assert found["partitions"][0]["gaps"] == 2
    assert found["partitions"][0]["marks"] > len(model.ticks) - 6


def test_other_settings_than_those_of_the_log_are_found(site: Site) -> None:
    """Another window: no resume point is of it, and nothing can be made again."""
    found = audit(site.changed(join={"window": "77s"}), REPLAY)
    assert checks.RESUME_POINTS in failed(found)
    assert "other settings of the join" in json.dumps(found["findings"])


def test_committed_offsets_may_lag_and_not_lead(site: Site) -> None:
    """A group that has committed more than the last mark says."""
    group = f"{site.model}.ahead"
    last = site.log(0).marks[-1]
    offsets = [TopicPartition(site.impressions, 0, last.next_impression - 3)]
    offsets.append(TopicPartition(site.clicks, 0, last.click_cursor + 1))
    site.plain_admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result()
    found = audit(site.changed(join={"group": group}), AuditRequest())
    assert failed(found) == {checks.COMMITTED}
    assert found["partitions"][0]["committed_lag"] == {"impressions": 3, "clicks": -1}
    assert found["partitions"][1]["committed_lag"] == {"impressions": None, "clicks": None}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_damage_of_the_snapshots_is_found(name: str, site: Site) -> None:
    """Without a replay: each shard says it by itself, or two of them contradict each other."""
    edit, words = SNAPSHOTS[name]
    copy = copy_topic(site, site.config.snapshots_topic, site.config.snapshots.shards, edit)
    found = audit(site.changed(topics={"snapshots": copy}), AuditRequest())
    assert failed(found) == {checks.SNAPSHOTS}
    assert words in json.dumps(found["findings"])


def test_junk_in_the_snapshot_topic_is_passed_over_and_named(site: Site) -> None:
    """As scorers pass over it: a key of nobody's that compaction keeps is no failure for ever."""
    shards = site.config.snapshots.shards
    copy = copy_topic(site, site.config.snapshots_topic, shards, lambda shard, key, value: [(key, value)])
    junk = [(shard, key, b"bytes of nobody") for shard in range(shards) for key in (b"junk", b"page/junk")]
    site.append_all(copy, junk)
    found = audit(site.changed(topics={"snapshots": copy}), AuditRequest(limit=1))
    assert verdict(found) is None, found["findings"]
    assert found["passed_over"]["records"] == len(junk)
    (named,) = found["passed_over"]["listed"]
    assert named["topic"] == copy and named["offset"] is not None and "not a snapshot record" in named["what"]


def test_what_is_still_to_be_joined_and_published_is_told(site: Site) -> None:
    """By the positions of the last marks and the ends of the inputs; the ticks that no version has."""
    logs, behind = site.logs(), audit(site.config, AuditRequest())
    for row, log in zip(behind["partitions"], logs, strict=True):
        last, partition = log.marks[-1], row["partition"]
        ends = [site.ends(topic, PARTITIONS)[partition] for topic in (site.impressions, site.clicks)]
        assert row["not_joined"] == {
            "impressions": ends[0] - last.next_impression,
            "clicks": ends[1] - last.click_cursor,
        }
    assert sum(row["not_joined"]["impressions"] for row in behind["partitions"]) > 0
    passed = min(log.marks[-1].last_tick for log in logs)
    assert behind["published"]["ticks_behind"] == passed - behind["published"]["version"]
    nothing = copy_topic(site, site.config.snapshots_topic, site.config.snapshots.shards, lambda *record: [])
    unpublished = audit(site.changed(topics={"snapshots": nothing}), AuditRequest())
    assert unpublished["published"]["ticks_behind"] == passed + 1 - min(log.marks[0].first_tick for log in logs)
    part = audit(site.config, AuditRequest(Range(until_tick=passed - 1)))
    assert part["published"]["ticks_behind"] is None
    assert all(row["not_joined"] is None for row in part["partitions"])


def test_a_version_of_another_publisher_is_found_by_folding_again(site: Site) -> None:
    """All shards agree on a digest that the log does not give."""

    def foreign(shard: int, key: bytes, value: bytes | None) -> Iterable[tuple[bytes, bytes | None]]:
        if key == b"version":
            return [(key, other_digest(value))]
        if key == b"model":
            record = decode(key, value or b"")
            assert isinstance(record, ModelRecord)
            return [(key, encode_model(record.stamp, int(record.content["digest"], 16) ^ 1, record.content))]
        return [(key, value)]

    copy = copy_topic(site, site.config.snapshots_topic, site.config.snapshots.shards, foreign)
    config = site.changed(topics={"snapshots": copy})
    assert failed(audit(config, AuditRequest())) == set()
    found = audit(config, REPLAY)
    assert failed(found) == {checks.DIGESTS_AGAIN}
    assert found["folded"]["digest"] != found["published"]["digest"]


@pytest.mark.parametrize("name", cases(COPIES, ["no pieces", "a flipped byte", "another log's", "another digest"]))
def test_damage_of_the_copied_checkpoint_is_found(name: str, site: Site) -> None:
    """Without a replay: a copy that could not be restored, or that is not of this model at a tick of its log."""
    edit, words = COPIES[name]
    copy = copy_topic(site, site.config.checkpoints_topic, site.config.snapshots.shards, edit)
    found = audit(site.changed(topics={"checkpoints": copy}), AuditRequest())
    assert failed(found) == {checks.COPIED_CHECKPOINT}
    assert words in json.dumps(found["findings"])
    assert {finding["topic"] for finding in found["findings"]} == {copy}


def test_a_copy_that_was_not_folded_from_the_log_is_found_by_folding_again(site: Site) -> None:
    """Head and shards agree on a digest that the log does not give at that tick."""

    copy = copy_topic(site, site.config.checkpoints_topic, site.config.snapshots.shards, foreign_digest)
    config = site.changed(topics={"checkpoints": copy})
    assert failed(audit(config, AuditRequest())) == set()
    found = audit(config, REPLAY)
    assert failed(found) == {checks.COPIED_CHECKPOINT}
    assert "was copied with digest" in json.dumps(found["findings"])


def test_a_model_of_fewer_features_than_the_log_has_is_not_folded_again(site: Site) -> None:
    """The checkpoint says so: the whole log would give another digest, which is no finding."""
    edit = with_head(subset_of_features=lambda none: {"buckets": 1})
    copy = copy_topic(site, site.config.checkpoints_topic, site.config.snapshots.shards, edit)
    found = audit(site.changed(topics={"checkpoints": copy}), REPLAY)
    assert failed(found) == set()
    assert "fewer features" in found["checks"][checks.DIGESTS_AGAIN]["not_checked"][0]
    assert found["folded"] is None


@pytest.mark.parametrize(
    "junk", cases([b"", b"hello", b"a/b/c", b"a/1/-2", b"other.clicks/0/1", b"\xff/0/\xff"], [b"", b"a/1/-2"])
)
def test_a_dead_letter_that_is_missing_is_found_whatever_lies_beside(junk: bytes, site: Site) -> None:
    """One letter less than the marks count, and a record of another program in its place."""
    removed: list[bytes] = []

    def edit(partition: int, key: bytes, value: bytes | None) -> list[tuple[bytes, bytes | None]]:
        if not removed or key in removed:
            removed.append(key)
            return [(junk, value)]
        return [(key, value)]

    copy = copy_topic(site, site.config.dead_letters_topic, PARTITIONS, edit)
    found = audit(site.changed(topics={"dead_letters": copy}), AuditRequest())
    assert failed(found) == {checks.DEAD_LETTERS}
    assert "the marks count" in json.dumps(found["findings"])


def test_foreign_records_and_repeats_among_the_dead_letters_are_no_findings(site: Site) -> None:
    """What has no letter's key is of another program: counted, and passed over as in the log and the snapshots."""
    first: list[bytes] = []

    def edit(partition: int, key: bytes, value: bytes | None) -> list[tuple[bytes, bytes | None]]:
        junk = [] if first else [(b"hello", b""), (b"", b"x"), (b"a/b/c", None)]
        first.append(key)
        return [*junk, (key, value), (key, value)]

    copy = copy_topic(site, site.config.dead_letters_topic, PARTITIONS, edit)
    found = audit(site.changed(topics={"dead_letters": copy}), AuditRequest())
    assert failed(found) == set()
    assert found["passed_over"]["records"] == 3


@pytest.mark.thorough
def test_a_control_record_that_cannot_be_read_is_named_with_what_to_do(site: Site) -> None:
    """Without it the log cannot be folded again: topic, partition, offset and key are said; a null value ends it."""
    control, key = f"control-{uuid.uuid4().hex[:8]}", f"rewind/{site.model}".encode()
    site.admin.create([TopicPlan(control, 1, configs={"cleanup.policy": "compact"})])
    site.topics.append(control)
    config = site.changed(topics={"control": control})

    def write(*values: bytes | None) -> None:
        appender = Appender(site.settings, name="junk")
        for value in values:
            appender.append(control, 0, value, key=key)
        assert all(delivery.error is None for delivery in appender.flush(patience()))
        appender.close()

    write(b"{}", b"junk")
    found = audit(config, REPLAY)
    assert isinstance(verdict(found), AuditIncomplete)
    (why,) = found["checks"][checks.DIGESTS_AGAIN]["not_checked"]
    for said in (f"{control} partition 0 offset 1", key.decode(), "delete the key"):
        assert said in why
    write(None)
    assert verdict(audit(config, REPLAY)) is None


def test_what_is_trimmed_is_not_checked_and_that_is_no_success(make_site: MakeSite) -> None:
    """The clicks of the first ticks are gone: what a resume point still reaches is made again, the rest is named; then
    the beginning of the log is gone, too: no digest can be made again."""
    site = make_site(scenario("plain", 1).with_settings(lateness_ms=2_000, max_skew_ms=2_000))
    site.produce()
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(lambda: site.closed() and site.folded(learner), "every tick closed and folded")
    marks = site.log(0).marks
    middle = marks[len(marks) // 2]
    delete_before(site, site.clicks, 0, middle.first_click)
    assert verdict(audit(site.config, AuditRequest())) is None
    found = audit(site.config, REPLAY)
    assert isinstance(verdict(found), AuditIncomplete)
    assert found["checks"][checks.EXAMPLES_AGAIN]["status"] == checks.NOT_CHECKED
    assert 0 < found["checks"][checks.EXAMPLES_AGAIN]["checked"] < len(marks)
    (why,) = found["checks"][checks.EXAMPLES_AGAIN]["not_checked"]
    assert why.startswith("partition 0: ticks 0 to ")
    later = audit(site.config, AuditRequest(Range(from_tick=marks[-3].first_tick), replay=True))
    assert verdict(later) is None
    delete_before(site, site.config.examples_topic, 0, 5)
    found = audit(site.config, AuditRequest(Range(from_tick=0), replay=True))
    assert "has lost its beginning" in found["checks"][checks.DIGESTS_AGAIN]["not_checked"][0]
    assert "the log begins with tick" in found["checks"][checks.ORDER]["not_checked"][0]
    assert failed(found) == set()


def test_impressions_lost_before_any_tick_took_them_are_found(make_site: MakeSite) -> None:
    """Trimmed beyond the last mark: they are in no outcome, and no joiner can go on."""
    site = make_site(scenario("plain", 1))
    site.produce(0, 0.5)
    with running(site.joiner()):
        wait_until(lambda: site.marks_seen() > 3, "some ticks")
    last = site.log(0).marks[-1]
    delete_before(site, site.impressions, 0, last.next_impression + 2)
    found = audit(site.config, AuditRequest())
    assert {checks.POSITIONS, checks.RESUME_POINTS} <= failed(found)
    assert "2 impressions that no tick has taken are gone" in json.dumps(found["findings"])


def exit_code(*arguments: str) -> int:
    """Run a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_the_command_says_so_with_its_exit_code(site: Site, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    """0, 58 and 59; the same report as JSON; times as those of a backfill."""
    config = str(site.write_config())
    assert exit_code("audit", "-c", config, "--replay") == 0
    out = capsys.readouterr().out
    assert "sound: everything that was asked for was checked, and holds" in out
    for name, meaning in checks.MEANINGS.items():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{name.replace('_', ' ')}  ")]
        assert line.endswith(f"  {meaning}")
    assert exit_code("audit", "-c", config, "--json", "--until-tick", str(10**10)) == AuditIncomplete.exit_code
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["sound"], found["complete"]) == (True, False)
    assert "not everything was checked of order" in shown.err
    damaged = model.damaged(model.flipped(model.first, -1))
    topics = [f"topics.{name}={getattr(damaged, f'{name}_topic')}" for name in ("examples", "snapshots", "checkpoints")]
    sets = [word for topic in topics for word in ("--set", topic)]
    assert exit_code("audit", "-c", config, "-p", "0", *sets) == AuditFailed.exit_code
    shown = capsys.readouterr()
    assert f"checksums: {damaged.examples_topic} partition 0 offset {model.first}" in shown.out
    assert "is not sound" in shown.err
    join = site.config.join
    until_ms = (middle_tick(site) + 1) * join.tick_ms - join.window_ms
    assert exit_code("audit", "-c", config, "--until", format_start(until_ms), "--json") == 0
    rows = json.loads(capsys.readouterr().out)["partitions"]
    assert rows[0]["until_tick"] == middle_tick(site)
    assert all(0 < row["until_tick"] <= middle_tick(site) for row in rows)


def test_ranges_that_cannot_be_are_refused(site: Site) -> None:
    """Two ends, an end before the beginning, offsets of several partitions, a partition that there is not."""
    config = str(site.write_config())
    assert exit_code("audit", "-c", config, "--from-tick", "3", "--from", "2026-11-01T00:00Z") == 2
    assert exit_code("audit", "-c", config, "--from-tick", "3", "--until-tick", "2") == ConfigError.exit_code
    assert exit_code("audit", "-c", config, "--from-offset", "3") == ConfigError.exit_code
    assert exit_code("audit", "-c", config, "-p", "9") == NotFound.exit_code


def test_the_commands_of_the_page_do_what_it_says(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """With this model's configuration, times and offsets in the place of the page's: each ends well."""
    join = site.config.join
    until_ms = (middle_tick(site) + 1) * join.tick_ms - join.window_ms
    mine = {
        "model.yaml": str(site.write_config()),
        "2026-11-01T00:00Z": format_start(until_ms - 60_000),
        "2026-11-02T00:00Z": format_start(until_ms),
        "120000": "0",
        "130000": "40",
        "3": "1",
    }
    (block,) = re.findall(r"## Running it\n\n```\n(.*?)```", PAGE, re.S)
    for line in block.splitlines():
        words = [mine.get(word, word) for word in line.split()]
        assert words[:2] == ["stream-learner", "audit"]
        assert exit_code(*words[1:]) == 0, capsys.readouterr()


def test_the_page_names_every_check_exit_code_and_field(site: Site) -> None:
    """The tables of docs/audit.md are those of the code."""
    rows = dict(re.findall(r"^\| (`[a-z_`, ]+`|\d+) \| (.*) \|$", PAGE, re.M))
    named = [word for cell in rows for word in re.findall(r"`(\w+)`", cell)]
    assert set(checks.MEANINGS) <= set(named)
    in_findings = PAGE.split("## Findings")[1].split("## What was not checked")[0]
    assert all(f"`{name}`" in in_findings for name in checks.MEANINGS)
    assert {str(kind.exit_code) for kind in (AuditFailed, AuditIncomplete)} <= set(rows)
    found = audit(site.config, AuditRequest(Range(), (0,)))
    report = PAGE.split("## The report as JSON")[1]
    names = [*found, *found["partitions"][0], *found["checks"][checks.ORDER], *found["published"], *found["copied"]]
    assert not [name for name in names if f"`{name}`" not in report]
