"""Pairs the examples of two training logs of a partition, whichever ticks they lie in.

The n-th example of an id in one log belongs to the n-th in the other. Where the clock closed ticks, a live joiner and a
backfill may emit the same impression in ticks far apart. So an example waits for its partner: examples of both logs are
given in the order of their ticks, and those without a partner are kept, up to `WAITING_BYTES` of each log. Beyond that
the oldest are given up, as if the other log did not have them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.compare import chosen, joined, pairs
from stream_learner.core.log.examples import ExampleBatch

WAITING_BYTES = 128 << 20
BLOCK_BYTES = 16 << 20
"""Examples are paired when so many bytes of them have come."""

PLACE = np.dtype(
    [
        ("tick", np.int64),
        ("clicks_begin", np.int64),
        ("clicks_end", np.int64),
        ("impressions_begin", np.int64),
        ("impressions_end", np.int64),
    ]
)
"""The tick of an example; the offsets of the clicks that decided its labels, and of the impressions that it emitted."""


class Examples(NamedTuple):
    """Examples of one log, and where each was found: `places`, of `PLACE`."""

    batch: ExampleBatch
    places: NDArray[np.void]

    @classmethod
    def of_tick(cls, batch: ExampleBatch, place: tuple[int, int, int, int, int]) -> Examples:
        return cls(batch, np.full(len(batch), np.array(place, PLACE)))

    @classmethod
    def joined(cls, parts: list[Examples]) -> Examples:
        """The examples of all parts, in order."""
        places = [part.places for part in parts]
        return cls(joined([part.batch for part in parts]), np.concatenate(places) if places else np.zeros(0, PLACE))

    def chosen(self, rows: NDArray[np.int64]) -> Examples:
        """Some of them."""
        return Examples(chosen(self.batch, rows), self.places[rows])

    def without(self, rows: NDArray[np.int64]) -> Examples:
        """All but some of them."""
        return self.chosen(np.setdiff1d(np.arange(len(self.places)), rows))

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        batch = self.batch
        columns = (batch.log_time_ms, batch.id_hash, batch.label, batch.weight, batch.row_start, batch.keys)
        return sum(column.nbytes for column in (*columns, batch.values, self.places))


class Paired(NamedTuple):
    """What one pairing has found: the pairs, as rows of both sides' examples, and for each side who was given up."""

    examples: tuple[Examples, Examples]
    rows: tuple[NDArray[np.int64], NDArray[np.int64]]
    given_up: tuple[Examples, Examples]


class Matching:
    """The examples of one partition of two logs."""

    def __init__(self, *, waiting_bytes: int = WAITING_BYTES, block_bytes: int = BLOCK_BYTES) -> None:
        self._waiting_bytes, self._block_bytes = waiting_bytes, block_bytes
        self._waiting = (Examples.joined([]), Examples.joined([]))
        self._come: tuple[list[Examples], list[Examples]] = ([], [])
        self._come_bytes = 0

    def add(self, side: int, examples: Examples) -> None:
        """Take the next examples of a log; every tick that both logs have is added for both before it is paired."""
        if len(examples.places):
            self._come[side].append(examples)
            self._come_bytes += examples.bytes

    @property
    def is_due(self) -> bool:
        """Whether enough have come to be paired."""
        return self._come_bytes >= self._block_bytes

    def pair(self) -> Paired:
        """Pair what has come with what waits."""
        both = (self._with_waiting(0), self._with_waiting(1))
        self._come_bytes = 0
        rows = pairs(both[0].batch.id_hash, both[1].batch.id_hash)
        left = (both[0].without(rows[0]), both[1].without(rows[1]))
        given_up = (self._oldest(left[0]), self._oldest(left[1]))
        self._waiting = tuple(  # type: ignore[assignment]
            one.chosen(np.arange(len(up.places), len(one.places))) for one, up in zip(left, given_up, strict=True)
        )
        return Paired(both, rows, given_up)

    def waiting(self, side: int) -> Examples:
        """The examples of a log that have no partner yet, as of the last pairing."""
        return self._waiting[side]

    def _with_waiting(self, side: int) -> Examples:
        come = [self._waiting[side], *self._come[side]]
        self._come[side].clear()
        return Examples.joined(come)

    def _oldest(self, left: Examples) -> Examples:
        """Those that are too many to wait: the oldest, by the share of the bytes that is too much."""
        excess = max(1.0 - self._waiting_bytes / max(left.bytes, 1), 0.0)
        return left.chosen(np.arange(int(np.ceil(excess * len(left.places)))))
