"""Parquet files as examples, by way of Arrow. pyarrow is imported when the first file is opened.

A row becomes the JSON object that an event with these fields would be. Numbers are numbers; texts and booleans are
categories; a dictionary counts as the values it holds. A list gives one feature for each element, a structure its
fields with names joined by `.`. Null and NaN are no value. Columns of other types are refused by name, unless the
specification leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.errors import BadInput
from stream_learner.evaluate.files.lines import read_ahead
from stream_learner.evaluate.files.streams import EXTRA, STDIN, size_bytes
from stream_learner.evaluate.formats.base import Fault, Parsed
from stream_learner.evaluate.formats.csv import check_spec, role_columns
from stream_learner.evaluate.formats.json_lines import ObjectRows

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
    """Makes examples of batches. The columns it hands out are the caller's own. One thread at a time."""

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
        self._columns = list(columns)
        self._roles = role_columns(columns, label, weight)
        self._rows = ObjectRows(spec, [columns[at] for at in self._roles if at is not None])

    def parse(self, block: TableBlock) -> Parsed:
        """The examples of a batch of rows. Raises BadInput for a column of a type that cannot be used."""
        label, weight = (self._numbers(block, at) for at in self._roles)
        weight = np.where(np.isnan(weight), 1.0, weight)
        names = [name for name in self._columns if self._rows.plan.of(name).below]
        special = [name for name in names if self._check(block, name, block.table.column(name))]
        kept, objects, faults = list[int](), list[bytes](), list[Fault]()
        for i, row in enumerate(_rows_of(block, names)):
            fault = self._bad_role(label[i], weight[i]) or _make_whole(row, special)
            if fault is None:
                kept.append(i)
                objects.append(orjson.dumps(row, default=_plain))
            else:
                faults.append(Fault(block.first_line + i, self._columns.index(fault[0]) + 1, fault[1]))
        lines = [block.first_line + i for i in kept]
        place = self._columns.index
        return self._rows.parsed(objects, lines, label[kept], weight[kept], faults, lambda _, name: place(name) + 1)

    def _bad_role(self, label: float, weight: float) -> tuple[str, str] | None:
        """The column of a label or weight that cannot be, with what should stand there; None without one."""
        if self._roles[0] is not None and math.isinf(label):
            return self._columns[self._roles[0]], "a finite number as label, or none"
        if self._roles[1] is not None and not 0.0 <= weight < math.inf:
            return self._columns[self._roles[1]], "a finite number of 0 or more as weight"
        return None

    def _numbers(self, block: TableBlock, at: int | None) -> NDArray[np.float64]:
        """A column of numbers or booleans as float64, with NaN for null and without a column."""
        import pyarrow

        if at is None:
            return np.full(len(block.table), np.nan)
        array = block.table.column(at)
        if pyarrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not _is_number(array.type) and not pyarrow.types.is_boolean(array.type):
            raise _unfit(block, self._columns[at], array.type)
        numbers: NDArray[np.float64] = array.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
        return numbers

    def _check(self, block: TableBlock, name: str, array: Any) -> bool:
        """Raise BadInput if a column, or anything inside it, is of no type for features. Returns whether its values
        need `_whole`: some are infinite, or categories that are no integers."""
        import pyarrow
        from pyarrow import types

        kind = array.type
        if not self._rows.plan.of(name).below or types.is_null(kind):
            return False
        if types.is_struct(kind):
            fields = zip(kind, array.flatten(), strict=True)
            inside = [self._check(block, f"{name}.{field.name}", inner) for field, inner in fields]
            return any(inside)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return self._check(block, name, array.flatten())
        if types.is_dictionary(kind):
            return self._check(block, name, array.dictionary)
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if not (text or types.is_boolean(kind) or _is_number(kind)):
            raise _unfit(block, name, kind)
        if types.is_decimal(kind) or types.is_floating(kind):
            category = self._rows.plan.of(name).settings.kind == "category"
            return category or bool(np.isinf(array.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)).any())
        return False


def _make_whole(row: dict[str, Any], names: list[str]) -> tuple[str, str] | None:
    """Replace the values of some columns of a row by `_whole`. Returns a column with an infinite one, and its fault."""
    for name in names:
        try:
            row[name] = _whole(row[name])
        except OverflowError:
            return name, "a finite number in this column"
    return None


def _whole(value: Any) -> Any:
    """The value with whole numbers as integers, which categories can be. Raises OverflowError for infinity."""
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    if isinstance(value, (float, Decimal)) and value == value:
        whole = int(value)
        return whole if whole == value and abs(whole) < 1 << 63 else value
    return value


def _rows_of(block: TableBlock, names: list[str]) -> list[dict[str, Any]]:
    """The rows of a batch as Python's values. Raises BadInput for texts that are not UTF-8."""
    try:
        rows: list[dict[str, Any]] = block.table.select(names).to_pylist()
    except UnicodeDecodeError as error:
        raise BadInput(f"{block.path}: a text is not UTF-8 ({error})") from None
    return rows or [{} for _ in range(len(block.table))]


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _unfit(block: TableBlock, name: str, kind: Any) -> BadInput:
    return BadInput(
        f"{block.path}: column {name!r} is of type {kind}, which is no number, boolean or text",
        action="Leave the column out, or write it as a number or a text.",
    )


def _plain(value: Any) -> float | None:
    """A decimal as a number; what is inside a column and left out may be of any type."""
    return float(value) if isinstance(value, (Decimal, np.floating)) else None


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
