"""`inspect`: what it shows agrees with the log and the model, as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_learner import Scorer, errors
from stream_learner.adapters.kafka import Admin, PartitionReader, TopicPlan
from stream_learner.core.log.marks import GENESIS, Mark, MarkId, encode_mark
from stream_learner.core.model.fold import Learner
from stream_learner.roles.common.log_reader import records
from stream_learner.roles.learner.checkpoints import open_store
from tests.cli_e2e.commands import Ended, answers_of
from tests.cli_e2e.conftest import IMPRESSIONS, Learned, MakeWorld
from tests.cli_e2e.world import PARTITIONS, World

MARK = Mark(
    partition=0,
    attempt=7,
    first_tick=0,
    last_tick=0,
    next_impression=0,
    first_click=0,
    click_cursor=0,
    records=0,
    pred_attempt=GENESIS.attempt,
    pred_tick=GENESIS.last_tick,
)


def inspect(learned: Learned, *commands: Sequence[str | Path]) -> list[Ended]:
    """Several of them; all must end well."""
    ended = answers_of(*(("inspect", *command, "-c", learned.world.file) for command in commands))
    assert [e.code for e in ended] == [0] * len(commands), [e.err for e in ended]
    return ended


@pytest.fixture(scope="module")
def snapshot(learned: Learned) -> dict[str, Any]:
    """The answer of `inspect snapshot`."""
    found: dict[str, Any] = inspect(learned, ("snapshot", "--json"))[0].json
    return found


@pytest.fixture(scope="module")
def begins_at(learned: Learned) -> int:
    """Where the first examples of partition 0 are: behind one or more marks of empty ticks."""
    begin = inspect(learned, *(("record", str(offset), "-p", "0", "--json") for offset in range(1, 9)))
    return 1 + [record.json["kind"] for record in begin].index("examples")


def test_a_snapshot_is_what_the_learner_left(learned: Learned, snapshot: dict[str, Any]) -> None:
    """Version and digest are those that the learner logged at its end; the shards are of one publication."""
    stopped = next(event for event in learned.ended.events if event["event"] == "learner_stopped")
    assert (snapshot["model"], snapshot["version"]) == (learned.world.model, stopped["tick"])
    assert snapshot["digest"] == stopped["digest"]
    assert snapshot["metrics"]["examples"] == IMPRESSIONS
    assert [shard["shard"] for shard in snapshot["shards"]] == [0, 1]
    assert len({(shard["sequence"], shard["version"]) for shard in snapshot["shards"]}) == 1


def test_weights_and_features_are_those_of_the_model(learned: Learned, snapshot: dict[str, Any]) -> None:
    """The largest weights come first; a feature shows its weight and, as no learner runs, its state."""
    shown, slot, unknown = inspect(
        learned,
        ("weights", "-n", "5", "--json"),
        ("feature", "slot=1", "--json"),
        ("feature", "0x00000000000000ff", "--json"),
    )
    with Scorer(learned.world.settings.bootstrap, learned.world.model) as scorer:
        scorer.wait_ready()
        keys, weights = scorer.largest_weights(5)
        assert slot.json["weight"] == scorer.weight(int(slot.json["key"], 16)) != 0.0
    expected = [{"key": f"0x{k:016x}", "weight": w} for k, w in zip(keys.tolist(), weights.tolist(), strict=True)]
    assert shown.json == expected
    assert slot.json["version"] == slot.json["checkpoint_tick"] == snapshot["version"]
    assert slot.json["n"] > 0 and slot.json["touched_tick"] <= slot.json["version"]
    assert (unknown.json["weight"], unknown.json["state"]) == (0.0, "no example had it")


def test_a_feature_is_shown_without_state_while_another_process_has_it(
    learned: Learned, snapshot: dict[str, Any]
) -> None:
    """As while a learner runs, or another `inspect feature`: the published weight is shown, and who has the state."""
    config = learned.world.config
    with open_store(config, Learner(config.optimizer()), PARTITIONS):
        (shown,) = inspect(learned, ("feature", "slot=1", "--json"))
    assert (shown.json["version"], shown.json["weight"] != 0.0) == (snapshot["version"], True)
    assert shown.json["state"] == f"another process has the state directory {config.state_dir} open"


def test_ticks_and_records_are_those_of_the_log(learned: Learned, snapshot: dict[str, Any], begins_at: int) -> None:
    """A tick's mark names its counts; the records before it hold as many examples; the first run of ticks begins at 0
    and is empty."""
    last, zero, *around = inspect(
        learned,
        ("tick", str(snapshot["version"]), "-p", "1", "--json"),
        ("tick", "0", "-p", "0", "--json"),
        *(("record", str(begins_at + place), "-p", "0", "--json") for place in (-1, 0, 1)),
    )
    assert last.json["first_tick"] <= snapshot["version"] <= last.json["last_tick"]
    assert last.json["clicks"]["waiting"] == 0
    first, (before, examples, mark) = zero.json, [record.json for record in around]
    assert (first["kind"], before["kind"], mark["kind"]) == ("mark", "mark", "mark")
    assert (first["first_tick"], first["follows"], first["ignored_marks_at"]) == (0, "0000000000000000:-1", [])
    assert first["offset"] == first["records"] == first["impressions"]["read"] == before["records"] == 0
    assert (mark["first_tick"], mark["records"]) == (before["last_tick"] + 1, 1)
    assert mark["follows"] == f"{before['attempt']}:{before['last_tick']}"
    assert examples["examples"] == mark["impressions"]["examples"] > 0
    assert examples["attempt"] == mark["attempt"] and examples["tick"] == mark["last_tick"]
    assert len(examples["first_examples"]) == min(10, examples["examples"])
    assert set(examples["first_examples"][0]["features"].values()) == {1.0}


def test_fields_are_those_of_the_newest_impressions(learned: Learned) -> None:
    """How many events have a field, and how many features it gave: counted again from the topic. With fewer events
    fewer are read; what comes only in the newer half of a partition is new."""
    world = learned.world
    all_of_them, few = inspect(learned, ("fields", "--json", "-n", "1000000"), ("fields", "--json", "-n", "100"))
    topic = world.config.input.impressions.topic
    events = [event for p in range(PARTITIONS) for value in values_in(world, topic, p) if (event := event_of(value))]
    ignored = {"id", "time"}
    seen: dict[str, set[str]] = {}
    for event in events:
        for name, value in event.items():
            if name not in ignored:
                seen.setdefault(name, set()).add(f"{value}" if isinstance(value, str | bool) else "number")
    found = {row["field"]: row for row in all_of_them.json}
    strings = [name for name, values in seen.items() if "number" not in values]
    assert strings and all(found[name]["features"] == len(seen[name]) for name in strings)
    assert [row["features"] for row in all_of_them.json] == sorted(
        (r["features"] for r in found.values()), reverse=True
    )
    assert all(0 < row["share"] <= 1 and 0 <= row["new"] <= row["features"] for row in found.values())
    assert sum(row["features"] for row in few.json) < sum(row["features"] for row in found.values())


def event_of(value: bytes) -> dict[str, Any]:
    """An impression; empty for what is none."""
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def values_in(world: World, topic: str, partition: int) -> list[bytes]:
    """The values of a partition."""
    place = (topic, partition)
    offsets = Admin(world.settings).offsets
    end = offsets.high_watermarks([place])[place]
    with PartitionReader(world.settings, topic, partition, 0) as reader:
        return [value for _, value in records(reader, end) if value is not None]


def test_everything_can_be_read_as_text(learned: Learned, snapshot: dict[str, Any], begins_at: int) -> None:
    """Without --json: a table, or a line for each field."""
    version = str(snapshot["version"])
    weights, feature, tick, record, shown = inspect(
        learned,
        ("weights", "-n", "3"),
        ("feature", "slot=1"),
        ("tick", version, "-p", "0"),
        ("record", str(begins_at), "-p", "0"),
        ("snapshot",),
    )
    (fields,) = inspect(learned, ("fields", "-n", "50"))
    assert fields.out.startswith("fields\n") and "share" in fields.out
    assert weights.out.startswith("top weights\n") and weights.out.count("0x") == 3
    assert "checkpoint tick  " + version in feature.out
    assert "last tick  " in tick.out and "click cursor  " in tick.out
    assert "kind               examples\n" in record.out
    assert f"digest     {snapshot['digest']}\n" in shown.out


def test_what_is_not_there_is_said(learned: Learned) -> None:
    """A partition, an offset, a tick beyond the end; a key that is none."""
    ended = answers_of(
        *(
            ("inspect", *command, "-c", learned.world.file)
            for command in (
                ("record", "1", "-p", "9"),
                ("record", "99999999", "-p", "0"),
                ("tick", "9999999999999", "-p", "0"),
                ("feature", "0xkey"),
            )
        )
    )
    assert [e.code for e in ended] == [errors.NotFound.exit_code] * 3 + [errors.ConfigError.exit_code]
    assert "no partition 9" in ended[0].error["message"]
    assert "offset 99999999" in ended[1].error["message"]
    assert "tick 9999999999999" in ended[2].error["message"]


def test_a_tick_shows_the_mark_that_counts(learned: Learned, make_world: MakeWorld) -> None:
    """Where a joiner that lost wrote the same tick, its mark is listed as ignored, whichever came first."""
    world = make_world()
    topic = world.config.examples_topic
    world.admin.create([TopicPlan(topic, 1)])
    lost = [replace(MARK, attempt=9), after(replace(MARK, attempt=9), 9)]
    kept = [MARK, after(MARK, 7)]
    last = after(kept[1], 8)
    world.append(topic, 0, *((None, encode_mark(mark)) for mark in (lost[0], kept[0], kept[1], lost[1], last)))
    first, second, last_shown = answers_of(
        *(("inspect", "tick", tick, "-p", "0", "--json", "-c", world.file) for tick in ("0", "1", "2"))
    )
    assert (first.json["offset"], first.json["ignored_marks_at"]) == (1, [0])
    assert (second.json["offset"], second.json["ignored_marks_at"]) == (2, [3])
    assert (last_shown.json["offset"], last_shown.json["follows"]) == (4, f"{7:016x}:1")


def after(mark: Mark, attempt: int) -> Mark:
    """A mark of the next tick, by an attempt."""
    tick, known = mark.last_tick + 1, MarkId(mark.attempt, mark.last_tick)
    return replace(
        mark, attempt=attempt, first_tick=tick, last_tick=tick, pred_attempt=known.attempt, pred_tick=known.last_tick
    )
