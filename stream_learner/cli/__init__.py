"""The command line: each command reads its options, loads the configuration, calls the work, and shows the result.

`main` opens what is closed, listens for signals, and hands over to `role_commands.run_command`, where the program `app`
and the commands of roles are: `run`, `join`, `learn`, `score`, `serve`, `demo`, `topics`. Every other command is in the
file of its name: `audit_command`, `backfill_command`, `config_commands` and so on, with `alias_commands` for `promote`,
`rollback`, `alias`, `pause`, `resume`, `pin` and `unpin`. The work itself is in `roles`, `operations`, `evaluate` and
`demo`; they are imported inside the function of a command, so that `--help` and a wrong option answer at once.

    groups    the order and the groups of commands in `--help`
    options   options that several commands share, and the configuration they lead to
    output    tables, JSON and errors, for terminals and for scripts
    *_view    live pages and progress bars (rich)

The `*_view` files are apart from their commands for the time of a start: they import rich, which takes longer to load
than most commands need to begin, and only the commands that show something live need it.

The text of a command's docstring is its `--help`.
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
"""The commands whose start a signal ends at once, with exit code 0."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    _open_what_is_closed()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.getpid() == 1:  # in a container the kernel drops signals that the first process has no handler for
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if words and words[0] in STARTERS:
        # Listen for signals before the imports, which take time.
        with starting():
            _run(words)
    else:
        _run(words)


def _open_what_is_closed() -> None:
    """Open standard streams that this process was started without as /dev/null.

    Otherwise the next file or connection would get the number of a standard stream, and output be written into it.
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
    """Import `app` at the first access."""
    if name == "app":
        from stream_learner.cli.role_commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
