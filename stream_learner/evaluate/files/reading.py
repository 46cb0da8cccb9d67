"""From paths to parsed examples: the source of a format, and parsers for its blocks.

VW text has no parser here: what its lines become depends on each configuration's options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.errors import BadInput
from stream_learner.evaluate.files.formats import Format, csv_columns, guess_format
from stream_learner.evaluate.files.lines import Block
from stream_learner.evaluate.files.parquet import ParquetRows, ParquetSource, TableBlock
from stream_learner.evaluate.files.source import TextSource
from stream_learner.evaluate.files.streams import name_of
from stream_learner.evaluate.formats.base import LineParser, Parsed
from stream_learner.evaluate.formats.csv import CsvText
from stream_learner.evaluate.formats.json_lines import JsonLines
from stream_learner.evaluate.formats.libsvm import LibsvmText

DEFAULT_LABELS = ("label", "y")
"""The usual names of the label column of CSV and Parquet; for JSON lines the first of them."""

Source = TextSource | ParquetSource
BlockParser = Callable[[Block | TableBlock], Parsed]
"""Parses a block of the source it was made for. One thread at a time; the next call overwrites what it returned."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of the columns of CSV and Parquet, or of the fields of JSON lines. LIBSVM uses only the bias.

    label: None takes one of `DEFAULT_LABELS`. labelled: False if examples without a label are allowed. columns: the
    names of CSV's columns; if empty, the first line of each file has them. ignore: fields of JSON that are no features,
    in addition to those the specification leaves out.
    """

    label: str | None = None
    weight: str | None = None
    labelled: bool = True
    columns: tuple[str, ...] = ()
    separator: str = ","
    ignore: tuple[str, ...] = ()
    features: FeatureSpec = field(default_factory=FeatureSpec)


def open_source(paths: Sequence[str], format: Format | None = None) -> tuple[Source, Format]:  # noqa: A002 - its name
    """Open files, or standard input for `-`. Returns the source of their blocks, and their format.

    format: None to tell it from the first file. Raises BadInput if a file is missing, its format cannot be told, or a
    library is missing.
    """
    text = TextSource(paths)
    found = guess_format(text) if format is None else format
    return (ParquetSource(paths) if found == "parquet" else text), found


def block_parsers(source: Source, format: Format, meaning: Meaning) -> Callable[[], BlockParser]:  # noqa: A002
    """A function that makes a parser for the blocks of a source; it is called once for each thread.

    Raises BadInput if columns that `meaning` names are missing, and ValueError for VW text.
    """
    make = _makers(source, format, meaning)
    try:
        make()
    except ValueError as error:
        raise BadInput(f"{name_of(source.paths[0])}: {error}", action="Correct the names of columns.") from None
    return make


def _makers(source: Source, format: Format, meaning: Meaning) -> Callable[[], BlockParser]:  # noqa: A002
    spec = meaning.features
    if isinstance(source, ParquetSource):
        label = _label_of(source.columns, source, meaning)
        return lambda: _parse_tables(ParquetRows(source.columns, label=label, weight=meaning.weight, features=spec))
    if format == "libsvm":
        return lambda: _parse_lines(LibsvmText(bias=spec.bias))
    if format == "json":
        name = meaning.label or (DEFAULT_LABELS[0] if meaning.labelled else None)
        return lambda: _parse_lines(JsonLines(label=name, weight=meaning.weight, features=spec, ignore=meaning.ignore))
    if format == "csv":
        columns = meaning.columns or csv_columns(source, meaning.separator)
        label = _label_of(columns, source, meaning)
        return lambda: _parse_lines(
            CsvText(
                columns,
                label=label,
                weight=meaning.weight,
                features=spec,
                header=not meaning.columns,
                separator=meaning.separator,
            )
        )
    raise ValueError(f"no parser for {format}")


def _label_of(columns: Sequence[str], source: Source, meaning: Meaning) -> str | None:
    """The column of the label. Raises BadInput if none is named and none has a usual name."""
    if meaning.label is not None:
        return meaning.label
    usual = next((name for name in DEFAULT_LABELS if name in columns), None)
    if usual is None and meaning.labelled:
        listed = ", ".join(columns[:10]) + (", …" if len(columns) > 10 else "")
        raise BadInput(
            f"{name_of(source.paths[0])}: no column is called {' or '.join(DEFAULT_LABELS)}; there are {listed}",
            action="Name the column that holds the label.",
        )
    return usual


def _parse_lines(parser: LineParser) -> BlockParser:
    def parse(block: Block | TableBlock) -> Parsed:
        assert isinstance(block, Block)
        if block.faults:
            return nothing_but(block)
        return parser.parse(block.text, block.first_line)

    return parse


def _parse_tables(rows: ParquetRows) -> BlockParser:
    def parse(block: Block | TableBlock) -> Parsed:
        assert isinstance(block, TableBlock)
        return rows.parse(block)

    return parse


def nothing_but(block: Block) -> Parsed:
    """No examples, and the faults of a block without text."""
    empty = ExampleBatch.empty()
    return Parsed(batch=empty, lines=empty.row_start[:0], labelled=empty.label != 0.0, tags=[], faults=[*block.faults])
