"""Benchmarks that need brokers: what is added to their figures, and what is no figure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import bench_partitions
from benchmarks.bench_joiners import together
from benchmarks.bench_loop import row
from benchmarks.brokers import TIME, Brokers, processor_s


def busy_for(seconds: float) -> None:
    until_s = processor_s(os.getpid()) + seconds
    while processor_s(os.getpid()) < until_s:
        pass


def test_the_brokers_time_is_that_of_their_processes_meanwhile() -> None:
    """Here this process stands for a broker."""

    def measured() -> dict[str, float]:
        busy_for(0.2)
        return {"seconds": 1.0}

    found = Brokers("", (os.getpid(),)).beside(measured)
    assert found.pop(TIME) == pytest.approx(0.2, abs=0.15)
    assert found == {"seconds": 1.0}


def test_nobody_asks_for_the_time_of_brokers_elsewhere() -> None:
    """The figures are as they were."""
    assert Brokers("somewhere:9092").beside(lambda: {"seconds": 1.0}) == {"seconds": 1.0}


def test_a_row_says_what_is_known() -> None:
    """The brokers' time and the instructions, where there are any."""
    figures = {"seconds": 2.0, "cpu_seconds": 3.0}
    assert row("a", 1000, figures)["note"] == "1000 impressions in 2.0 s, 3000000 ns of CPU each"
    more = row("a", 1000, {**figures, TIME: 1.0, "instructions": 5e6})["note"]
    assert more.endswith("3000000 ns of CPU each, 1000000 ns of the brokers', 5,000 instructions")


def joiner(partitions: int, began_at: float, ended_at: float) -> dict[str, float]:
    return {"partitions": partitions, "began_at": began_at, "ended_at": ended_at, "cpu_seconds": 1.5, "seconds": 9.0}


def test_joiners_together_take_from_the_first_beginning_to_the_last_end() -> None:
    """Their processor times add up."""
    assert together([joiner(2, 10.0, 13.0), joiner(2, 11.0, 14.0)]) == {"seconds": 4.0, "cpu_seconds": 3.0}


def test_joiners_that_did_not_share_evenly_are_no_figure() -> None:
    """One of them had begun with the partitions of the other."""
    with pytest.raises(RuntimeError, match=r"the joiners had \[3, 1\] partitions"):
        together([joiner(3, 10.0, 13.0), joiner(1, 11.0, 14.0)])


def test_partitions_that_a_machine_cannot_hold_are_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other sizes have their rows; one line says why."""

    def rows(those: Brokers, folder: Path, partitions: int, count: int, more: str) -> list[dict[str, object]]:
        if partitions == 256:
            raise RuntimeError("join ended with 1:\nno memory")
        return [{"name": f"join, {partitions} partitions{more}: threads", "value": 1.0, "unit": ""}]

    monkeypatch.setenv("KAFKA_BOOTSTRAP", "nobody asks it")
    monkeypatch.setattr(bench_partitions, "_rows", rows)
    monkeypatch.setattr(bench_partitions, "_measure", lambda *_: {})
    monkeypatch.setattr(bench_partitions, "Site", lambda *_: None)
    found = bench_partitions.run(quick=False)
    assert [row["name"] for row in found[:2]] == ["join, 1 partitions: threads", "join, 4 partitions: threads"]
    assert found[-1] == {
        "name": "256 partitions, left out",
        "value": 0.0,
        "unit": "",
        "note": "join ended with 1: no memory",
    }
