"""The result of an audit: checks and findings are counted, the first findings listed.

A check that could not be made must never pass as one that holds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

ORDER: Final = "order"
CHECKSUMS: Final = "checksums"
COUNTS: Final = "counts"
BALANCE: Final = "balance"
POSITIVES: Final = "positives"
POSITIONS: Final = "positions"
RESUME_POINTS: Final = "resume_points"
COMMITTED: Final = "committed"
DEAD_LETTERS: Final = "dead_letters"
SNAPSHOTS: Final = "snapshots"
COPIED_CHECKPOINT: Final = "copied_checkpoint"
EXAMPLES_AGAIN: Final = "examples_again"
DIGESTS_AGAIN: Final = "digests_again"

MEANINGS: Final = {
    ORDER: "every tick follows the one before, accepted once by rule R",
    CHECKSUMS: "every record is ours and whole, keys distinct",
    COUNTS: "marks count what their records hold",
    BALANCE: "what was read is what became of it, to the record",
    POSITIVES: "examples with a click against clicks with an example",
    POSITIONS: "positions in the inputs never go back, nor beyond an end",
    RESUME_POINTS: "resume points are of these topics and settings",
    COMMITTED: "the group's offsets are not ahead of the marks",
    DEAD_LETTERS: "every dead record that is counted has its letter",
    SNAPSHOTS: "every shard is whole, with the same version and digest",
    COPIED_CHECKPOINT: "the last copy of the learner's state is whole, at a tick of this log",
    EXAMPLES_AGAIN: "the inputs give the same examples, byte for byte",
    DIGESTS_AGAIN: "the log gives the digest of every version",
}
"""The meaning of each check, in the order of the report."""
ONLY_REPLAYED: Final = (EXAMPLES_AGAIN, DIGESTS_AGAIN)

HOLDS, FAILS, NOT_CHECKED, NOT_ASKED = "holds", "fails", "not checked", "not asked"


@dataclass(frozen=True)
class Finding:
    """Something that does not hold, and its place; partition, offset and tick are None if it has none."""

    check: str
    what: str
    topic: str
    partition: int | None = None
    offset: int | None = None
    tick: int | None = None


class Findings:
    """All findings, counted. The first `limit` are listed, and the first of each check."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.listed: list[Finding] = []
        self.failures: Counter[str] = Counter()
        self.checked: Counter[str] = Counter()
        self.unchecked: dict[str, list[str]] = {}
        self.passed_over = 0
        self.listed_passed_over: list[Finding] = []

    def held(self, check: str, count: int = 1) -> None:
        """Count `count` things that a check has looked at, those that failed included."""
        self.checked[check] += count

    def fail(self, finding: Finding) -> None:
        """Count a finding, and list it if there is room."""
        self.failures[finding.check] += 1
        if len(self.listed) < self._limit or (self._limit and self.failures[finding.check] == 1):
            self.listed.append(finding)

    def pass_over(self, finding: Finding) -> None:
        """Count a record that cannot be used and that harms nothing, and list it if there is room."""
        self.passed_over += 1
        if len(self.listed_passed_over) < self._limit:
            self.listed_passed_over.append(finding)

    def leave_out(self, check: str, why: str) -> None:
        """Note that something could not be checked, and why."""
        self.unchecked.setdefault(check, []).append(why)

    @property
    def total(self) -> int:
        """How many findings there are."""
        return self.failures.total()

    def status(self, check: str, *, asked: bool = True) -> str:
        """The result of a check: FAILS before NOT_CHECKED, which is if anything could not be checked, before HOLDS."""
        if not asked:
            return NOT_ASKED
        if self.failures[check]:
            return FAILS
        return NOT_CHECKED if check in self.unchecked else HOLDS

    def report(self, *, replayed: bool) -> dict[str, Any]:
        """The checks, and the findings listed, as plain values."""
        return {
            "checks": {
                name: {
                    "status": self.status(name, asked=replayed or name not in ONLY_REPLAYED),
                    "checked": self.checked[name],
                    "failures": self.failures[name],
                    "not_checked": self.unchecked.get(name, []),
                }
                for name in MEANINGS
            },
            "total": self.total,
            "findings": [asdict(finding) for finding in self.listed],
            "passed_over": {
                "records": self.passed_over,
                "listed": [asdict(finding) for finding in self.listed_passed_over],
            },
        }
