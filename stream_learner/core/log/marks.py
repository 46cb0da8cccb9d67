"""The mark that ends a tick of a partition in the training log: its types.

In: counts, positions, a predecessor. Out: values that compare by content.
This file must never know how a mark looks as bytes (`mark_codec`), nor which marks count (`rule_r`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

RULES: Final = 2
"""Of the join, as of docs/join.md; 1 were those before log time took agreement."""


class MarkId(NamedTuple):
    """What names a mark: the attempt that wrote it and the last tick it covers."""

    attempt: int
    last_tick: int


GENESIS = MarkId(0, -1)
"""Predecessor of the first mark of a partition. No attempt has the id 0."""


class ClickCode(IntEnum):
    """What is known so far of a click that has been read and has not expired; two bits in a resume point."""

    UNMATCHED = 0
    LATE = 1
    MATCHED = 2
    DUPLICATE = 3


@dataclass(frozen=True, slots=True)
class ImpressionCounts:
    """Impressions of one mark: `read = examples + duplicates + late + sampled_out + dead`.

    `positives` is the number of `examples` whose label is above 0. `late` is always 0 in a mark of the rules 1.
    """

    read: int = 0
    examples: int = 0
    positives: int = 0
    duplicates: int = 0
    sampled_out: int = 0
    dead: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class ClickCounts:
    """Clicks of one mark: those read for it, the outcomes of those that expired, those pending after it.

    `waiting before + read = matched + duplicates + orphans + late + dead + waiting`.
    """

    read: int = 0
    matched: int = 0
    duplicates: int = 0
    orphans: int = 0
    late: int = 0
    dead: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class TickCounts:
    """What happened to the input records between a mark's predecessor and the mark."""

    impressions: ImpressionCounts = ImpressionCounts()
    clicks: ClickCounts = ClickCounts()


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """Enough to make a partition's join state again from the input topics.

    impression_topic_id, click_topic_id: 16 bytes each, the broker's topic ids. partitions: of each input
    topic. join_fingerprint, impressions_fingerprint, clicks_fingerprint: u64 of the settings of the join and of both
    inputs (`JoinSpec`, `EventSpec`). dedupe_from: impression offset to read from to know
    the duplicates. impression_log_time: the log time written for the last impression emitted, ms. click_log_time:
    the log time with which the last click went, ms. codes: u8[k], `ClickCode` of every click record in
    `[first_click, click_cursor)` in offset order. detached: number of codes that lie in records ahead of the mark
    instead; 0 once rule R has put them back. steps: for each step of ticks by which ids are forgotten and in which
    something was emitted, its number and the first impression emitted in it, from `dedupe_from` on. rules: `RULES` of
    the join that made it; of another one it can only be read.
    """

    impression_topic_id: bytes
    click_topic_id: bytes
    partitions: int
    join_fingerprint: int
    impression_log_time: int
    dedupe_from: int
    click_log_time: int
    codes: NDArray[np.uint8]
    detached: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    rules: int = RULES
    impressions_fingerprint: int = 0
    clicks_fingerprint: int = 0

    def _plain(self) -> tuple[object, ...]:
        return (
            self.impression_topic_id,
            self.click_topic_id,
            self.partitions,
            self.join_fingerprint,
            self.impression_log_time,
            self.dedupe_from,
            self.click_log_time,
            self.detached,
            self.steps,
            self.rules,
            self.impressions_fingerprint,
            self.clicks_fingerprint,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResumePoint):
            return NotImplemented
        return self._plain() == other._plain() and np.array_equal(self.codes, other.codes)

    def __hash__(self) -> int:
        return hash((self._plain(), len(self.codes)))


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of the ticks `first_tick..last_tick` of a partition, written by one attempt.

    It is one tick, or a run of ticks without an impression (in a log of the rules 1 a run may end with one that has
    some: all examples since the predecessor belong to `last_tick`). next_impression:
    offset of the first impression not emitted. first_click: of the first click not expired. click_cursor:
    offset up to which clicks had been read. With the predecessor's positions they decide the examples.
    records: how many records the attempt wrote for these ticks, the mark not counted. features: u64, the fingerprint
    of the `FeatureSpec` that its attempt makes features with; 0 where that is not known, as of the rules 1.
    begins_anew: the join goes on from the resume point with nothing but its positions, which need not follow those of
    the predecessor; clicks that waited there are given up. Such a mark has no examples, and always a resume point.
    """

    partition: int
    attempt: int
    first_tick: int
    last_tick: int
    next_impression: int
    first_click: int
    click_cursor: int
    records: int
    pred_attempt: int
    pred_tick: int
    counts: TickCounts = TickCounts()
    resume: ResumePoint | None = None
    features: int = 0
    begins_anew: bool = False

    @property
    def id(self) -> MarkId:
        """What the next mark names as its predecessor."""
        return MarkId(self.attempt, self.last_tick)

    @property
    def predecessor(self) -> MarkId:
        """The mark this one follows; `GENESIS` for the first of a partition."""
        return MarkId(self.pred_attempt, self.pred_tick)
