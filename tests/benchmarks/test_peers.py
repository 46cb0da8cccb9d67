"""The peers are measured on the same work: their traffic, what is right about it, what is said of who cannot run."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.bench_peers import measured, run, wrong_losses
from benchmarks.brokers import Brokers, Figures
from benchmarks.peers import maven
from benchmarks.peers.by_hand import Join
from benchmarks.peers.maven import ToolMissing, java_command
from benchmarks.peers.programs import PROGRAMS, Inputs, Program, World, by_hand, check
from benchmarks.peers.traffic import END, PARTITIONS, WINDOW_MS, Traffic, traffic
from benchmarks.rows import Incomplete
from tests.kafka_broker.broker import delete_topics
from tests.kafka_broker.jars import HERE as BROKER

COUNT = 3_000
DATA = traffic(COUNT)
Measure = Callable[[Any], Figures]


@dataclass
class Record:
    """A record of Kafka as a program reads it."""

    at: tuple[int, bytes, bytes, int]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at[0]

    def key(self) -> bytes:
        return self.at[1]

    def value(self) -> bytes:
        return self.at[2]

    def partition(self) -> int:
        return self.at[3]


def clicked_in_time(data: Traffic) -> set[bytes]:
    """The ids that have a click in the window: every click held against every impression of its id."""
    shown = {key: time_ms for time_ms, key, *_ in data.impressions}
    return {key for time_ms, key, *_ in data.clicks if 0 <= time_ms - shown[key] <= WINDOW_MS}


def test_the_oracle_counts_the_clicks_in_time() -> None:
    """About nine of ten clicks on 2 %: some come too late, and some may not be counted."""
    assert DATA.positives == len(clicked_in_time(DATA)) < len(DATA.clicks)
    assert 0.01 < DATA.positives / COUNT < 0.03


def test_records_come_by_time_keyed_by_their_ids() -> None:
    """In both topics; a click goes where its impression is."""
    places = {key: partition for _, key, _, partition in DATA.impressions}
    assert len(places) == COUNT
    for records in (DATA.impressions, DATA.clicks):
        times = [record[0] for record in records]
        assert times == sorted(times)
        assert all(value.startswith(b'{"id":"' + key + b'"') for _, key, value, _ in records)
    assert all(places[key] == partition for _, key, _, partition in DATA.clicks)


@pytest.mark.parametrize("ahead", [1, 50, 100_000])
def test_the_join_by_hand_labels_as_the_oracle(ahead: int) -> None:
    """Whatever number of clicks is read at once; every impression comes out once."""
    join, out = Join(), []
    clicks = iter(DATA.clicks)
    ends = [(10**15, END + b"0", b"", partition) for partition in range(PARTITIONS)]
    for record in [*DATA.impressions, *ends]:
        join.impression(Record(record))  # type: ignore[arg-type]
        while min(join.clicks_ms) < min(join.impressions_ms):
            for _ in range(ahead):
                click = next(clicks, None)
                if click is None:
                    join.clicks_ms = [10**15] * PARTITIONS
                    break
                join.click(Record(click))  # type: ignore[arg-type]
        out += list(join.closed())
    ids = [value.split(b'"')[3] for value, _ in out]
    assert sorted(ids) == sorted(key for _, key, *_ in DATA.impressions)
    assert {id_ for id_, (_, clicked) in zip(ids, out, strict=True) if clicked} == clicked_in_time(DATA)


@pytest.mark.parametrize("wrong", [{"examples": COUNT - 1}, {"positives": DATA.positives + 1}, {"positives": 0}])
def test_a_wrong_result_is_no_figure(wrong: dict[str, int]) -> None:
    """One example or one positive off is enough."""
    right = {"examples": COUNT, "positives": DATA.positives}
    assert check(right, DATA) is right
    with pytest.raises(RuntimeError, match="wrong result"):
        check({**right, **wrong}, DATA)


def a_program(name: str, does: str, measure: Measure) -> Program:
    return Program(name, does, "settings", "", measure)


def gives(cpu_seconds: float, log_loss: float = 0.1) -> Measure:
    return lambda world: {"cpu_seconds": cpu_seconds, "seconds": 1.0, "log_loss": log_loss}


def lacks(world: Any) -> Figures:
    raise ToolMissing("needs Maven")


def breaks(world: Any) -> Figures:
    raise RuntimeError("ended with 1:\n  no heap\n" + "at Loop.java\n" * 1000)


WORLD: Any = SimpleNamespace(whole=SimpleNamespace(data=DATA))


def test_who_cannot_run_is_said_and_has_no_row() -> None:
    """Neither a figure nor a ratio; the others have theirs."""
    chosen = [
        a_program("stream-learner", "whole loop", gives(0.03)),
        a_program("flink", "whole loop", lacks),
        a_program("python-vw", "whole loop", gives(0.06)),
        a_program("python-river", "whole loop", breaks),
    ]
    with pytest.raises(
        Incomplete, match="flink left out: needs Maven; python-river left out: ended with 1: no heap"
    ) as error:
        measured(WORLD, chosen)
    assert len(str(error.value)) < 600 and "\n" not in str(error.value)
    found = {row["name"]: row["value"] for row in error.value.rows}
    assert found == pytest.approx(
        {"whole loop: stream-learner": 10.0, "whole loop: python-vw": 20.0, "times_python-vw": 2.0}
    )


def test_nothing_is_compared_with_what_was_not_measured() -> None:
    """Without this project's figure there are no ratios."""
    with pytest.raises(Incomplete, match="stream-learner left out") as error:
        measured(WORLD, [a_program("stream-learner", "whole loop", lacks), a_program("b", "whole loop", gives(1))])
    assert [row["name"] for row in error.value.rows] == ["whole loop: b"]


def test_a_model_that_learned_something_else_is_said() -> None:
    """Losses a few parts in a hundred apart; those of a join alone are not asked for."""
    found = {"stream-learner": {"log_loss": 0.1}, "a": {"log_loss": 0.102}, "b": {"log_loss": 0.11}, "c": {}}
    assert wrong_losses(found) == {"b": "learned something else: log-loss 0.1100, not 0.1000"}


def test_the_median_of_several_runs_counts() -> None:
    """Neither the fastest nor the slowest, and none if the result of one of them is wrong."""
    times = iter([3.0, 1.0, 2.0])
    program = Program("a", "join", "settings", "", lambda world: {"cpu_seconds": next(times)}, 3)
    assert program.figures(WORLD)["cpu_seconds"] == 2.0
    results = iter([COUNT, COUNT - 1, COUNT])
    program = Program("a", "join", "settings", "", lambda world: {"cpu_seconds": 1.0, "examples": next(results)}, 3)
    with pytest.raises(RuntimeError, match="wrong result"):
        program.figures(WORLD)


def test_a_program_that_learned_something_else_has_no_row() -> None:
    """It may have done less work."""
    chosen = [
        a_program("stream-learner", "whole loop", gives(1.0)),
        a_program("flink", "whole loop", gives(0.5, log_loss=0.3)),
    ]
    with pytest.raises(Incomplete, match="flink left out: learned something else") as error:
        measured(WORLD, chosen)
    assert [row["name"] for row in error.value.rows] == ["whole loop: stream-learner"]


def test_the_command_ends_with_an_error_if_a_peer_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows that there are are shown, the reason in one line."""

    def some(quick: bool, only: list[str]) -> list[dict[str, Any]]:
        assert only == ["flink", "python-vw"]
        raise Incomplete([{"name": "row", "value": 1.0, "unit": "s"}], "flink left out: needs Maven")

    monkeypatch.setattr("benchmarks.bench_peers.run", some)
    monkeypatch.setattr("sys.argv", ["bench", "peers:flink,python-vw"])
    assert command.main() == 1
    shown = capsys.readouterr()
    assert "row" in shown.out
    assert "failed: flink left out: needs Maven" in shown.err


def test_a_program_that_is_none_is_refused() -> None:
    """Before anything is started, with the names there are."""
    with pytest.raises(ValueError, match="no such program: flunk; there are stream-learner-join, kafka-streams"):
        run(quick=True, only=["flunk"])


def test_tools_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java or Maven for the ones, a package for the others."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolMissing, match="needs a JDK"):
        java_command("flink", "Loop", Path())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolMissing, match="needs the package river"):
        by_hand("river", "river")(WORLD)


def test_versions_in_java_are_pinned_and_said() -> None:
    """Each dependency and plugin has a version; a program's settings name that of its library; one Kafka for all."""
    for name, library in (("kafka-streams", "kafka"), ("flink", "flink")):
        pom = (maven.HERE / name / "pom.xml").read_text(encoding="utf-8")
        assert pom.count("<version>") == pom.count("<artifactId>")
        version = pom.split(f"<{library}.version>")[1].split("<")[0]
        settings = next(program.settings for program in PROGRAMS if program.name == name)
        assert settings.startswith((f"{version} ", f"{version},"))
    broker = (BROKER / "pom.xml").read_text(encoding="utf-8")
    kafka = (maven.HERE / "kafka-streams" / "pom.xml").read_text(encoding="utf-8")
    assert kafka.split("<kafka.version>")[1].split("<")[0] == broker.split("<kafka.version>")[1].split("<")[0]


def test_python_with_vowpal_wabbit_does_all_of_the_work_on_a_real_kafka(kafka: str, tmp_path: Path) -> None:
    """Every impression is learned once with its label; the loss is that of clicks on so few."""
    inputs = Inputs(kafka, DATA)
    try:
        figures = by_hand("vowpalwabbit", "vowpal-wabbit")(World(tmp_path, inputs, inputs, Brokers(kafka)))
    finally:
        delete_topics(kafka, inputs.inputs)
    assert check(figures, DATA) is figures
    assert figures["examples"] == COUNT and figures["positives"] == DATA.positives
    assert 0.05 < figures["log_loss"] < 0.2
    assert figures["cpu_seconds"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["kafka-streams", "flink"])
def test_programs_in_java_do_all_of_the_work_on_a_real_kafka(name: str, kafka: str, tmp_path: Path) -> None:
    """Built with Maven; every impression comes out once, with its label."""
    (program,) = [one for one in PROGRAMS if one.name == name]
    warm = Inputs(kafka, traffic(COUNT // 3))
    inputs = Inputs(kafka, DATA)
    try:
        figures = program.measure(World(tmp_path, inputs, warm, Brokers(kafka)))
    finally:
        delete_topics(kafka, [*inputs.inputs, *warm.inputs])
    assert (figures["examples"], figures["positives"]) == (COUNT, DATA.positives)
    assert 0.05 < figures.get("log_loss", 0.1) < 0.2
