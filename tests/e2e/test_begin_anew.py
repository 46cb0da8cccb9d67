"""`begin-anew` on a real Kafka: what a joiner refuses for good is gone on with under the same name."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from stream_learner.config import Config
from stream_learner.core.log.examples import decode
from stream_learner.core.log.header import open_record, seal
from stream_learner.core.log.marks import AHEAD, Mark
from stream_learner.errors import (
    ConfigError,
    InputsChanged,
    JoinersRun,
    LogTrimmed,
    PartitionCountsDiffer,
    TopicRecreated,
)
from stream_learner.operations.audit import findings as checks
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.begin_anew import LAST, WRITTEN, BeginAnewRequest, begin_anew, overtaken
from stream_learner.operations.inspect_log import inspect_tick
from stream_learner.roles.common.last_publication import read_last_publication
from tests.cli_e2e.commands import answer_of
from tests.e2e.checks import balance_of
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.e2e.test_refusals import remake
from tests.e2e.training_log import plain_examples
from tests.e2e.variants import delete_before
from tests.scenarios import scenario

WRITE = BeginAnewRequest(write=True)
HALF = 0.5


@pytest.fixture
def joined(make_site: MakeSite) -> Site:
    """A site whose joiner has closed many ticks of the first half of the traffic and is gone."""
    site = make_site(scenario("plain", 2))
    site.produce(0, HALF)
    with running(site.joiner()):
        wait_until(lambda: all(sum(map(positives, log.marks)) for log in site.logs()), "a positive in every partition")
    wait_until(lambda: site.members() == [], "the joiner has left its group")
    return site


def positives(mark: Mark) -> int:
    return mark.counts.impressions.positives


def goes_on(site: Site, config: Config) -> None:
    """The rest of the traffic is joined and folded, and published."""
    learner = site.learner(config)
    with running(site.joiner(config), learner):
        site.produce(HALF, 1)
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: site.folded(learner), "every tick folded")
        wait_until(lambda: version(site) >= site.end_tick, "a version")


def version(site: Site) -> int:
    c = site.config
    return read_last_publication(site.settings, site.admin.offsets, c.snapshots_topic, c.snapshots.shards).latest


def labels(site: Site) -> Counter[tuple[int, float]]:
    """Every example of the log by its id's hash and its label."""
    return Counter((example[2], example[3]) for log in site.logs() for example in log.examples())


def expected_labels(site: Site) -> Counter[tuple[int, float]]:
    return Counter((e[2], e[3]) for part in site.scenario.expected() for e in plain_examples(part.examples))


def assert_sound(site: Site, config: Config, **replayed: Any) -> dict[str, Any]:
    """An audit finds nothing, in the report of each partition it has the tick with which the log begins anew."""
    found = audit(config, AuditRequest(**replayed))
    assert found["sound"], found["findings"]
    anew = [[m.last_tick for m in marks if m.begins_anew] for marks in site.marks()]
    assert [row["begins_anew"] for row in found["partitions"]] == anew
    assert balance_of(site).problems == []
    assert found["balance"] == balance_of(site).to_dict()
    return found


def test_other_settings_are_gone_on_with(joined: Site) -> None:
    """Nothing is written unless that is said. Then no impression and no label is lost; a learner that runs meanwhile
    publishes by itself once the marks carry its features."""
    config = joined.changed(features={"max_features": 77})
    error = failure_of(joined.joiner(config), InputsChanged)
    assert "other settings of features" in str(error)
    assert "stream-learner begin-anew" in error.action
    wait_until(lambda: joined.members() == [], "the joiner has left its group")
    ends = joined.ends(config.examples_topic, 2)
    path = str(joined.write_config(features={"max_features": 77}))
    shown = answer_of("begin-anew", "-c", path)
    assert shown.code == 0
    assert "nothing was written" in shown.out
    assert joined.ends(config.examples_topic, 2) == ends
    last = [marks[-1] for marks in joined.marks()]
    learner = joined.learner(config)
    with running(learner):
        wait_until(lambda: "other settings of features" in learner.why_not_ready, "it publishes nothing")
        written = answer_of("begin-anew", "-c", path, "--write", "--json").json
        assert [row["state"] for row in written["partitions"]] == [WRITTEN] * 2
        assert [row["impressions_lost"] for row in written["partitions"]] == [0, 0]
        assert [row["clicks_lost"] for row in written["partitions"]] == [0, 0]
        assert [row["clicks_given_up"] for row in written["partitions"]] == [m.counts.clicks.waiting for m in last]
        for mark, log in zip(last, joined.logs(), strict=True):
            anew = log.marks[-1]
            assert (anew.begins_anew, anew.predecessor) == (True, mark.id)
            assert (anew.next_impression, anew.first_click) == (mark.next_impression, mark.first_click)
            assert inspect_tick(config, anew.partition, anew.last_tick)["begins_anew"] is True
        assert version(joined) == -1
        with running(joined.joiner(config)):
            joined.produce(HALF, 1)
            wait_until(joined.closed, "every partition closed")
            wait_until(lambda: version(joined) >= joined.end_tick, "a version")
            wait_until(lambda: learner.why_not_ready == "", "it is ready")
    assert labels(joined) == expected_labels(joined)
    assert_sound(joined, config)
    again = assert_sound(joined, config, replay=True)
    made = again["checks"][checks.EXAMPLES_AGAIN]
    assert made["checked"] > 0
    assert all("ticks" in why for why in made["not_checked"])
    assert again["checks"][checks.DIGESTS_AGAIN]["status"] == checks.HOLDS


def test_a_log_of_version_1_is_refused_with_the_way_on_and_gone_on_with(joined: Site) -> None:
    """Its marks are read for ever; what it remembers means something else by now."""
    topic = joined.config.examples_topic
    records = [list(version_1(joined, partition)) for partition in range(2)]
    joined.close()  # its readers are of the log that goes
    remake(joined, topic, 2)
    joined.append_all(topic, [(p, None, value) for p, values in enumerate(records) for value in values])
    assert all(mark.features == 0 for marks in joined.marks() for mark in marks)
    error = failure_of(joined.joiner(), InputsChanged)
    assert "an earlier version" in str(error)
    assert "stream-learner begin-anew" in error.action
    wait_until(lambda: joined.members() == [], "the joiner has left its group")
    assert answer_of("begin-anew", "-c", str(joined.write_config()), "--write").code == 0
    goes_on(joined, joined.config)
    assert labels(joined) == expected_labels(joined)
    assert_sound(joined, joined.config)
    replayed = assert_sound(joined, joined.config, replay=True)
    why = "no resume point before them of these topics and settings that the inputs still reach back to"
    assert sorted(replayed["checks"][checks.EXAMPLES_AGAIN]["not_checked"]) == [
        f"partition {row['partition']}: ticks 0 to {row['begins_anew'][0] - 1}: {why}" for row in replayed["partitions"]
    ]


def version_1(site: Site, partition: int) -> Iterator[bytes]:
    """The accepted records of a partition as version 1 wrote them."""
    values = {offset: value for offset, _, value, _ in site.records(site.config.examples_topic, partition)}
    for tick in site.log(partition).ticks:
        for offset, _ in tick.records:
            yield values[offset]
        yield mark_1(values[tick.mark_offset])


def mark_1(value: bytes) -> bytes:
    """A mark in the layout of version 1, written from its table; no impression of it may be late."""
    mark, header = decode(value), open_record(value).header
    assert isinstance(mark, Mark)
    *counts, late = mark.counts.impressions
    assert late == 0 and header.flags in (0, 1)
    body = struct.pack("<Qq", mark.pred_attempt, mark.pred_tick)
    body += struct.pack("<4q", mark.first_tick, mark.next_impression, mark.first_click, mark.click_cursor)
    body += struct.pack("<6q7q", *counts, *mark.counts.clicks)
    if mark.resume is not None:
        point = mark.resume
        body += struct.pack("<16s16sQ", point.impression_topic_id, point.click_topic_id, 1234)
        body += struct.pack("<qqqQI", point.impression_log_time, point.dedupe_from, 0, len(point.codes), 2)
        bits = sum(int(code) % AHEAD << 2 * place for place, code in enumerate(point.codes))
        body += bits.to_bytes((len(point.codes) + 3) // 4, "little")
    return seal(header._replace(version=1), body)


def test_impressions_that_retention_took_are_counted_and_left_behind(joined: Site) -> None:
    """The joiner was away for too long: it refuses, and goes on with the earliest impression that is left."""
    gap = 9
    first = [marks[-1].next_impression + gap for marks in joined.marks()]
    joined.produce(HALF, 1)
    for partition, offset in enumerate(first):
        delete_before(joined, joined.impressions, partition, offset)
    error = failure_of(joined.joiner(), LogTrimmed)
    assert "stream-learner begin-anew" in error.action
    wait_until(lambda: joined.members() == [], "the joiner has left its group")
    shown = answer_of("begin-anew", "-c", str(joined.write_config()))
    assert shown.out.count(f"up to {gap} impressions are lost") == 2
    found = begin_anew(joined.config, WRITE)
    assert [row["impressions_from"] for row in found["partitions"]] == first
    assert [row["impressions_lost"] for row in found["partitions"]] == [gap, gap]
    with running(joined.joiner()):
        wait_until(joined.closed, "every partition closed")
    whole, rest = expected_labels(joined), labels(joined)
    assert sum((whole - rest).values()) == 2 * gap
    assert rest - whole == Counter()
    # Impressions are trimmed up to where the last resume point needs them, and not what came before it.
    assert_sound(joined, joined.config)


def test_impressions_whose_clicks_are_gone_are_left_behind(joined: Site) -> None:
    """They would all count as not clicked. The ones after them have their labels."""
    gone = [(mark.first_click, mark.click_cursor + 5) for mark in (marks[-1] for marks in joined.marks())]
    joined.produce(HALF, 1)
    for partition, (_, offset) in enumerate(gone):
        delete_before(joined, joined.clicks, partition, offset)
    failure_of(joined.joiner(), LogTrimmed)
    wait_until(lambda: joined.members() == [], "the joiner has left its group")
    found = begin_anew(joined.config, WRITE)
    assert [row["clicks_lost"] for row in found["partitions"]] == [offset - first for first, offset in gone]
    assert all(row["impressions_lost"] > 0 for row in found["partitions"])
    with running(joined.joiner()):
        wait_until(joined.closed, "every partition closed")
    assert labels(joined) - expected_labels(joined) == Counter(), "a label that is not true"
    assert_sound(joined, joined.config)


def test_an_input_made_anew_needs_a_start(joined: Site) -> None:
    """Positions of the old topic mean nothing in it."""
    remake(joined, joined.clicks, joined.partitions)
    error = failure_of(joined.joiner(), TopicRecreated)
    assert "stream-learner begin-anew --from earliest" in error.action
    wait_until(lambda: joined.members() == [], "the joiner has left its group")
    with pytest.raises(TopicRecreated, match=f"{joined.clicks} is not the topic") as refused:
        begin_anew(joined.config, WRITE)
    assert "--from earliest" in refused.value.action
    last = [marks[-1] for marks in joined.marks()]
    found = begin_anew(joined.config, BeginAnewRequest("earliest", write=True))
    assert [row["clicks_lost"] for row in found["partitions"]] == [None, None]
    assert [row["clicks_from"] for row in found["partitions"]] == [0, 0]
    assert all(
        row["impressions_from"] >= mark.next_impression for row, mark in zip(found["partitions"], last, strict=True)
    )
    goes_on(joined, joined.config)
    found = assert_sound(joined, joined.config)
    assert max(labels(joined).values()) == 1, "nothing is learned twice"


def test_impressions_whose_clicks_went_with_their_topic_are_left_behind(joined: Site) -> None:
    """The new topic lacks nothing at its beginning; all the same they would count as not clicked."""
    remake(joined, joined.clicks, joined.partitions)
    joined.produce(HALF, 1)
    found = begin_anew(joined.config, BeginAnewRequest("earliest", write=True))
    assert all(row["impressions_lost"] > 0 for row in found["partitions"])
    with running(joined.joiner()):
        wait_until(joined.closed, "every partition closed")
    assert labels(joined) - expected_labels(joined) == Counter(), "a label that is not true"
    assert_sound(joined, joined.config)


def test_what_cannot_be_gone_on_with_is_refused(joined: Site) -> None:
    """Other numbers of partitions, ticks of another length, a joiner that runs: nothing is written."""
    topic = joined.config.examples_topic
    learner = joined.learner()
    with running(learner):
        wait_until(lambda: version(joined) >= 0, "a version")
    ends = joined.ends(topic, 2)
    with pytest.raises(ConfigError, match=r"was published with ticks of \d+ ms, join.tick is 2000 ms"):
        begin_anew(joined.changed(join={"tick": "2s"}), WRITE)
    with running(joined.joiner()):
        wait_until(lambda: joined.shared_by(1), "the joiner has its partitions")
        with pytest.raises(JoinersRun, match=f"the group {joined.config.group} has 1 member"):
            begin_anew(joined.config, WRITE)
        assert begin_anew(joined.config, BeginAnewRequest())["written"] is False
    assert not any(mark.begins_anew for marks in joined.marks() for mark in marks)
    assert all(now >= then for now, then in zip(joined.ends(topic, 2), ends, strict=True))
    remake(joined, joined.clicks, partitions=3)
    with pytest.raises(PartitionCountsDiffer, match=f"{joined.clicks} has 3"):
        begin_anew(joined.config, WRITE)


@pytest.mark.thorough
def test_one_partition_begins_anew_alone_and_after_its_log_lost_its_beginning(joined: Site) -> None:
    """No resume point is left: nobody knows of which topics the positions are, so a start must be named."""
    log = joined.log(0)
    points = [tick.mark_offset for tick in log.ticks if tick.mark.resume is not None]
    delete_before(joined, joined.config.examples_topic, 0, points[-1] + 1)
    if not [tick for tick in log.ticks if tick.mark_offset > points[-1]]:
        pytest.fail("the scenario has no mark after the last resume point")
    failure_of(joined.joiner(), LogTrimmed)
    wait_until(lambda: joined.members() == [], "the joiner has left its group")
    with pytest.raises(InputsChanged, match="holds no resume point any more"):
        begin_anew(joined.config, BeginAnewRequest(LAST, (0,), write=True))
    found = begin_anew(joined.config, BeginAnewRequest("latest", (0,), write=True))
    assert [row["partition"] for row in found["partitions"]] == [0]
    assert joined.log(0).marks[-1].begins_anew
    assert not any(mark.begins_anew for mark in joined.log(1).marks)
    with running(joined.joiner()):
        joined.produce(HALF, 1)
        wait_until(joined.closed, "every partition closed")


def test_a_mark_that_came_too_late_is_said() -> None:
    """What a joiner has written meanwhile counts, and the command ends with its exit code."""
    row = {"partition": 3, "state": "overtaken"}
    error = overtaken({"log": "m.examples", "partitions": [row, {"partition": 1, "state": WRITTEN}]})
    assert isinstance(error, JoinersRun)
    assert "m.examples partition 3 does not begin anew" in str(error)
    assert json.dumps(row) and overtaken({"log": "", "partitions": []}) is None
