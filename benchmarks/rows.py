"""What a benchmark gives back, and what it raises when it has only a part of it."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
"""name, value, unit and note."""


class Incomplete(Exception):
    """A benchmark that could not measure everything; `rows` are what it has."""

    def __init__(self, rows: list[Row], why: str) -> None:
        super().__init__(why)
        self.rows = rows
