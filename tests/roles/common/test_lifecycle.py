"""The frame of every role: its order, how it stops, and what an error leaves."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from stream_learner.roles.common import lifecycle
from stream_learner.roles.common.lifecycle import Heartbeat, Stopping, all_alive, run_role, run_roles
from tests.cli_e2e.world import free_port

WAITS = """
import sys, time
from stream_learner.roles.common.lifecycle import Stopping
stopping = Stopping().listen()
print("listening", flush=True)
while not stopping.wait(0.05):
    pass
print("stopping", stopping.signal, flush=True)
if sys.argv[1] == "hangs":
    time.sleep(60)
"""


class Steps:
    """A role that notes its steps, fails at one of them, and can stop after some turns."""

    def __init__(self, fails_at: str = "", stopping: Stopping | None = None, turns: int = 3) -> None:
        self.steps: list[str] = []
        self._fails_at = fails_at
        self._stopping = stopping
        self._turns = turns

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self._fails_at:
            raise ArithmeticError(name)

    def open(self) -> Steps:
        self._step("open")
        return self

    def turn(self) -> bool:
        self._step("turn")
        if self._stopping is not None and self.steps.count("turn") == self._turns:
            self._stopping.set()
        return False

    def finish(self) -> None:
        self._step("finish")

    def close(self) -> None:
        self._step("close")


def test_a_role_is_opened_turned_finished_and_closed() -> None:
    """In this order, with as many turns as it takes."""
    stopping = Stopping()
    role = Steps(stopping=stopping)
    run_role(role, stopping)
    assert role.steps == ["open", "turn", "turn", "turn", "finish", "close"]


@pytest.mark.parametrize(
    ("step", "steps"),
    [
        ("open", ["open"]),
        ("turn", ["open", "turn", "close"]),
        ("finish", ["open", "turn", "finish", "close"]),
    ],
)
def test_an_error_is_passed_on_after_the_close(step: str, steps: list[str]) -> None:
    """After an error the role is not finished, but closed, if it was open."""
    stopping = Stopping()
    role = Steps(fails_at=step, stopping=stopping, turns=1)
    with pytest.raises(ArithmeticError, match=step):
        run_role(role, stopping)
    assert role.steps == steps


def test_a_role_told_to_stop_before_it_is_open_does_not_turn() -> None:
    """Such a role is opened, finished and closed all the same."""
    stopping = Stopping()
    stopping.set()
    role = Steps()
    run_role(role, stopping)
    assert role.steps == ["open", "finish", "close"]


def test_the_first_error_stops_all_roles() -> None:
    """The others finish; the error of the first is raised."""
    stopping = Stopping()
    healthy, failing = Steps(), Steps(fails_at="turn")
    with pytest.raises(ArithmeticError):
        run_roles([healthy, failing], stopping)
    assert stopping.is_set()
    assert healthy.steps[0] == "open" and healthy.steps[-2:] == ["finish", "close"]
    assert failing.steps == ["open", "turn", "close"]


def test_roles_run_side_by_side_each_with_its_heartbeat() -> None:
    """Every role has a thread of its own and beats its own heart."""
    stopping = Stopping()
    beats = [Heartbeat(), Heartbeat()]
    roles = [Steps(stopping=stopping, turns=5), Steps()]
    before = threading.active_count()
    run_roles(roles, stopping, beats)
    assert threading.active_count() == before
    assert all(role.steps.count("turn") >= 1 for role in roles)
    assert all(beat.alive() for beat in beats)


def test_a_heart_that_stopped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alive before the first beat, and for the limit after the last."""
    now_s = 1_000.0
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=lambda: now_s))
    heartbeat = Heartbeat(limit_s=60.0)
    now_s += 61.0
    assert heartbeat.alive()
    heartbeat.beat()
    now_s += 59.0
    assert heartbeat.alive()
    now_s += 2.0
    assert not heartbeat.alive()
    heartbeat.beat()
    assert heartbeat.alive()


def waiting(how: str) -> subprocess.Popen[str]:
    """A process that waits for a signal, and then ends or hangs."""
    process = subprocess.Popen([sys.executable, "-c", WAITS, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "listening\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    """After one signal the process goes on to its end; after two it is gone with the signal's exit code."""
    with waiting("ends") as asked, waiting("hangs") as ended:
        for process in (asked, ended):
            process.send_signal(number)
            assert process.stdout is not None and process.stdout.readline() == f"stopping {int(number)}\n"
        assert asked.wait(10) == 0
        ended.send_signal(number)
        assert ended.wait(10) == 128 + number


SLOW = """
import sys, time
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.roles.common.lifecycle import Stopping, run_roles

class Slow:
    def step(self, name):
        print(name, flush=True)
        if name == sys.argv[1]:
            time.sleep(600)

    def open(self): self.step("open"); return self
    def turn(self): self.step("turn"); time.sleep(0.01)
    def finish(self): self.step("finish")
    def close(self): self.step("close")

configure_logging(log_format="json")
run_roles([Slow()], Stopping().listen(float(sys.argv[2])))
"""


@pytest.mark.parametrize(
    ("slow", "timeout_s", "code", "word"),
    [
        ("open", 600, 0, "stopped_while_starting"),
        ("finish", 0.2, 128 + signal.SIGTERM, "shutdown_timeout_exceeded"),
        ("close", 0.2, 128 + signal.SIGTERM, "shutdown_timeout_exceeded"),
    ],
)
def test_a_process_that_is_told_to_stop_ends_whatever_its_role_does(
    slow: str, timeout_s: float, code: int, word: str
) -> None:
    """While a role starts there is nothing to keep; afterwards it has as long as it is given. It is said, once."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, slow, str(timeout_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    awaited = "open" if slow == "open" else "turn"
    while process.stdout.readline().strip() != awaited:
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == code
    assert process.stderr.read().count(word) == 1


OPENS = """
import sys
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.roles.common.lifecycle import Stopping, run_roles

class Opens:
    def open(self):
        print("open", flush=True)
        stopping.wait(600)
        return self

    def turn(self): raise AssertionError("it was told to stop")
    def finish(self): pass
    def close(self): pass

configure_logging(log_format="json")
stopping = Stopping().listen()
run_roles([Opens()], stopping)
"""


def test_a_role_that_was_told_to_stop_while_it_opened_says_so() -> None:
    """It says so even if it has opened by then and ends in good order."""
    process = subprocess.Popen([sys.executable, "-c", OPENS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert (process.returncode, err.count("stopped_while_starting")) == (0, 1), err


SERVES = """
import sys, time
from stream_learner.config import load_config
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.roles.scorer.serve import workers

class Hangs:
    def __init__(self, config, listening, stopping, *, wait):
        self.stopping = stopping

    def run(self, address, token):
        print("serving", flush=True)
        self.stopping.wait(600)
        time.sleep(600)

workers.ServingProcess, workers.CLOSE_S = Hangs, 0.1
configure_logging(log_format="json")
workers.serve(load_config(sys.argv[1]))
"""
SERVED = """
model: hangs
kafka: {bootstrap.servers: "127.0.0.1:9"}
input: {impressions: {topic: impressions}, clicks: {topic: clicks}}
serve: {port: PORT, drain: 100ms, request_timeout: 100ms}
"""


def test_a_server_that_is_told_to_stop_ends_whatever_it_waits_for(tmp_path: Path) -> None:
    """After the drain and the longest request, and a while to close; it is said, once."""
    file = tmp_path / "served.yaml"
    file.write_text(SERVED.replace("PORT", str(free_port())), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVES, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "serving\n", process.stderr.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM
    assert process.stderr.read().count("shutdown_timeout_exceeded") == 1


class Circle:
    """Holds itself."""

    def __init__(self) -> None:
        self.itself = self


class MakesObjects(Steps):
    """A role that takes batches of objects and leaves a circle in each turn, until the first circle is found."""

    BATCH = 2_000

    def __init__(self, stopping: Stopping) -> None:
        super().__init__(stopping=stopping)
        self.turns = 0
        self._first = weakref.ref(Circle())

    def turn(self) -> bool:
        self.turns += 1
        for _ in range(3):
            [[i] for i in range(self.BATCH)]
        Circle()
        if self._first() is None or self.turns > 100_000:
            assert self._stopping is not None
            self._stopping.set()
        return True


def test_batches_of_objects_start_no_search_for_garbage_and_circles_are_found() -> None:
    """With Python's own threshold there is a search in every turn; afterwards all is as it was before."""
    before, searches = gc.get_threshold(), []
    stopping = Stopping()
    role = MakesObjects(stopping)

    def note(phase: str, _info: dict[str, int]) -> None:
        searches.extend([role.turns] if phase == "start" else [])

    gc.callbacks.append(note)
    try:
        run_roles([role], stopping)
    finally:
        gc.callbacks.remove(note)
    assert 100 < role.turns <= 100_000
    assert len(searches) < role.turns / 100
    assert gc.get_threshold() == before


def test_one_loop_that_hangs_is_enough() -> None:
    """A process is restarted for it, though its other loops turn, and those that have not begun are waited for."""
    turns, hangs, begins = Heartbeat(60.0), Heartbeat(0.0), Heartbeat(0.0)
    turns.beat()
    hangs.beat()
    assert all_alive([turns, begins]) == (True, "ok")
    assert all_alive([turns, hangs, begins]) == (False, "a loop has not turned for a minute")
    assert all_alive([]) == (True, "ok")
