"""The command line.

In: arguments, the environment. Out: results on stdout, logs and errors on stderr, an exit code.
This package must never do a role's work: a command reads options, loads the configuration, calls a role and
shows what comes back. Roles are imported when a command needs them, so that `--help` is quick.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stream_learner.roles.common.startup import starting

if TYPE_CHECKING:
    from stream_learner.cli.role_commands import app

__all__ = ["app", "main"]

STARTERS = frozenset({"run", "join", "learn", "score", "serve"})
"""The commands of which a signal ends the start at once, with exit code 0."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    _open_what_is_closed()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.getpid() == 1:  # in a container, where the kernel keeps from the first process what it does not listen to
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if words and words[0] in STARTERS:
        # A signal is heard before what takes time is imported.
        with starting():
            _run(words)
    else:
        _run(words)


def _open_what_is_closed() -> None:
    """Let standard streams that this process was started without lead nowhere.

    Else the next file or connection would get the number of one, and what is meant for it be written there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode))


def _run(words: list[str]) -> None:
    from stream_learner.cli.role_commands import run_command

    run_command(words)


def __getattr__(name: str) -> Any:
    """`app`, imported when it is first asked for."""
    if name == "app":
        from stream_learner.cli.role_commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
