"""Backfills that are interrupted, or whose joiners are: the model is that of a live run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_learner.config.values import format_start
from stream_learner.operations.backfill import joiners as further_joiners
from stream_learner.operations.backfill.plan import Span, make_plan
from stream_learner.operations.backfill.progress import BackfillStatus
from stream_learner.operations.backfill.run import Backfill
from stream_learner.roles.common.lifecycle import Stopping
from tests.cli_e2e.commands import Command, run_side_by_side, started
from tests.e2e.backfills import PARTITIONS, Live, live_model
from tests.e2e.checks import balance_of
from tests.e2e.site import wait_until
from tests.suite.share import cases

RATE = 700
"""Impressions a second of all joiners together, so that there is time for interruptions."""


@pytest.fixture(scope="module")
def live(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """All that goes wrong in the field, joined and learned once."""
    with live_model(kafka, tmp_path_factory.mktemp("live")) as found:
        yield found


def children_of(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def records_in(live: Live, topic: str) -> int:
    """How many records a topic has, 0 where it is not there yet."""
    if topic not in live.site.admin.describe([topic]):
        return 0
    known, _ = live.site.admin.offsets.high_watermarks_known([(topic, p) for p in range(PARTITIONS)])
    return sum(known.values())


def wait_for_growth(live: Live, name: str, command: Command) -> None:
    """Wait until a backfill has appended more ticks."""
    seen = records_in(live, f"{name}.examples")

    def grown() -> bool:
        assert command.process.poll() is None, command.err
        return records_in(live, f"{name}.examples") > seen + 40

    wait_until(grown, "the log grows")


@pytest.mark.thorough
@pytest.mark.parametrize("joiners", cases([1, 4], [1], "nightly"))
def test_a_backfill_interrupted_twice_is_the_live_model(joiners: int, live: Live) -> None:
    """kill -9, then SIGTERM, then to the end: digest, balance and predictions of live. Said once more, the same
    answer. No joiner outlives the process that was killed."""
    name = live.name(f"b{joiners}")
    until = format_start(live.until_ms)
    command = ["backfill", "-c", live.file, "--as", name, "--from", "earliest", "--until", until, "--json"]
    command += ["--joiners", str(joiners)]
    slow = [*command, "--max-rate", str(RATE // joiners)]
    with started(*slow) as first:
        wait_for_growth(live, name, first)
        further = children_of(first.process.pid)
        assert len(further) == joiners - 1
        assert not any("bootstrap" in words_of(process) for process in further)
        first.process.kill()
        first.process.wait()
        wait_until(lambda: not any(map(alive, further)), "its joiners end")
    with started(*slow) as second:
        wait_for_growth(live, name, second)
        ended = second.stop()
    assert (ended.code, ended.out) == (128 + signal.SIGTERM, "")
    assert any(event["event"] == "backfill_stopped" and "goes on" in event["note"] for event in ended.events)
    with started(*command) as third:
        ended = third.ended()
    assert ended.code == 0, ended.err
    found = ended.json
    assert found["model"]["digest"] == live.digest
    assert (found["model"]["name"], found["model"]["version"]) == (name, live.site.end_tick)
    assert {side: found[side] for side in ("impressions", "clicks")} == balance_of(live.site).to_dict()
    event = json.dumps({"site": "news", "slot": 1})
    file = live.site.folder / "event.jsonl"
    file.write_text(event + "\n", encoding="utf-8")
    again, of_backfill, of_live = run_side_by_side(
        command, ["score", "-c", live.file, "--set", f"model={name}", file], ["score", "-c", live.file, file]
    )
    assert {**again.json, "seconds": 0} == {**found, "seconds": 0}
    assert of_backfill.out == of_live.out and of_backfill.json["version"] == live.site.end_tick


def words_of(process: int) -> str:
    """The command line and the environment of a process, as anybody with its user's rights may read them."""
    return "".join(Path(f"/proc/{process}/{what}").read_bytes().decode() for what in ("cmdline", "environ"))


def test_a_joiner_that_is_killed_is_started_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions of the joiner go on, and the result is that of the live model."""
    monkeypatch.setattr(further_joiners, "AGAIN_S", 0.1)
    plan = make_plan(live.site.config, live.name("killed"), Span(until_ms=live.until_ms), joiners=2, max_rate=RATE // 2)
    killed: list[int] = []

    def kill_one(moment: BackfillStatus) -> None:
        further = [p for p in children_of(os.getpid()) if alive(p) and "backfill.joiners" in words_of(p)]
        if not killed and further and moment.impressions > 300:
            killed.append(further[0])
            os.kill(further[0], signal.SIGKILL)
        elif killed and further and further[0] not in killed:
            killed.append(further[0])

    with Backfill(plan) as work:
        result = work.run(Stopping(), kill_one)
    assert result is not None and result.models[0].model["digest"] == live.digest
    assert len(killed) == 2, "one was killed, another took its place"
    assert not alive(killed[1])
