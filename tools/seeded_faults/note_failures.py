"""A plugin of pytest that notes which tests fail: a line of JSON each, in the file that `SEEDED_FAULTS_NOTES` names.

It is copied to where the copied tree finds it, and so imports nothing of ours. It ends the process when pytest has
ended: what a fault has broken may have left threads that never end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

_SESSION = pytest.StashKey[pytest.Session]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that failed."""
    if report.failed:
        _note(report.nodeid, report.longreprtext)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be collected."""
    if report.failed:
        _note(report.nodeid, report.longreprtext)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember the run, whose exit code may still change."""
    session.config.stash[_SESSION] = session


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process, where there was a run."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))


def _note(test: str, text: str) -> None:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    with Path(os.environ["SEEDED_FAULTS_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "said": errors[0] if errors else ""}) + "\n")
