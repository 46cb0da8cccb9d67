"""Child processes: the messages they get, how they end, and that nobody outside can see the messages."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stream_learner.roles.common.child import ORPHANED, Child
from tests.waiting import wait_until

PROJECT = Path(__file__).resolve().parents[3]
PROGRAM = "tests.roles.common.child_program"
SECRET = "4-secret-that-nobody-sees"

Begin = Callable[..., Child]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts children of `child_program`; none outlives the test."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    with ExitStack() as stack:

        def start(do: str, *, descriptors: tuple[int, ...] = (), **message: Any) -> Child:
            child = Child(PROGRAM, {"do": do, **message}, descriptors=descriptors)
            stack.callback(child.end, 0)
            return child

        yield start


def reports_of(child: Child, count: int) -> list[Any]:
    """The next reports of a child."""
    found: list[Any] = []

    def came() -> bool:
        found.extend(child.reports())
        return len(found) >= count

    wait_until(came, f"{count} reports")
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_message_and_a_report_arrive_whole_and_prints_do_not(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """Also when they are larger than a pipe, and not ASCII; a print of the child goes to stderr."""
    child = begin("echo", text="Über\n\u2028" * 100_000, number=1.5, nothing=None, items=[1, [True]])
    (found,) = reports_of(child, 1)
    assert found == {
        "do": "echo",
        "text": "Über\n\u2028" * 100_000,
        "number": 1.5,
        "nothing": None,
        "items": [1, [True]],
    }
    wait_until(lambda: not child.alive, "its end")
    assert child.exit_code == 0 and child.reports() == []
    out, err = capfd.readouterr()
    assert out == "" and err == "not a report\n"


def test_a_message_is_on_no_command_line_and_in_no_environment(begin: Begin) -> None:
    """What anybody with the user's rights may read of a process has the module's name and no more."""
    child = begin("wait", password=SECRET)
    assert reports_of(child, 1) == ["waits"]
    shown = [Path(f"/proc/{child.pid}/{what}").read_bytes().decode() for what in ("cmdline", "environ")]
    assert shown[0].split("\0") == [sys.executable, "-m", PROGRAM, ""]
    assert SECRET not in "".join(shown)


def test_one_that_is_asked_to_stop_finishes_however_often_it_is_asked(begin: Begin, tmp_path: Path) -> None:
    """A service manager and the parent may both ask; a child ignores the interrupt of a terminal."""
    finish = tmp_path / "finish"
    child = begin("wait", finish_when=str(finish))
    assert reports_of(child, 1) == ["waits"]
    os.kill(child.pid, signal.SIGINT)
    child.ask_to_stop()
    assert reports_of(child, 1) == ["asked"]
    child.ask_to_stop()
    finish.touch()
    assert reports_of(child, 1) == ["finished"]
    wait_until(lambda: not child.alive, "its end")
    assert child.exit_code == 0


def test_an_interrupt_before_it_has_begun_is_nothing_to_it_either(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Python and the libraries are being loaded; the parent goes on hearing its own."""
    monkeypatch.setenv("INTERRUPT_EARLY", "1")
    assert reports_of(begin("interrupt_early"), 1) == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_one_that_does_not_end_is_killed(begin: Begin) -> None:
    """`end` waits no longer than told, and may be called twice."""
    child = begin("ignore")
    assert reports_of(child, 1) == ["waits"]
    child.ask_to_stop()
    child.end(0.1)
    child.end(0.1)
    assert child.exit_code == -signal.SIGKILL


def test_children_end_when_their_parent_is_killed(begin: Begin) -> None:
    """All of them end: no child keeps the pipe of another open."""
    parent = begin("begin_two")
    (pids,) = reports_of(parent, 1)
    assert all(map(alive, pids))
    os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)), "both end")


def test_one_whose_parent_is_gone_before_the_message_ends() -> None:
    """Such a child ends with the code of a process that got SIGTERM."""
    ended = subprocess.run(
        [sys.executable, "-m", PROGRAM], stdin=subprocess.DEVNULL, cwd=PROJECT, check=False, capture_output=True
    )
    assert (ended.returncode, ended.stderr) == (ORPHANED, b"")


def test_one_that_cannot_begin_is_known_by_its_exit_code() -> None:
    """The parent raises no error for a message that nobody takes."""
    child = Child("stream_learner.nowhere", {"text": "x" * 1_000_000})
    wait_until(lambda: not child.alive, "its end")
    assert child.exit_code == 1 and child.reports() == []
    child.end(0)


def test_a_listening_socket_is_handed_over_and_nothing_else(begin: Begin, tmp_path: Path) -> None:
    """The child accepts what comes to it; other open files stay here."""
    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "file").open("w") as file:
        numbers = [listening.fileno(), file.fileno()]
        child = begin("serve", descriptors=(numbers[0],), socket_fd=numbers[0], look_at=numbers)
        assert reports_of(child, 1) == [[True, False]]
        with socket.create_connection(listening.getsockname()) as client:
            assert client.makefile("rb").read() == b"from the child"


@pytest.mark.parametrize("how", ["script", "module"])
def test_the_working_directory_hides_no_library(how: str, tmp_path: Path) -> None:
    """A state directory with a `json.py` in it: as the parent, so the child takes the library, not that file. (Python
    3.10 has no way to say so.) A parent that runs from its sources, `python -m` beside them, has children that do."""
    program = "only_here" if how == "module" else PROGRAM
    begin = f"""
import time
from stream_learner.roles.common.child import Child
child = Child({program!r}, {{"do": "library"}})
while not (found := child.reports()):
    assert child.alive
    time.sleep(0.01)
child.end(10)
print(found[0])
"""
    work = tmp_path / "work"
    work.mkdir()
    if how == "script":
        (work / "json.py").write_text("from decoder import *\n")
        (tmp_path / "begin.py").write_text(begin)
        arguments, search = [str(tmp_path / "begin.py")], str(PROJECT)
    else:
        (work / "begin.py").write_text(begin)
        (work / "only_here.py").symlink_to(PROJECT / "tests" / "roles" / "common" / "child_program.py")
        arguments, search = ["-m", "begin"], str(PROJECT)
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=work,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = how == "module" or sys.version_info >= (3, 11)
    assert (ended.returncode == 0) == expected, ended.stderr
    assert ended.stdout.strip().endswith("json/__init__.py") == expected
