"""Processes as the suite sees them: what counts as a kill, what their logs and open files say."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proofs.chaos.process import Process
from tests.waiting import patience, wait_until

SAYS = """
import json, pathlib, sys, time
lock = open(sys.argv[1], "w")
print(json.dumps({"event": "started"}), flush=True)
print("not json", flush=True)
sys.stdout.write('{"event": "cut o')
sys.stdout.flush()
time.sleep(600)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """One that says something and then waits."""
    made = Process([sys.executable, "-c", SAYS, str(tmp_path / "LOCK")], tmp_path / "log")
    yield made
    made.kill()


def test_a_kill_counts_once_and_only_for_a_process_that_lived(process: Process, tmp_path: Path) -> None:
    """Not for one that has ended by itself."""
    assert process.alive and process.kill() and not process.alive
    assert process.exit_code == -signal.SIGKILL
    assert not process.kill()
    ended = Process([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "ended")
    wait_until(lambda: not ended.alive, "it has ended")
    assert not ended.kill() and ended.exit_code == 3


def test_events_are_read_from_whole_lines(process: Process) -> None:
    """What is not JSON, and a line that is not whole yet, are none."""
    wait_until(lambda: process.seen_s("started") is not None and "cut o" in process.log, "it has started")
    assert process.seen_s("cut o") is None
    assert "not json" in process.last_lines()


def test_open_files_tell_that_a_state_is_being_loaded(process: Process) -> None:
    """By the end of their names; none when it is gone."""
    wait_until(lambda: process.has_open("/LOCK"), "the file is open")
    assert not process.has_open("/OTHER")
    process.kill()
    assert not process.has_open("/LOCK")


def test_a_process_that_hangs_can_be_told_to_stop(process: Process) -> None:
    """A process that was paused with SIGSTOP is woken before it is told to stop."""
    wait_until(lambda: process.seen_s("started") is not None, "it has started")
    process.signal(signal.SIGSTOP)
    process.tell_to_stop()
    assert process.wait(patience()) == -signal.SIGTERM
