"""What the children of `test_child.py` do. It must never run without its parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from stream_learner.roles.common.child import Child, Parent
from tests.waiting import wait_until


def echo(parent: Parent) -> None:
    """Send back what was said, beside other output."""
    sys.stdout.write("not a report\n")
    sys.stdout.flush()
    parent.report(parent.message)


def serve(parent: Parent) -> None:
    """Answer one connection on the socket given, and say which of two open files it has."""
    with socket.socket(fileno=parent.message["socket_fd"]) as listening:
        parent.report([os.path.exists(f"/proc/self/fd/{n}") for n in parent.message["look_at"]])  # noqa: PTH110
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"from the child")


def wait(parent: Parent) -> None:
    """Go on until asked to stop; finish something then, which takes until there is the file that the parent names."""
    parent.report("waits")
    while not parent.stopping.wait(60):
        pass
    parent.report("asked")
    wait_until(lambda: Path(parent.message["finish_when"]).exists(), "the file")
    parent.report("finished")


def ignore(parent: Parent) -> None:
    """Never end."""
    parent.report("waits")
    threading.Event().wait()


def begin_two(parent: Parent) -> None:
    """Start two children, one after the other, and stay until killed."""
    children = [Child("tests.roles.common.child_program", {"do": "ignore"}) for _ in range(2)]
    parent.report([child.pid for child in children])
    threading.Event().wait()


def interrupt_early(parent: Parent) -> None:
    """Be alive after the ^C that came before `meet`."""
    parent.report(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)


def library(parent: Parent) -> None:
    """The path of a library."""
    parent.report(json.__file__)


def main() -> None:
    """Meet the parent and do what it says."""
    if os.environ.get("INTERRUPT_EARLY"):
        os.kill(os.getpid(), signal.SIGINT)
    parent = Parent.meet()
    parent.when_gone(lambda: None)
    do: dict[str, Any] = {f.__name__: f for f in (echo, serve, wait, ignore, begin_two, interrupt_early, library)}
    do[parent.message["do"]](parent)


if __name__ == "__main__":
    main()
