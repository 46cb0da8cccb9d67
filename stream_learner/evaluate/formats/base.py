"""The types of a parsed block of lines, the same for every format."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleBatch


class Fault(NamedTuple):
    """The reason why a line was left out.

    line: its number in the file, from 1. column: the byte in the line, from 1. expected: what should stand there.
    """

    line: int
    column: int
    expected: str


class Parsed(NamedTuple):
    """The examples of a block of whole lines, in their order.

    batch: the examples; labels as written, log_time_ms 0, id_hash the line's number. lines i64[n]: the line of each.
    labelled bool[n]: False where there is nothing to learn from, only to predict (the label is then NaN).
    tags: of each example, or an empty list where no line of the block has one. faults: the lines left out.
    """

    batch: ExampleBatch
    lines: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    tags: list[bytes]
    faults: list[Fault]


class LineParser(Protocol):
    """Reads one format. Not for several threads at once: a parser reuses its buffers."""

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """Parse whole lines; the first one has number `first_line`. Nothing of a faulty line is in the batch."""
        ...
