"""The result of one schedule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from proofs.chaos.plan import Plan


@dataclass
class Result:
    """The result of a schedule. kills: slot and phase of each. faults: the number of each kind."""

    plan: Plan
    kills: list[tuple[str, str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    records: int = 0
    versions: int = 0
    seconds: float = 0.0
    controller_changes: int = 0
    logs: str = ""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.problems
