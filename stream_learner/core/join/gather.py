"""The examples of a tick, gathered from the batches in which their impressions lie.

Where all examples lie together in one batch they are handed on as views, else they are copied. Untouched memory costs
more than the copy into it, so the copies go to memory that is used again for every tick: `ExampleScratch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic
from numpy.typing import NDArray

from stream_learner.core.join.batches import Columns, ImpressionColumns
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.machine.entries import I64, entry
from stream_learner.core.machine.kernels import kernel

_EXAMPLES_KEPT = 1 << 15
_FEATURES_KEPT = 1 << 20
"""A scratch of less than eight times these is never made smaller."""


@dataclass(slots=True)
class ExamplePart:
    """The examples of a tick that lie in one batch; `kept`: their indices in it, rising, at least one.

    first_read: where the batch's record 0 stands among all records read for the tick; below 0 if the tick takes later
    ones only.
    """

    columns: ImpressionColumns
    kept: NDArray[np.int64]
    first_read: int

    @property
    def is_one_run(self) -> bool:
        return int(self.kept[-1] - self.kept[0]) + 1 == len(self.kept)


class ExampleColumns(NamedTuple):
    """Columns into which examples are copied."""

    log_time: NDArray[np.int64]
    ids: NDArray[np.int64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    counted: NDArray[np.uint8]


class ExampleScratch:
    """Memory for the examples of a tick, used again for the next one; one thread at a time.

    What lies in it is valid until the next tick is emitted with it. The columns `read_*` are of every impression that
    the tick decides, before it is known which of them become examples.
    """

    __slots__ = (
        "_counted",
        "_examples",
        "_features",
        "_ids",
        "_keys",
        "_log_time",
        "_row_start",
        "_values",
        "kept",
        "label",
        "read_log_time",
        "read_status",
        "read_time_ms",
        "weight",
    )

    def __init__(self) -> None:
        self._examples = self._features = -1

    @property
    def columns(self) -> ExampleColumns:
        """The arrays that examples are copied to."""
        return ExampleColumns(self._log_time, self._ids, self._row_start, self._keys, self._values, self._counted)

    def reserve_examples(self, impressions: int) -> None:
        """Make room for so many impressions to be decided; what was there before is lost."""
        if _fits(impressions, self._examples, _EXAMPLES_KEPT):
            return
        self._examples = size = impressions + impressions // 4
        self.kept = np.empty(size, np.int64)
        self.label = np.empty(size, np.float64)
        self.weight = np.empty(size, np.float64)
        self.read_log_time = np.empty(size, np.int64)
        self.read_status = np.empty(size, np.uint8)
        self.read_time_ms = np.empty(size, np.int64)
        self._log_time = np.empty(size, np.int64)
        self._ids = np.empty(size, np.int64)
        self._row_start = np.zeros(size + 1, np.int64)

    def reserve_features(self, features: int) -> None:
        """Make room for the features of all examples; what was there before is lost."""
        if _fits(features, self._features, _FEATURES_KEPT):
            return
        self._features = features + features // 4
        self._keys = np.empty(self._features, np.uint64)
        self._values = np.empty(self._features, np.float64)
        self._counted = np.empty(self._features, np.uint8)


def _fits(wanted: int, there: int, kept: int) -> bool:
    """Whether the memory that is there is enough, and not far too much, as after a single large tick."""
    return wanted <= there <= 8 * max(wanted, kept)


def gather(parts: list[ExamplePart], n: int, features: int, scratch: ExampleScratch) -> ExampleBatch:
    """The `n` examples of all parts, whose labels and weights lie in `scratch`, with `features` features in all."""
    if not parts:
        return ExampleBatch.empty()
    if len(parts) == 1 and parts[0].is_one_run:
        return _view(parts[0], scratch)
    scratch.reserve_features(features)
    out, at = scratch.columns, 0
    if not any(len(part.columns.values) for part in parts):
        out = out._replace(values=out.values[:0])
    for part in parts:
        copy_examples(tuple(part.columns), part.kept, scratch.read_log_time, part.first_read, tuple(out), at)
        at += len(part.kept)
    return ExampleBatch(
        out.log_time[:n],
        out.ids[:n].view(np.uint64),
        scratch.label[:n],
        scratch.weight[:n],
        out.row_start[: n + 1],
        out.keys[:features],
        out.values[:features],
        out.counted[: features if len(parts[0].columns.counted) else 0],
    )


def _view(part: ExamplePart, scratch: ExampleScratch) -> ExampleBatch:
    columns, a, b, n = part.columns, int(part.kept[0]), int(part.kept[-1]) + 1, len(part.kept)
    start, end = int(columns.row_start[a]), int(columns.row_start[b])
    return ExampleBatch(
        scratch.read_log_time[part.first_read + a : part.first_read + b],
        columns.ids[a:b].view(np.uint64),
        scratch.label[:n],
        scratch.weight[:n],
        columns.row_start[a : b + 1] - start,
        columns.keys[start:end],
        columns.values[start:end],
        columns.counted[start:end],
    )


@intrinsic
def copy_bytes(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes between addresses that do not overlap: several times faster than a loop over arrays.

    To assign a slice of an array compiles for more than a second, most of it the message of an error.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in args[:2])
        raw_memcpy(builder, target, source, args[2], ir.IntType(64)(1))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@kernel
def _address(array: NDArray[np.generic]) -> int:
    return np.int64(array.ctypes.data)


@entry
def copy_examples(
    columns: Annotated[Columns, ImpressionColumns],
    kept: I64,
    log_time: I64,
    first_log_time: int,
    out: Annotated[Columns, ExampleColumns],
    at: int,
) -> None:
    """Copy the impressions with the indices `kept` to `out`, behind its first `at`, whose `row_start[at]` is set.

    The log time of impression `i` is `log_time[first_log_time + i]`.
    """
    batch = ImpressionColumns(*columns)
    ids, row_start, keys, values = batch.ids, batch.row_start, batch.keys, batch.values
    counted = batch.counted
    out_log_time, out_ids, out_row_start, out_keys, out_values, out_counted = ExampleColumns(*out)
    i = 0
    while i < len(kept):
        run = i + 1
        while run < len(kept) and kept[run] == kept[run - 1] + 1:
            run += 1
        source = row_start[kept[i]]
        shift = out_row_start[at + i] - source
        for j in range(i, run):
            k = kept[j]
            out_log_time[at + j] = log_time[first_log_time + k]
            out_ids[at + j] = ids[k]
            out_row_start[at + j + 1] = row_start[k + 1] + shift
        size = row_start[kept[run - 1] + 1] - source
        copy_bytes(_address(out_keys) + 8 * (source + shift), _address(keys) + 8 * source, 8 * size)
        if len(values) > 0:
            copy_bytes(_address(out_values) + 8 * (source + shift), _address(values) + 8 * source, 8 * size)
        elif len(out_values) > 0:
            for j in range(source + shift, source + shift + size):
                out_values[j] = 1.0
        if len(counted) > 0:
            copy_bytes(_address(out_counted) + source + shift, _address(counted) + source, size)
        i = run
