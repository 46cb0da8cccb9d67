"""A batch of records as they came from one partition, as lists and arrays. Values are not looked into."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

Headers = list[tuple[str, str | bytes | None]]


class RawBatch:
    """Consecutive records of one partition, n >= 1. The log may have gaps between their offsets.

    | field | |
    |---|---|
    | `offsets` | i64[n], ascending |
    | `record_times_ms` | i64[n], the records' Kafka timestamps, epoch ms; -1 if it has none |
    | `values` | n `bytes`, or None for a null value |
    | `lengths` | i64[n], 0 for a null value |
    | `is_null` | bool[n], or None if no value is null |
    | `data`, `bounds` | the values back to back; i64[n+1], value i is `data[bounds[i]:bounds[i+1]]`; made on demand |
    | `keys`, `headers` | lists of n, or None unless the reader was made with them |
    """

    __slots__ = (
        "_bounds",
        "_data",
        "_lengths",
        "_values",
        "headers",
        "is_null",
        "keys",
        "offsets",
        "record_times_ms",
    )

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        record_times_ms: npt.NDArray[np.int64],
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        *,
        lengths: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """lengths: of the values; given if they are known and no value is null."""
        self.offsets = offsets
        self.record_times_ms = record_times_ms
        self._values: Sequence[bytes | None] | None = values
        self.keys = keys
        self.headers = headers
        self._lengths, self.is_null = _lengths(values) if lengths is None else (lengths, None)
        self._data: bytes | npt.NDArray[np.uint8] | None = None
        self._bounds: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each value."""
        return self._lengths

    @property
    def values(self) -> Sequence[bytes | None]:
        assert self._values is not None
        return self._values

    @property
    def data(self) -> bytes | npt.NDArray[np.uint8]:
        """All values back to back; a null value contributes nothing."""
        if self._data is None:
            if self.is_null is None:
                self._data = b"".join(self.values)  # type: ignore[arg-type]
            else:
                self._data = b"".join([value for value in self.values if value is not None])
        return self._data

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        """The offsets in `data` between which the values lie."""
        if self._bounds is None:
            self._bounds = np.zeros(len(self.values) + 1, np.int64)
            np.cumsum(self.lengths, out=self._bounds[1:])
        return self._bounds

    def part(self, first: int, end: int) -> RawBatch:
        """Records `first` to `end` (not included); at least one."""
        return RawBatch(
            self.offsets[first:end],
            self.record_times_ms[first:end],
            self.values[first:end],
            None if self.keys is None else self.keys[first:end],
            None if self.headers is None else self.headers[first:end],
            lengths=self.lengths[first:end] if self.is_null is None else None,
        )

    @property
    def size_bytes(self) -> int:
        """Sum of the lengths of the values."""
        return int(self.lengths.sum())


class PackedBatch(RawBatch):
    """A batch without keys and headers whose values came back to back. `values` are made on demand, one by one."""

    __slots__ = ()

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        record_times_ms: npt.NDArray[np.int64],
        data: npt.NDArray[np.uint8],
        bounds: npt.NDArray[np.int64],
        is_null: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """bounds: from 0 on. is_null: None if no value is null."""
        self.offsets, self.record_times_ms = offsets, record_times_ms
        self.keys = self.headers = self._values = None
        self._data, self._bounds = data, bounds
        self.is_null = is_null if is_null is not None and is_null.any() else None

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The length of each value."""
        return np.diff(self.bounds)

    @property
    def size_bytes(self) -> int:
        """Sum of the lengths of the values."""
        return int(self.bounds[-1])

    @property
    def values(self) -> Sequence[bytes | None]:
        if self._values is None:
            data, edges = self.data.tobytes(), self.bounds.tolist()  # type: ignore[union-attr]
            values: list[bytes | None] = [data[begin:end] for begin, end in pairwise(edges)]
            for i in [] if self.is_null is None else np.flatnonzero(self.is_null).tolist():
                values[i] = None
            self._values = values
        return self._values

    def part(self, first: int, end: int) -> PackedBatch:
        """Records `first` to `end` (not included); at least one."""
        begin_at, end_at = int(self.bounds[first]), int(self.bounds[end])
        return PackedBatch(
            self.offsets[first:end],
            self.record_times_ms[first:end],
            self.data[begin_at:end_at],  # type: ignore[arg-type]
            self.bounds[first : end + 1] - begin_at,
            None if self.is_null is None else self.is_null[first:end],
        )


def _joined_packed(batches: Sequence[PackedBatch]) -> PackedBatch:
    is_null = None
    if any(batch.is_null is not None for batch in batches):
        masks = [np.zeros(len(batch), np.bool_) if batch.is_null is None else batch.is_null for batch in batches]
        is_null = np.concatenate(masks)
    lengths = np.concatenate([batch.lengths for batch in batches])
    return PackedBatch(
        np.concatenate([batch.offsets for batch in batches]),
        np.concatenate([batch.record_times_ms for batch in batches]),
        np.concatenate([batch.data for batch in batches]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        is_null,
    )


def joined(batches: Sequence[RawBatch]) -> RawBatch:
    """Join batches that follow each other and are of one kind. Keys and headers must be in all of them or in none."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, PackedBatch):
        return _joined_packed([batch for batch in batches if isinstance(batch, PackedBatch)])
    return RawBatch(
        np.concatenate([batch.offsets for batch in batches]),
        np.concatenate([batch.record_times_ms for batch in batches]),
        list(chain.from_iterable(batch.values for batch in batches)),
        None if first.keys is None else list(chain.from_iterable(batch.keys or () for batch in batches)),
        None if first.headers is None else list(chain.from_iterable(batch.headers or () for batch in batches)),
        lengths=None
        if any(batch.is_null is not None for batch in batches)
        else np.concatenate([batch.lengths for batch in batches]),
    )


def _lengths(values: Sequence[bytes | None]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """The length of each value, and a mask of null values if there are any."""
    try:
        return np.fromiter(map(len, values), np.int64, len(values)), None  # type: ignore[arg-type]
    except TypeError:
        is_null = np.fromiter((value is None for value in values), np.bool_, len(values))
        return np.fromiter((len(value or b"") for value in values), np.int64, len(values)), is_null
