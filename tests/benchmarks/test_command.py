"""The command that runs benchmarks: one that fails says why in a line, and the others go on."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from stream_learner.errors import RetryLater

ROW = {"name": "row", "value": 1.0, "unit": "s"}


def test_a_process_that_crashes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its exit code; there are no rows."""
    assert command.measure_apart("none", quick=True) == ([], "its process ended with 2")


def test_what_is_not_done_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is ended."""
    monkeypatch.setattr(command, "PATIENCE_S", 0.01)
    assert command.measure_apart("machine", quick=True) == ([], "not done after 0.01 s")


def test_several_run_apart_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of those that could be measured, and the reason of the one that could not."""
    asked = []

    def apart(wanted: str, quick: bool) -> tuple[list[dict[str, Any]], str]:
        asked.append((wanted, quick))
        return ([], "no broker") if wanted == "join" else ([{"benchmark": wanted, **ROW}], "")

    monkeypatch.setattr(command, "measure_apart", apart)
    monkeypatch.setattr("sys.argv", ["bench", "decode", "join", "machine", "--quick", "--json"])
    assert command.main() == 1
    printed = json.loads(capsys.readouterr().out)
    assert asked == [("decode", True), ("join", True), ("machine", True)]
    assert [row["benchmark"] for row in printed["rows"]] == ["decode", "machine"]
    assert printed["failed"] == {"join": "no broker"}


@pytest.mark.parametrize(("refusals", "rows", "failure"), [(1, 1, ""), (2, 0, "RetryLater: not yet, twice")])
def test_what_may_succeed_later_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, refusals: int, rows: int, failure: str
) -> None:
    """And then it has failed, with its reason in one line."""
    left = [refusals]

    def run(quick: bool) -> list[dict[str, Any]]:
        left[0] -= 1
        if left[0] >= 0:
            raise RetryLater("not yet,\ntwice")
        return [ROW]

    monkeypatch.setattr("benchmarks.bench_machine.run", run)
    found, why = command.measure("machine", True, Console(file=io.StringIO()))
    assert (len(found), why) == (rows, failure)
