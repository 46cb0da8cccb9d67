"""The settings that decide which examples a join makes, and the positions that decide one tick of it.

A setting that does not change the examples does not belong here: the fingerprint of a `JoinSpec` guards a training log
against a joiner with other settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stream_learner.core.log.marks import RULES
from stream_learner.core.machine.hashing import xxh64

DEDUPE_STEPS = 8


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class JoinSpec:
    """The settings of the join of impressions and clicks to examples. All times in milliseconds.

    window_ms > 0: how long after an impression a click counts. skew_ms >= 0: how long before it.
    tick_ms > 0: the length of a tick. dedupe_ms >= 0: how long ids are remembered, to know duplicates; with 0 no
    impression is a duplicate. lateness_ms >= 0: how far behind log time an impression still gets a label.
    agree >= 1: how many events in a row must have passed a time before log time does.
    keep_negatives in (0, 1]: the share of examples with label 0 that is kept, with weight / keep_negatives; one is
    left out where mix(id hash ^ 0x9E3779B97F4A7C15) / 2^64 >= keep_negatives, `mix` being SplitMix64's finalizer.
    Raises ValueError outside these.
    """

    window_ms: int
    skew_ms: int
    tick_ms: int
    dedupe_ms: int
    keep_negatives: float = 1.0
    lateness_ms: int = 600_000
    agree: int = 16

    def __post_init__(self) -> None:
        if self.window_ms <= 0 or self.tick_ms <= 0:
            raise ValueError("window and tick must be longer than 0 ms")
        if self.skew_ms < 0 or self.dedupe_ms < 0 or self.lateness_ms < 0:
            raise ValueError("skew, dedupe and lateness must not be negative")
        if self.agree < 1:
            raise ValueError("at least one event must agree with itself")
        if not 0.0 < self.keep_negatives <= 1.0:
            raise ValueError("keep_negatives must lie in (0, 1]")

    @cached_property
    def fingerprint(self) -> int:
        """u64 that differs where the settings do. A join cannot go on from a resume point with another one."""
        text = (
            f"join 2: window_ms={self.window_ms} skew_ms={self.skew_ms} tick_ms={self.tick_ms}"
            f" dedupe_ms={self.dedupe_ms} keep_negatives={float(self.keep_negatives)!r}"
            f" lateness_ms={self.lateness_ms} agree={self.agree}"
        )
        return xxh64(text.encode())

    @property
    def span_ms(self) -> int:
        """The length of the span in which a click counts for an impression: window + skew."""
        return self.window_ms + self.skew_ms

    @property
    def keep_ms(self) -> int:
        """How long a click is kept past its time: window + skew + lateness."""
        return self.span_ms + self.lateness_ms

    @cached_property
    def step_ticks(self) -> int:
        """How many ticks a step has in which ids are forgotten: an eighth of the ticks of `dedupe`."""
        return max(1, _ceil_div(_ceil_div(self.dedupe_ms, self.tick_ms), DEDUPE_STEPS))

    def first_remembered_step(self, tick: int) -> int:
        """The first step whose impressions' ids are remembered in `tick`."""
        return (tick - _ceil_div(self.dedupe_ms, self.tick_ms)) // self.step_ticks

    @cached_property
    def keep_below(self) -> np.uint64:
        """The least hash at which a negative is left out: ceil(keep_negatives * 2^64). Not used if all are kept."""
        return np.uint64(min(math.ceil(self.keep_negatives * 2.0**64), 2**64 - 1))


class Cut(NamedTuple):
    """The ticks of stream time whose windows close together, and their positions in the inputs.

    `last_tick` is before `first_tick` where no window closes. next_impression: the border, the offset of the first
    impression that is left for later cuts. click_cursor: the offset before which clicks have been read when the
    impressions are decided. labels_from_ms: an impression with a time before it is late. rules: as of a mark.
    """

    first_tick: int
    last_tick: int
    next_impression: int
    click_cursor: int
    labels_from_ms: int = 0
    rules: int = RULES

    @property
    def closes(self) -> bool:
        """Whether any window may close with it."""
        return self.last_tick >= self.first_tick
