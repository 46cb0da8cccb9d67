"""The settings that decide a join, and what decides one tick of it.

In: numbers from the configuration, positions. Out: values that compare by content, and a fingerprint.
This file must never hold a setting that does not change which examples are made: the fingerprint guards their log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stream_learner.core.hashing import xxh64


@dataclass(frozen=True)
class JoinSpec:
    """How impressions and clicks become examples. All times in milliseconds.

    window_ms > 0: how long after an impression a click counts. skew_ms >= 0: how long before it.
    tick_ms > 0: the slot of event time. dedupe_ms >= 0: a second impression of an id within it is a duplicate.
    keep_negatives in (0, 1]: the share of examples with label 0 that is kept, with weight / keep_negatives; one is
    left out where mix(id hash ^ 0x9E3779B97F4A7C15) / 2^64 >= keep_negatives, `mix` being SplitMix64's finalizer.
    Raises ValueError outside these.
    """

    window_ms: int
    skew_ms: int
    tick_ms: int
    dedupe_ms: int
    keep_negatives: float = 1.0

    def __post_init__(self) -> None:
        if self.window_ms <= 0 or self.tick_ms <= 0:
            raise ValueError("window and tick must be longer than 0 ms")
        if self.skew_ms < 0 or self.dedupe_ms < 0:
            raise ValueError("skew and dedupe must not be negative")
        if not 0.0 < self.keep_negatives <= 1.0:
            raise ValueError("keep_negatives must lie in (0, 1]")

    @cached_property
    def fingerprint(self) -> int:
        """u64 that differs where the settings do; a resume point of other settings cannot be used."""
        text = (
            f"join 1: window_ms={self.window_ms} skew_ms={self.skew_ms} tick_ms={self.tick_ms}"
            f" dedupe_ms={self.dedupe_ms} keep_negatives={float(self.keep_negatives)!r}"
        )
        return xxh64(text.encode())

    @property
    def memory_ms(self) -> int:
        """How long a click is remembered past its log time: window + skew."""
        return self.window_ms + self.skew_ms

    @cached_property
    def keep_below(self) -> np.uint64:
        """Least hash, as a share of 2^64, at which a negative is left out. Exact; without meaning if all are kept."""
        return np.uint64(min(math.ceil(self.keep_negatives * 2.0**64), 2**64 - 1))


class Cut(NamedTuple):
    """What decides a mark: its ticks, and how far both inputs go into it.

    Ticks first_tick..last_tick-1 are empty, all examples belong to last_tick. next_impression: offset of the first
    impression left for later ticks. click_cursor: offset before which clicks had been read when it was emitted.
    """

    first_tick: int
    last_tick: int
    next_impression: int
    click_cursor: int
