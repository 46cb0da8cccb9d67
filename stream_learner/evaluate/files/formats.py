"""Tells the format of a file by its first bytes and its name, and reads the header of CSV.

It is asked only where the user has not named a format.

1. `PAR1` at the beginning is Parquet.
2. The name, without `.gz` or `.zst`: `.vw`, `.libsvm`, `.svm`, `.svmlight`, `.csv`, `.tsv`, `.json`, `.jsonl`,
   `.ndjson`.
3. The first line that is not empty: `{` begins JSON; a label and `index:value` are LIBSVM; `|` stands in VW text, and
   a comma, a tab or a semicolon in CSV.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final, Literal, get_args

from stream_learner.errors import BadInput
from stream_learner.evaluate.files.source import TextSource
from stream_learner.evaluate.files.streams import STDIN, FileStream, name_of
from stream_learner.evaluate.formats.csv import csv_names

Format = Literal["vw", "libsvm", "csv", "json", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

_BY_NAME: Final[dict[str, Format]] = {
    ".vw": "vw",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_COMPRESSED = (".gz", ".zst", ".zstd")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LIBSVM = re.compile(rf"(?:{_NUMBER}[ \t]+)?(?:qid:\S+[ \t]+)?\d+:{_NUMBER}(?:[ \t]+\d+:{_NUMBER})*[ \t]*(?:#.*)?")
_SEPARATORS = "\t,;"


def guess_format(source: TextSource) -> Format:
    """The format of the files of a source, told by the first file.

    Raises BadInput if it cannot be told, or the file cannot be read.
    """
    path = source.paths[0]
    if path != STDIN and _begins(path, b"PAR1"):
        return "parquet"
    by_name = _by_name(path)
    if by_name is not None:
        return by_name
    found = _by_line(first_line(source, path))
    if found is None:
        raise BadInput(
            f"{name_of(path)}: its first line does not show of which format it is",
            action=f"Name the format: {', '.join(FORMATS)}.",
        )
    return found


def first_line(source: TextSource, path: str) -> bytes:
    """The first line of a file that is not empty, without its end; b"" if there is none. Raises BadInput."""
    block = source.head(path)
    lines = block.text.splitlines() if block else []
    return next((line for line in lines if line.strip()), b"")


def csv_columns(source: TextSource, separator: str = ",") -> tuple[str, ...]:
    """The column names in the first line of the files of a source.

    Raises BadInput if a file has no header, or the files have different ones.
    """
    columns: tuple[str, ...] = ()
    for path in source.paths:
        try:
            names = csv_names(_header(source, path), separator)
        except ValueError as error:
            raise BadInput(
                f"{name_of(path)} line 1: {error}", action="Give the file a header, or name the columns yourself."
            ) from None
        if columns and names != columns:
            raise BadInput(
                f"{name_of(path)} line 1: its columns are not those of {name_of(source.paths[0])}",
                action="Evaluate files together only if they have the same columns in the same order.",
            )
        columns = names
    return columns


def guess_separator(source: TextSource) -> str:
    """The separator of CSV: of tab, comma and semicolon the one that is most frequent in the first line."""
    line = first_line(source, source.paths[0]).decode(errors="replace")
    return max(_SEPARATORS, key=lambda separator: (line.count(separator), separator == ","))


def _header(source: TextSource, path: str) -> bytes:
    block = source.head(path)
    return block.text.partition(b"\n")[0] if block else b""


def _begins(path: str, magic: bytes) -> bool:
    with FileStream(path) as stream:
        return stream.raw(len(magic)) == magic


def _by_name(path: str) -> Format | None:
    """The format that a file's name tells, or None."""
    name = PurePath(path.lower())
    if name.suffix in _COMPRESSED:
        name = name.with_suffix("")
    return _BY_NAME.get(name.suffix)


def _by_line(line: bytes) -> Format | None:
    """The format that a line tells, or None."""
    text = line.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        return "json"
    if _LIBSVM.fullmatch(text):
        return "libsvm"
    if "|" in text:
        return "vw"
    return "csv" if any(separator in text for separator in _SEPARATORS) else None
