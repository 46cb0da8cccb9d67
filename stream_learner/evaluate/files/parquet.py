"""Parquet files as examples, by way of Arrow. pyarrow is imported when the first file is opened.

Numbers are numbers; texts and booleans are categories; a dictionary counts as the values it holds. A list gives one
feature for each element, a structure its fields with names joined by `.`. Null and NaN are no value. Columns of other
types are refused by name, unless the specification leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.errors import BadInput
from stream_learner.evaluate.files.lines import read_ahead
from stream_learner.evaluate.files.streams import EXTRA, STDIN, size_bytes
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.formats.csv import check_spec, column_index
from stream_learner.evaluate.formats.table import Features, TableRows

BATCH_ROWS: Final = 1 << 14
_BATCHES_AHEAD = 2


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Some rows of a file, the first of which has number `first_line`. table: Arrow's batch of them."""

    table: Any
    first_line: int
    path: str


class ParquetSource:
    """Batches of rows of one or more Parquet files. They can be read several times."""

    def __init__(self, paths: Sequence[str], *, batch_rows: int = BATCH_ROWS) -> None:
        """Raises BadInput for files that are missing or no Parquet, and without pyarrow."""
        if STDIN in paths:
            raise BadInput("Parquet cannot be read from standard input", action="Name the file.")
        self.paths = tuple(paths)
        self.bytes_total: int | None = sum(size_bytes(path) or 0 for path in paths)
        self._batch_rows = batch_rows
        self._read = 0
        self.columns: tuple[str, ...] = ()
        for path in paths:
            with _opened(path) as file:
                names = tuple(file.schema_arrow.names)
            if self.columns and names != self.columns:
                raise BadInput(f"{path}: its columns are not those of {paths[0]}")
            self.columns = names

    @property
    def bytes_read(self) -> int:
        """The bytes read in this pass, estimated by the share of rows."""
        return self._read

    def blocks(self) -> Iterator[TableBlock]:
        """All batches, in order, read a little ahead by a thread; called again for each further pass.

        Raises BadInput for damaged files.
        """
        return read_ahead(self._blocks, _BATCHES_AHEAD)

    def _blocks(self) -> Iterator[TableBlock]:
        self._read = 0
        before = 0
        for path in self.paths:
            with _opened(path) as file:
                size, rows, row = size_bytes(path) or 0, max(1, file.metadata.num_rows), 1
                for table in file.iter_batches(self._batch_rows):
                    self._read = before + size * (row - 1 + len(table)) // rows
                    yield TableBlock(table, row, path)
                    row += len(table)
            before += size


class ParquetRows:
    """Makes examples of batches. The next batch overwrites the columns it hands out. One thread at a time."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        label: str | int | None = None,
        weight: str | int | None = None,
        features: FeatureSpec | None = None,
    ) -> None:
        """label, weight: columns of numbers or booleans, by name or by number from 1.

        Raises ValueError for names that are no columns, or a specification that uses label or weight.
        """
        spec = FeatureSpec() if features is None else features
        check_spec(columns, spec, nested=True)
        places = [None if wanted is None else column_index(columns, wanted) for wanted in (label, weight)]
        self._label, self._weight = places
        if self._label is not None and self._label == self._weight:
            raise ValueError(f"column {columns[self._label]!r} cannot be label and weight")
        self._rows = TableRows(spec, [columns[place] for place in places if place is not None])

    def parse(self, block: TableBlock) -> Parsed:
        """The examples of a batch of rows. Raises BadInput for a column of a type that cannot be used."""
        table = block.table
        reader = _Columns(self._rows, block.path)
        starts = np.arange(len(table) + 1)
        found: list[Features] = []
        for place, name in enumerate(table.schema.names):
            if place not in (self._label, self._weight) and self._rows.takes(name):
                found += reader.features(place + 1, name, table.column(place), starts)
        label = np.full(len(table), np.nan)
        if self._label is not None:
            label = reader.numbers(table.schema.names[self._label], table.column(self._label))
        weight = np.ones(len(table))
        if self._weight is not None:
            weight = reader.numbers(table.schema.names[self._weight], table.column(self._weight))
            weight = np.where(np.isnan(weight), 1.0, weight)
        return self._rows.parsed(found, label, weight, block.first_line)


class _Columns:
    """Makes features of Arrow's columns."""

    def __init__(self, rows: TableRows, path: str) -> None:
        import pyarrow
        from pyarrow import compute

        self._arrow = pyarrow
        self._compute = compute
        self._is = pyarrow.types
        self._rows = rows
        self._path = path

    def features(self, place: int, name: str, array: Any, row_start: NDArray[np.int64]) -> Iterator[Features]:
        """The features of a column. row_start i64[n+1]: where the values of each row begin in the array."""
        if not self._rows.takes(name):
            return
        if self._is.is_struct(array.type):
            for field, inner in zip(array.type, array.flatten(), strict=True):
                yield from self.features(place, f"{name}.{field.name}", inner, row_start)
            return
        if self._is_any_list(array.type):
            lengths = (
                self._compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            )
            yield from self.features(place, name, array.flatten(), _sums(lengths)[row_start])
            return
        present = array.is_valid().to_numpy(zero_copy_only=False)
        row_start = _sums(present)[row_start]
        yield from self._scalars(place, name, array.drop_null(), row_start)

    def _scalars(self, place: int, name: str, array: Any, row_start: NDArray[np.int64]) -> Iterator[Features]:
        """The features of a column without nulls, lists and fields."""
        kind = array.type
        if self._is.is_dictionary(kind):
            if self._is_text(kind.value_type) and not array.dictionary.null_count:
                index = array.indices.to_numpy(zero_copy_only=False).astype(np.int64)
                yield from self._texts(place, name, array.dictionary, row_start, index)
            else:
                yield from self.features(place, name, array.dictionary_decode(), row_start)
        elif self._is_text(kind):
            yield from self._texts(place, name, array, row_start, None)
        elif self._is.is_boolean(kind):
            index = array.cast(self._arrow.int8()).to_numpy().astype(np.int64)
            words = self._arrow.array(["false", "true"])
            yield from self._texts(place, name, words, row_start, index)
        elif self._is_number(kind):
            numbers = self._numpy(array)
            if numbers.dtype.kind == "f":
                present = ~np.isnan(numbers)
                numbers, row_start = numbers[present], _sums(present)[row_start]
            yield from self._rows.numbers(place, name, numbers, row_start)
        elif not self._is.is_null(kind):
            raise self._unfit(name, kind)

    def numbers(self, name: str, array: Any) -> NDArray[np.float64]:
        """A column of numbers or booleans as float64, with NaN for null."""
        if self._is.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not self._is_number(array.type) and not self._is.is_boolean(array.type):
            raise self._unfit(name, array.type)
        numbers = self._numpy(array.drop_null()).astype(np.float64)
        out = np.full(len(array), np.nan)
        out[array.is_valid().to_numpy(zero_copy_only=False)] = numbers
        return out

    def _texts(
        self, place: int, name: str, array: Any, row_start: NDArray[np.int64], index: NDArray[np.int64] | None
    ) -> Iterator[Features]:
        """The features of texts, whose bytes lie side by side in Arrow's buffer."""
        array = array.cast(self._arrow.large_binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        letters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        first = int(bounds[0])
        letters = letters[first : int(bounds[-1])]
        return self._rows.texts(place, name, letters, bounds - first, row_start, index)

    def _numpy(self, array: Any) -> NDArray[Any]:
        if self._is.is_decimal(array.type):
            array = array.cast(self._arrow.float64())
        numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers

    def _is_text(self, kind: Any) -> bool:
        return bool(self._is.is_string(kind) or self._is.is_large_string(kind) or self._is.is_string_view(kind))

    def _is_any_list(self, kind: Any) -> bool:
        return bool(self._is.is_list(kind) or self._is.is_large_list(kind) or self._is.is_fixed_size_list(kind))

    def _is_number(self, kind: Any) -> bool:
        return bool(self._is.is_integer(kind) or self._is.is_floating(kind) or self._is.is_decimal(kind))

    def _unfit(self, name: str, kind: Any) -> BadInput:
        return BadInput(
            f"{self._path}: column {name!r} is of type {kind}, which is no number, boolean or text",
            action="Leave the column out, or write it as a number or a text.",
        )


def _sums(counts: NDArray[Any]) -> NDArray[np.int64]:
    """The cumulative sums of counts, beginning with 0: i64[n+1]."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open a Parquet file. Errors of Arrow and of the system, here or in the block, become BadInput."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(
            f"{path} is Parquet, and the package pyarrow is not installed", action=f"Install {EXTRA}."
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{path}: no Parquet file, or a damaged one ({first})") from None
