"""`diff`: a live model beside a backfill of the same span, and every way in which two training logs can part."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.config import Config
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.marks import GENESIS, ImpressionCounts, TickCounts
from stream_learner.core.log.rule_w import Attempt
from stream_learner.core.machine.hashing import hash_texts
from stream_learner.errors import ConfigError, ModelsDiffer, NotFound, PartitionCountsDiffer
from stream_learner.operations.diff.run import compare_models
from tests.e2e.conftest import MakeSite
from tests.e2e.site import COMPACTED, Site, running, wait_until
from tests.e2e.variants import delete_before, joined_site, make_topics, role, run_until_done, variant
from tests.scenarios import Message, scenario

pytestmark = pytest.mark.usefixtures("moved_clock")

START_MS = 1_700_000_000_000
GRACE_MS = 1_000


def second_model(site: Site, name: str, **changes: dict[str, Any]) -> Config:
    """A model that joins the same inputs again, its topics made."""
    tree = {**site.config.renamed(f"{site.model}-{name}").model_dump(mode="json", by_alias=True)}
    tree["kafka"] = site.tree["kafka"]
    for section, values in changes.items():
        tree[section] = {**tree[section], **values}
    config = Config.model_validate(tree)
    plans = [TopicPlan(topic, site.partitions) for topic in (config.examples_topic, config.dead_letters_topic)]
    for topic in (config.snapshots_topic, config.checkpoints_topic):
        plans.append(TopicPlan(topic, config.snapshots.shards, configs=COMPACTED))
    make_topics(site, *plans)
    return config


NO_END = 1 << 40
"""A joiner with an end, however far, closes ticks and windows together, one tick after the other."""


def join_again(site: Site, config: Config, tick: int) -> None:
    """Join into the log of another model until every partition has closed a tick, and fold it up to there."""
    learner = role(config, until_tick=tick)
    with running(site.joiner(config), learner):
        wait_until(lambda: learner.done, "the second model is done")


def quiet_site(make_site: MakeSite) -> tuple[Site, list[list[Message]]]:
    """A site with hardly any traffic, whose ticks the wall clock closes; and its impressions by partition."""
    made = scenario("plain", partitions=2)
    shown = [[Message(START_MS + 700 * n, b"%d" % n, b'{"id":"%d-%d"}' % (p, n)) for n in range(20)] for p in range(2)]
    clicked = [[part[n]._replace(timestamp_ms=part[n].timestamp_ms + 50) for n in (0, 3, 4, 9)] for part in shown]
    made = replace(made, impressions=shown, clicks=clicked)
    return make_site(made, join={"close_idle": True, "grace": f"{GRACE_MS}ms", "idle_after": "0"}), shown


@pytest.fixture
def late(make_site: MakeSite) -> tuple[Site, Config, int]:
    """A live model whose wall clock closed ticks before one click came, and the backfill that counts it; the tick up
    to which both are folded."""
    site, shown = quiet_site(make_site)
    s = site.scenario.settings
    now = [START_MS]
    with running(site.joiner(clock_ms=lambda: now[0], until_tick=NO_END)):
        site.produce()
        now[0] = START_MS + 20_000 + 2 * s["window_ms"] + GRACE_MS
        end_tick = (now[0] - GRACE_MS) // s["tick_ms"] - 1
        wait_until(lambda: site.last_tick() >= end_tick, "the clock has closed every tick")
    run_until_done(role(site.config, until_tick=end_tick))
    site.send(site.clicks, 1, [shown[1][7]._replace(timestamp_ms=shown[1][7].timestamp_ms + 100)])
    sentinels = [Message(now[0] + 3 * s["window_ms"], b"end", b'{"id":"end-%d"}' % n) for n in range(s["agree"])]
    for topic in (site.impressions, site.clicks):
        for partition in range(2):
            site.send(topic, partition, sentinels)
    again = second_model(site, "again", join={"close_idle": False})
    join_again(site, again, end_tick)
    return site, again, end_tick


def test_the_click_that_came_too_late_for_live_is_named(late: tuple[Site, Config, int]) -> None:
    """The backfill counts it: one example has another label, and the click's offset is the reason given."""
    site, again, end_tick = late
    found = compare_models(site.config, again)
    live, other = site.model, again.model
    assert (found["equal"], found["differences"], found["digests"]) == (False, {"label": 1}, "differ")
    assert found["examples"] == {live: 40, other: 40}
    assert [span["until_tick"] for span in found["spans"]] == [end_tick] * 2
    (entry,) = found["listed"]
    clicked_ms = START_MS + 700 * 7
    tick = (clicked_ms + site.config.join.window_ms) // site.config.join.tick_ms
    assert (entry["partition"], entry["tick"], entry["what"]) == (1, tick, "label")
    assert (entry["log_time_ms"], entry["labels"]) == (clicked_ms, {live: 0.0, other: 1.0})
    assert entry["clicks"] == [
        {
            "topic": site.clicks,
            "partition": 1,
            "offset": 4,
            "time_ms": clicked_ms + 100,
            "value": 1.0,
            "too_late_for": [live],
        }
    ]
    mirrored = compare_models(again, site.config)
    assert mirrored["differences"] == {"label": 1}
    assert mirrored["listed"][0]["clicks"] == entry["clicks"]
    assert compare_models(site.config, again, until_tick=tick - 1)["differences"] == {}
    assert compare_models(site.config, again, from_tick=tick + 1)["differences"] == {}
    assert compare_models(site.config, again, limit=0)["listed"] == []


def test_the_command_says_so_with_exit_code_57(
    late: tuple[Site, Config, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON; two models that are the same end with 0."""
    from stream_learner.cli import main

    site, again, _ = late
    arguments = ["diff", site.model, again.model, "-c", str(site.write_config())]
    assert exit_code(main, arguments) == ModelsDiffer.exit_code
    shown = capsys.readouterr()
    (line,) = [line.strip() for line in shown.out.splitlines() if line.strip().startswith("click ")]
    assert line.startswith(f"click {site.clicks} 1 4 2023-11-14T22:13:25.000Z 1, too late for {site.model}")
    assert f"{site.model} and {again.model} differ: label: 1" in shown.err
    assert exit_code(main, [*arguments, "--json"]) == ModelsDiffer.exit_code
    assert json.loads(capsys.readouterr().out)["listed"][0]["clicks"][0]["offset"] == 4
    same = ["diff", again.model, again.model, "-c", str(site.write_config())]
    assert exit_code(main, same) == 0
    assert "no difference" in capsys.readouterr().out


def exit_code(main: Any, arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.thorough
def test_impressions_that_the_clock_put_into_other_ticks_hide_nothing(make_site: MakeSite) -> None:
    """1,900 impressions come after the wall clock has closed their ticks: live has them in later ones than a backfill.
    Told are the clicks that came too late for live, and nothing else.
    """
    (site, shown), of_each = quiet_site(make_site), 950
    s, first_ms = site.scenario.settings, START_MS + 15_000
    now = [START_MS]
    with running(site.joiner(clock_ms=lambda: now[0], until_tick=NO_END)):
        site.produce()
        end_tick = _closed_by(site, now, START_MS + 20_000 + 2 * s["window_ms"] + GRACE_MS)
        held_back = [
            [Message(first_ms + 10 * n, b"%d" % n, b'{"id":"later-%d-%d"}' % (p, n)) for n in range(of_each)]
            for p in range(2)
        ]
        for p in range(2):
            site.send(site.clicks, p, held_back[p][100:130])
        for p in range(2):
            site.send(site.impressions, p, held_back[p])
        now[0] += 10_000 + 4 * s["window_ms"]  # at the pace of the stream, which their own times tell
        wait_until(lambda: sum(len(log.examples()) for log in site.logs()) == 2 * (20 + of_each), "all are joined")
        end_tick = site.last_tick()
    for p in range(2):
        site.send(site.clicks, p, held_back[p][500 : 528 + p])
        sentinels = [Message(now[0] + 3 * s["window_ms"], b"end", b'{"id":"end-%d"}' % n) for n in range(s["agree"])]
        site.send(site.impressions, p, sentinels)
        site.send(site.clicks, p, sentinels)
    run_until_done(role(site.config, until_tick=end_tick))
    again = second_model(site, "again", join={"close_idle": False})
    join_again(site, again, end_tick)
    found = compare_models(site.config, again)
    assert found["examples"] == dict.fromkeys((site.model, again.model), 2 * (len(shown[0]) + of_each))
    assert found["differences"] == {"label": 57}
    assert found["other_ticks"] == 2 * of_each
    assert {tuple(entry["labels"].values()) for entry in found["listed"]} == {(0.0, 1.0)}
    late = [click["too_late_for"] for entry in found["listed"] for click in entry["clicks"]]
    assert late == [[site.model]] * 57


def _closed_by(site: Site, now: list[int], clock_ms: int) -> int:
    """Let the joiner's clock go to this time; the last tick that is closed by it."""
    now[0] = clock_ms
    tick = (clock_ms - GRACE_MS) // site.config.join.tick_ms - 1
    wait_until(lambda: site.last_tick() >= tick, "the clock has closed every tick")
    return tick


@pytest.mark.thorough
def test_models_of_one_log_differ_only_in_what_they_publish(make_site: MakeSite) -> None:
    """Another learning rate: the log is not compared with itself, the digests of one version differ."""
    site = joined_site(make_site, "plain")
    optimizer = {**site.tree["learner"]["optimizer"], "alpha": 0.7}
    same, faster = variant(site, "same"), variant(site, "faster", learner={"optimizer": optimizer})
    run_until_done(role(site.config, same, faster, until_tick=site.end_tick))
    found = compare_models(site.config, same)
    assert (found["same_log"], found["digests"], found["equal"], found["spans"]) == (True, "equal", True, [])
    found = compare_models(site.config, faster)
    assert (found["digests"], found["equal"], found["same_optimizer"], found["total"]) == ("differ", False, False, 0)
    behind = variant(site, "behind")
    run_until_done(role(behind, until_tick=site.end_tick - 1))
    found = compare_models(site.config, behind)
    assert (found["digests"], found["equal"]) == ("of different versions", True)
    assert compare_models(site.config, variant(site, "unborn"))["digests"] == "not published"


def test_every_way_in_which_logs_differ_is_counted_and_named(make_site: MakeSite) -> None:
    """Two logs of examples made by hand: in one only, other labels, weights, times, features, order."""
    site = make_site(scenario("plain", partitions=1))
    other = second_model(site, "other")
    left, right = written(range(8)), written(range(8))
    right["label"][1] = 1.0
    right["weight"][2] = 2.5
    right["log_time_ms"][7] += 1
    right["values"][3] = 4.0
    write_log(site, site.config, {5: left, 9: written([20, 50]), 11: written([30, 31]), 12: written([40])}, last=20)
    write_log(site, other, {5: right, 10: written([50, 21]), 11: written([31, 30]), 12: written([40])}, last=15)
    found = compare_models(site.config, other)
    names = site.config.model, other.model
    assert found["differences"] == {
        **{f"only_in {name}": 1 for name in names},
        **dict.fromkeys(("label", "weight", "log_time", "features", "order"), 1),
    }
    assert (found["total"], found["other_ticks"]) == (7, 1)
    assert found["outcomes"] == {name: {"not known": 1} for name in names}
    assert found["spans"] == [{"partition": 0, "from_tick": 5, "until_tick": 15}]
    by_what = {entry["what"]: entry for entry in found["listed"]}
    assert {entry["tick"] for what, entry in by_what.items() if what in ("label", "weight", "features")} == {5}
    assert by_what["weight"]["weights"] == {names[0]: 1.0, names[1]: 2.5}
    assert by_what["log_time"]["log_times_ms"] == {names[0]: 0, names[1]: 1}
    assert by_what["features"]["features"] == {name: {"count": 1, "only_here": 1} for name in names}
    assert by_what["label"]["clicks"] == []
    assert [by_what[f"only_in {name}"]["tick"] for name in names] == [9, 10]
    assert by_what["order"]["tick"] == 11
    assert len(compare_models(site.config, other, limit=3)["listed"]) == 3


def test_models_of_other_inputs_are_compared_all_the_same(make_site: MakeSite) -> None:
    """That they are is said, and the clicks of each are looked for in its own topic."""
    site = make_site(scenario("plain", partitions=1))
    elsewhere = f"{site.model}-other-clicks"
    make_topics(site, TopicPlan(elsewhere, 1, configs={"message.timestamp.after.max.ms": str(2**62)}))
    other = second_model(site, "other", input={"clicks": {**site.tree["input"]["clicks"], "topic": elsewhere}})
    click = Message(START_MS, b"a", b'{"id":"a"}')
    site.send(site.clicks, 0, [click._replace(value=b'{"id":"b"}')] * 3)
    site.send(elsewhere, 0, [click._replace(value=b'{"id":"b"}')] * 5 + [click])
    left, right = written([0]), written([0])
    for columns in (left, right):
        columns["id_hash"] = np.array(hash_texts([b"a"]), np.uint64)
    right["label"][0] = 1.0
    write_log(site, site.config, {5: left}, last=6, click_cursor=3)
    write_log(site, other, {5: right}, last=6, click_cursor=6)
    found = compare_models(site.config, other)
    assert (found["same_inputs"], found["differences"]) == (False, {"label": 1})
    clicks = [(c["topic"], c["offset"], c["too_late_for"]) for c in found["listed"][0]["clicks"]]
    assert clicks == [(elsewhere, 5, [])]


def test_a_log_that_has_lost_its_beginning_is_compared_from_where_it_is_whole(make_site: MakeSite) -> None:
    """The earliest mark in sight is only where reading begins; what lies before it is not called different."""
    site = make_site(scenario("plain", partitions=1))
    other = second_model(site, "other")
    ticks = {tick: written([tick]) for tick in range(5, 60, 5)}
    offsets = write_log(site, site.config, ticks, last=60)
    write_log(site, other, ticks, last=60)
    delete_before(site, site.config.examples_topic, 0, offsets[20])
    found = compare_models(site.config, other)
    assert (found["equal"], found["spans"]) == (True, [{"partition": 0, "from_tick": 21, "until_tick": 60}])
    assert set(found["examples"].values()) == {7}


def test_a_log_that_begins_later_is_compared_from_its_beginning(make_site: MakeSite) -> None:
    """As a backfill from a later time: what the other has before is counted, or compared where that is asked for."""
    site = make_site(scenario("plain", partitions=1))
    other = second_model(site, "other")
    ticks = {tick: written([tick]) for tick in range(5, 60, 5)}
    write_log(site, site.config, ticks, last=60)
    write_log(site, other, {tick: columns for tick, columns in ticks.items() if tick >= 30}, last=60)
    found = compare_models(site.config, other)
    assert (found["equal"], found["spans"]) == (True, [{"partition": 0, "from_tick": 30, "until_tick": 60}])
    assert found["examples_before"] == {site.model: 5, other.model: 0}
    found = compare_models(site.config, other, from_tick=20)
    assert found["differences"] == {f"only_in {site.model}": 2}


def test_logs_that_cannot_be_compared_are_refused(make_site: MakeSite) -> None:
    """Other ticks, other partitions, nothing in common."""
    site = make_site(scenario("plain", partitions=1))
    with pytest.raises(NotFound, match="no tick in common"):
        compare_models(site.config, second_model(site, "empty"))
    with pytest.raises(ConfigError, match="different lengths"):
        compare_models(site.config, second_model(site, "slow", join={"tick": "2s"}))
    wider = make_site(scenario("plain", partitions=2))
    with pytest.raises(PartitionCountsDiffer, match="has 1 partition, "):
        compare_models(site.config, wider.config)


def written(ids: Iterable[int]) -> dict[str, np.ndarray]:
    """Columns of examples of these ids, one feature each, all negative."""
    numbers = np.array(list(ids), np.int64)
    ones = np.ones(len(numbers))
    return {
        "log_time_ms": np.zeros(len(numbers), np.int64),
        "id_hash": numbers.astype(np.uint64) + np.uint64(1),
        "label": 0 * ones,
        "weight": ones.copy(),
        "row_start": np.arange(len(numbers) + 1),
        "keys": numbers.astype(np.uint64) + np.uint64(1),
        "values": ones.copy(),
    }


def write_log(
    site: Site, config: Config, ticks: dict[int, dict[str, np.ndarray]], *, last: int, click_cursor: int = 0
) -> dict[int, int]:
    """Write a training log with these ticks as a joiner would, empty up to `last`; the offset of each tick's mark."""
    attempt = Attempt(0, 77, GENESIS, 0)
    first, offset, marks = 0, 0, {}
    for tick in sorted({*ticks, last}):
        columns = ticks.get(tick)
        batch = ExampleBatch.empty() if columns is None else ExampleBatch(**columns)
        counts = TickCounts(ImpressionCounts(len(batch), len(batch), int((batch.label > 0).sum())))
        records = attempt.stamp(
            batch,
            first_tick=first,
            last_tick=tick,
            next_impression=0,
            first_click=0,
            click_cursor=click_cursor,
            counts=counts,
        )
        site.append(config.examples_topic, 0, *records)
        offset += len(records)
        marks[tick] = offset - 1
        first = tick + 1
    return marks
