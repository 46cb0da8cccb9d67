"""The TalkingData sample as ticks of the gate: its clicks in the order of time, labelled by the installs that followed.

The file lies beside the project and is never copied into it; without it there are no ticks.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.gate_seasons import Tick
from stream_learner.core.gate.gate import TickSums

SAMPLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "talkingdata" / "train_sample.csv.gz"


def sums_of_talkingdata(tick_ms: int) -> Iterator[Tick] | None:
    """The ticks of the sample, with windows that hold all installs; None where the file is absent."""
    return _ticks(tick_ms) if SAMPLE.exists() else None


def _ticks(tick_ms: int) -> Iterator[Tick]:
    shown: Counter[int] = Counter()
    installed: Counter[int] = Counter()
    with gzip.open(SAMPLE, "rt", encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        for *_, at, _, is_attributed in reader:
            moment = datetime.fromisoformat(at).replace(tzinfo=timezone.utc)
            tick = int(moment.timestamp() * 1000) // tick_ms
            shown[tick] += 1
            installed[tick] += is_attributed == "1"
    first = min(shown)
    for tick in sorted(shown):
        yield Tick(tick - first, TickSums(shown[tick], installed[tick], installed[tick], read=shown[tick]))
