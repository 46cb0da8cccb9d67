"""Runs a child process of a test; if a signal ends it, the test fails with the stacks of the child's threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.waiting import patience


def run_python(code: str, *arguments: str, patience_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run `python -c code arguments` to its end, with the faulthandler on."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(patience_s),
    )
    assert done.returncode >= 0, f"ended by {signal.Signals(-done.returncode).name}:\n{done.stderr}"
    return done
