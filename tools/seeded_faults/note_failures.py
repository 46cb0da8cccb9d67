"""A plugin of pytest that notes which tests fail: a line of JSON each, in the file that `SEEDED_FAULTS_NOTES` names.

It is copied to where the copied tree finds it, and so imports nothing of ours.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that failed."""
    if report.failed:
        _note(report.nodeid, report.longreprtext)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be collected."""
    if report.failed:
        _note(report.nodeid, report.longreprtext)


def _note(test: str, text: str) -> None:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    with Path(os.environ["SEEDED_FAULTS_NOTES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "said": errors[0] if errors else ""}) + "\n")
