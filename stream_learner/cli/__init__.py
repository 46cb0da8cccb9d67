"""The command line.

In: arguments, the environment. Out: results on stdout, logs and errors on stderr, an exit code.
This package must never do a role's work: a command reads options, loads the configuration, calls a role and
shows what comes back. Roles are imported when a command needs them, so that `--help` is quick.
"""

from __future__ import annotations

from stream_learner.cli.main import app, main

__all__ = ["app", "main"]
