"""The TalkingData sample as impressions and clicks: mobile-ad clicks, and the app installs that followed
some of them.

In: `../shared/data/talkingdata/train_sample.csv.gz` beside the project's root, which is never copied into
it. Out: rows with times in epoch milliseconds, taken as UTC. Where the file is absent the test that asks is
skipped with a message.
"""

from __future__ import annotations

import csv
import gzip
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "talkingdata" / "train_sample.csv.gz"
ROWS = 100_000
POSITIVES_BY_WINDOW_MS = {600_000: 134, 3_600_000: 165, 86_400_000: 227}
FEATURES = ("ip", "app", "device", "os", "channel")


class Row(NamedTuple):
    """One line of the file; `number` is its place in it, from 0, and its id."""

    number: int
    features: tuple[int, ...]  # ip, app, device, os, channel: names, not quantities
    impression_ms: int
    click_ms: int | None


def _epoch_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()) * 1000


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows in the order of the file. Skips the calling test where the file is absent."""
    if not SAMPLE.exists():
        pytest.skip(f"the TalkingData sample is not there: {SAMPLE}")
    out = []
    with gzip.open(SAMPLE, "rt", encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = [name.lstrip(".") for name in next(reader)]
        if header != [*FEATURES, "click_time", "attributed_time", "is_attributed"]:
            raise ValueError(f"not the header of the TalkingData sample: {header}")
        for number, (*features, at, attributed, positive) in enumerate(reader):
            click_ms = _epoch_ms(attributed) if positive == "1" else None
            out.append(Row(number, tuple(map(int, features)), _epoch_ms(at), click_ms))
    return tuple(out)


def impressions() -> list[Row]:
    """All rows by their time, and by their number where that is equal."""
    return sorted(rows(), key=lambda row: row.impression_ms)


def clicks() -> list[tuple[int, Row]]:
    """Time and row of every install, by its time."""
    return sorted((row.click_ms, row) for row in rows() if row.click_ms is not None)
