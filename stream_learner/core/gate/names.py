"""The names of the bounds, as they stand in verdicts, metrics and the configuration."""

from __future__ import annotations

from typing import Final, Literal, get_args

BoundName = Literal[
    "positives",
    "negatives",
    "volume",
    "orphans",
    "late_clicks",
    "dead_clicks",
    "late_impressions",
    "dead_impressions",
    "calibration",
    "ranking",
]
BOUNDS: Final[tuple[BoundName, ...]] = get_args(BoundName)
