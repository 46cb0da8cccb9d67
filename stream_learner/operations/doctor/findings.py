"""A finding, and the words and bounds that findings share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["stops", "warns", "tells"]
SEVERITIES: tuple[Severity, ...] = ("stops", "warns", "tells")
ENOUGH = 20
"""So many records, clicks or pairs are needed for a judgement."""
LOST_STOPS = 0.1
"""More positives lost than this stand in the way, whatever loses them: partitions, clocks, or the window."""
WORTH_A_WORD = 0.01
"""A share of records above this one is worth a warning."""


@dataclass(frozen=True)
class Finding:
    """severity: `stops` where a model would be wrong or none, `warns` where it would be worse, `tells` for what could
    not be judged. seen: the evidence, with its numbers. means: what comes of it. change: the line of the configuration
    to change, or what to do where no line helps.
    """

    severity: Severity
    name: str
    seen: str
    means: str
    change: str


def percent(share: float) -> str:
    """A share for a person.

    >>> percent(0.9996), percent(0.1667), percent(0.0002), percent(1.0)
    ('99.96 %', '16.7 %', '0.02 %', '100 %')
    """
    digits = 2 if 0 < share < 0.01 or 0.99 < share < 1 else 1
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def shown(value: object) -> str:
    """A value of an event as it stands in a message, cut short."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least `share` of the values, in ascending order, do not exceed."""
    return ordered[min(max(-int(-share * len(ordered) // 1) - 1, 0), len(ordered) - 1)]
