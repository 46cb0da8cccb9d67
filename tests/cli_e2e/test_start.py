"""A role that starts: what it answers, what it says while it compiles, and how it is stopped before it has begun.

Brokers are out of reach unless a test needs one: a start that is stopped needs none.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli_e2e.commands import Command, Ended, answer_of, environment
from tests.cli_e2e.scraped import answer
from tests.cli_e2e.world import World, free_port
from tests.waiting import wait_until

NOWHERE = "127.0.0.1:9"
ROLES = ("join", "learn", "serve")
STOPPED = "stopped_while_starting"


@pytest.fixture
def nowhere(tmp_path: Path) -> World:
    """A model whose brokers are out of reach."""
    return World(NOWHERE, tmp_path)


@contextmanager
def starting(
    command: str, world: World, *settings: str, cache: Path | str | None = None, piped: bool = False
) -> Iterator[Command]:
    """A role as a process. cache: where its machine code is kept; None where that of the tests is."""
    port = free_port()
    given = [f"telemetry.http_port={world.port}", "serve.host=127.0.0.1", f"serve.port={port}", *settings]
    words = [sys.executable, "-m", "stream_learner", command, "-c", str(world.file)]
    env = environment() if cache is None else {**environment(), "NUMBA_CACHE_DIR": str(cache)}
    running = Command([*words, *(word for one in given for word in ("--set", one))], env=env, piped=piped)
    try:
        yield running
    finally:
        running.close()


def listens(command: Command) -> bool:
    """Whether the process has a handler for SIGTERM."""
    status = Path(f"/proc/{command.process.pid}/status").read_text(encoding="utf-8")
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def asks_brokers(command: Command) -> bool:
    """Whether the process has threads of a client of Kafka."""
    threads = Path(f"/proc/{command.process.pid}/task").glob("*/comm")
    return any(thread.read_text(encoding="utf-8").startswith("rdk:broker") for thread in threads)


def has_kernels(world: World) -> bool:
    """Whether a joiner or learner lacks something else than its kernels."""
    found = page(world, "/readyz")
    said = ("asks for its training log", "has not joined its group", "has not loaded its state")
    return found is not None and any(reason in found[1] for reason in said)


def said(command: Command | Ended, event: str) -> int:
    """How often it has logged an event."""
    return sum(line["event"] == event for line in command.events)


def page(world: World, path: str) -> tuple[int, str] | None:
    """The role's answer, None while it does not answer."""
    with suppress(OSError):
        return answer(world.port, path)
    return None


def answers(world: World, path: str, status: int) -> bool:
    """Whether a page has this status."""
    found = page(world, path)
    return found is not None and found[0] == status


@pytest.mark.parametrize("role", [*ROLES, "run", "score"])
def test_a_signal_is_heard_from_the_first_moment(role: str, nowhere: World) -> None:
    """Before the configuration is read, and before anything is imported that takes time."""
    with starting(role, nowhere, piped=role == "score") as command:
        wait_until(lambda: listens(command), "it listens to signals")
        ended = command.stop()
    assert (ended.code, said(ended, STOPPED)) == (0, 1), ended.err


@pytest.mark.parametrize("role", ["learn", "serve"])
def test_a_role_that_compiles_answers_and_ends_when_it_is_told_to(role: str, nowhere: World, tmp_path: Path) -> None:
    """Alive, not ready, and one line in the log that says how long it will take; the stop waits for no compiler."""
    with starting(role, nowhere, cache=tmp_path / "cache") as command:
        compiling = command.wait_for("compiling_kernels")
        wait_until(lambda: answers(nowhere, "/healthz", 200), "it says that it is alive")
        status, reason = page(nowhere, "/readyz") or (0, "")
        assert (status == 503 and "starting" in reason) or "kernels" in reason
        ended = command.stop()
    assert compiling["expected_seconds"] > 0 and compiling["parts"]
    assert "it takes longer than expected where others use the processors" in compiling["note"]
    assert (ended.code, said(ended, STOPPED)) == (0, 1), ended.err
    assert said(ended, "compiling_kernels") == 1 and said(ended, "kernels_cannot_be_kept") == 0


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_waits_for_brokers_ends_when_it_is_told_to(role: str, nowhere: World) -> None:
    """With its kernels loaded, which is not worth a word in the log. It does not wait until questions are given up."""
    with starting(role, nowhere) as command:
        if role == "serve":
            command.wait_for("serving")
            wait_until(lambda: asks_brokers(command), "it has a client of Kafka")
        else:
            wait_until(lambda: has_kernels(nowhere), "its kernels are loaded")
        ended = command.stop()
    assert (ended.code, said(ended, STOPPED)) == (0, 1), ended.err
    assert [line for line in ended.events if line["role"] == "kernels"] == []


@pytest.mark.thorough
def test_workers_that_start_are_stopped_with_their_parent(nowhere: World, tmp_path: Path) -> None:
    """They answer while one of them compiles; all end when the parent is told to, and the exit code is 0."""
    with starting("serve", nowhere, "serve.workers=2", cache=tmp_path / "cache") as command:
        command.wait_for("compiling_kernels")
        wait_until(lambda: answers(nowhere, "/healthz", 200), "it says that it is alive")
        assert answers(nowhere, "/readyz", 503)
        assert said(command, "compiling_kernels") == 1  # where that one ends first, the other may begin
        ended = command.stop()
    assert (ended.code, said(ended, STOPPED)) == (0, 1), ended.err


def test_a_role_without_standard_streams_runs_as_others_do(nowhere: World) -> None:
    """Started with all three closed: what it would write goes nowhere, no file or connection of its own has their
    numbers, and it ends with the exit code that it would have had.
    """
    words = [sys.executable, "-m", "stream_learner", "join", "-c", str(nowhere.file)]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words, "--set"]
    with subprocess.Popen([*closed, f"telemetry.http_port={nowhere.port}"], env=environment()) as process:
        wait_until(lambda: has_kernels(nowhere), "its kernels are loaded")
        streams = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in range(3)]
        process.terminate()
        assert (process.wait(), streams) == (0, [Path(os.devnull)] * 3)
    assert subprocess.run([*closed, "join.windw=1s"], env=environment(), check=False).returncode == 10


FIRST_OF_TWO = """
import time
from stream_learner.roles.common import startup
startup.end = lambda: time.sleep(600)
with startup.starting():
    print("listening", flush=True)
    time.sleep(600)
"""


def test_a_second_signal_ends_at_once() -> None:
    """A second signal ends the process even if the log line of the first one hangs."""
    process = subprocess.Popen([sys.executable, "-c", FIRST_OF_TWO], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None and process.stdout.readline() == "listening\n"
        threads = Path(f"/proc/{process.pid}/task")
        before = len(list(threads.iterdir()))
        process.terminate()
        wait_until(lambda: len(list(threads.iterdir())) > before, "the first signal is heard")
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM


COMPILES = """
import time
from stream_learner.core.machine.kernels import MACHINE_CODE

MACHINE_CODE.begin()
assert MACHINE_CODE.take_turn()
print("compiles", flush=True)
time.sleep(600)
"""


@pytest.mark.thorough
def test_a_role_waits_for_another_process_that_compiles(nowhere: World, tmp_path: Path) -> None:
    """It says so; if the other process ends without having compiled everything, it goes on by itself."""
    env = {**environment(), "NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", COMPILES], env=env, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "compiles\n"
        with starting("join", nowhere, cache=tmp_path) as command:
            waiting = command.wait_for("waiting_for_kernels")
            assert said(command, "compiling_kernels") == 0
            other.kill()
            compiling = command.wait_for("compiling_kernels")
            left = compiling["parts"]  # it may have come to the next part before the line is written
            assert left and waiting["parts"][-len(left) :] == left
            ended = command.stop()
    assert (ended.code, said(ended, STOPPED)) == (0, 1), ended.err


def test_a_folder_that_cannot_be_written_is_said_at_the_start(nowhere: World) -> None:
    """In one line of the log, which names the folder and what follows; the role goes on."""
    with starting("learn", nowhere, cache="/dev/null/cache") as command:
        unkept = command.wait_for("kernels_cannot_be_kept")
        ended = command.stop()
    assert ended.code == 0 and said(ended, "kernels_cannot_be_kept") == 1
    assert unkept["level"] == "warning" and unkept["folder"].startswith("/dev/null/cache")
    assert "every start compiles them again" in unkept["note"]


SMALL = """
import sys
from stream_learner.cli import main
from stream_learner.core.parts import HASHING, REQUESTS, ROLES

ROLES["learner"] = (HASHING, REQUESTS)
main(sys.argv[1:])
"""
"""The program with a learner of two parts, which are compiled in seconds."""


@pytest.mark.thorough
def test_kernels_are_compiled_ahead(tmp_path: Path) -> None:
    """On a terminal a line names the part and the time, and is taken away at the end. The second time there is nothing
    to do. That a role needs no other kernels is what `test_kernels_of_roles.py` shows.
    """
    shown = shown_on_terminal("compile", "--role", "learner", cache=tmp_path)
    lines = shown.split("\r")
    wanted = r"the kernels, once: requests \(2 of 2\), \d+ s, in all about \d+ s on an idle machine"
    assert any(re.search(wanted, line) for line in lines), shown
    assert lines[-1] == "\x1b[K" and "compiling_kernels" not in shown
    again = compiled("--role", "learner", "--json", cache=tmp_path)
    done = json.loads(again.stdout)
    assert (done["compiled"], done["parts"], again.stderr) == (0, 2, "")
    assert done["folder"].startswith(str(tmp_path))


@pytest.mark.thorough
def test_compiling_ahead_fails_where_nothing_is_kept() -> None:
    """The exit code is that of a wrong setting, and the message names the folder and the variable."""
    ended = compiled("--role", "learner", cache="/dev/null/cache")
    assert ended.returncode == 10
    assert "/dev/null/cache" in ended.stderr and "NUMBA_CACHE_DIR" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--role", "learner", "--optimizer", "adagard"),
        ("--optimizer", "adagrad"),
        ("--role", "joiner", "--optimizer", "adagrad"),
    ],
    ids=["unknown", "alone", "of a role that folds nothing"],
)
def test_what_cannot_be_compiled_is_refused(arguments: tuple[str, ...]) -> None:
    """An optimizer that there is not, one without a role, and one of a role that would not use it."""
    ended = answer_of("compile", *arguments)
    assert ended.code == 10 and "optimizer" in ended.err


def shown_on_terminal(*arguments: str, cache: Path) -> str:
    """The output of a command whose stderr is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SMALL, *arguments],
        env={**environment(), "NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # a terminal that nobody has open any more ends like this on Linux
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def compiled(*arguments: str, cache: Path | str) -> subprocess.CompletedProcess[str]:
    """`compile`, with its machine code in this folder."""
    return subprocess.run(
        [sys.executable, "-c", SMALL, "compile", *arguments],
        env={**environment(), "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
