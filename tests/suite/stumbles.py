"""Tells a failure from a stumble.

A test that failed in the run and passed alone is unstable.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MOST_UNSTABLE = 3
"""So many unstable tests do not fail a run."""
LINES = 20
"""How much of the first failure and of its log is printed, each; all of it is kept in the file."""
LINE_CHARACTERS = 300
CRASHED = "???"
"""The words of pytest-xdist about a test that took its process with it."""


@dataclass(frozen=True)
class Failure:
    """A test that failed: `when` it was set up, called, torn down or collected, by which error, and what was logged."""

    id: str
    when: str
    error: str
    log: str = ""

    @property
    def is_a_test(self) -> bool:
        """Whether it can be run again by its name."""
        return self.when != "collect" and "::" in self.id


@dataclass(frozen=True)
class Verdict:
    """The tests that failed twice, and those that failed once."""

    failed: list[Failure]
    unstable: list[Failure]

    @property
    def passed(self) -> bool:
        """Whether the run counts as passed."""
        return not self.failed and len(self.unstable) <= MOST_UNSTABLE


def classify(first: Sequence[Failure], passed: Collection[str]) -> Verdict:
    """The verdict on `first`, of which these passed when they were run once more; all others have failed."""
    failed = [failure for failure in first if failure.id not in passed]
    return Verdict(failed, [failure for failure in first if failure.id in passed])


def note(unstable: Sequence[Failure], file: Path) -> None:
    """Append the unstable tests to the list that is kept, a line of JSON each."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    with file.open("a", encoding="utf-8") as lines:
        for failure in unstable:
            lines.write(json.dumps({"at": now, **asdict(failure)}) + "\n")


def report(verdict: Verdict) -> str:
    """The summary at the end: each unstable test with its first failure, each failure by name, the sum."""
    parts: list[str] = []
    for failure in verdict.unstable:
        shown = [line for text in (failure.error, failure.log) for line in text.splitlines()[-LINES:]]
        how = "its process ended" if failure.when == CRASHED else f"failed at {failure.when}"
        parts.append(f"UNSTABLE {failure.id} ({how}, passed alone)")
        parts += [f"    {line[:LINE_CHARACTERS]}" for line in shown]
    parts += [f"FAILED {failure.id} (twice)" for failure in verdict.failed]
    summary = f"{len(verdict.failed)} failed twice, {len(verdict.unstable)} unstable"
    if len(verdict.unstable) > MOST_UNSTABLE:
        summary += f", which is more than {MOST_UNSTABLE}: the run counts as failed"
    return "\n".join([*parts, f"== {summary}"])
