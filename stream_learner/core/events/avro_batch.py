"""Batches of Avro records to JSON by a kernel, one run of records after another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.fast import avro as kernels
from stream_learner.core.machine.memory import buffer_address

_ROOM = 1 << 16
"""Bytes of the smallest further buffer."""


class AvroBatch:
    """Makes the texts of one batch.

    lengths: of the texts, i64[n]; 0 for a record that has none.
    """

    def __init__(
        self, programs: Mapping[int, NDArray[np.uint8]], frame_bytes: int, most_bytes: int, most_text: int, n: int
    ) -> None:
        """programs: by the id of their schema, if they have any. most_bytes, most_text: of a record, of its text."""
        self.lengths = np.zeros(n, np.int64)
        self._programs = programs
        self._ids = np.array(list(programs), np.int64)
        self._addresses = np.array([buffer_address(program) for program in programs.values()], np.int64)
        self._stack = np.empty(kernels.MOST_DEEP + 1, np.int64)
        self._most_room = most_text + 6 * most_bytes + _ROOM
        ids, addresses, stack = map(buffer_address, (self._ids, self._addresses, self._stack))
        self._context = np.array(
            [ids, addresses, len(programs), frame_bytes, most_bytes, most_text, 0, 0, stack, 0], np.int64
        )
        self._texts: list[bytes | memoryview] = []
        """What stands before the text in the buffer."""

    def begin(self, room: int) -> None:
        """Have a new buffer of so many bytes."""
        self._buffer = np.empty(room + kernels.SLACK, np.uint8)
        self._taken = 0
        self._begin = buffer_address(self._buffer)
        self._context[kernels.CTX_OUT // 8] = self._begin
        self._context[kernels.CTX_LIMIT // 8] = self._begin + room

    def text(self) -> bytes | NDArray[np.uint8]:
        """The JSON of all records, one after another."""
        self._take_text()
        one = len(self._texts) == 1
        return np.frombuffer(self._texts[0], np.uint8) if one else b"".join(self._texts)

    def _take_text(self) -> None:
        filled = int(self._context[kernels.CTX_OUT // 8]) - self._begin
        if filled > self._taken:
            self._texts.append(self._buffer[self._taken : filled].data)
        self._taken = filled

    def add(self, i: int, text: bytes) -> None:
        """Add the text of record i, at which the kernel stopped."""
        self._take_text()
        self._texts.append(text)
        self.lengths[i] = len(text)

    def run(self, address: int, bounds: NDArray[np.int64], first: int) -> int:
        """Add the texts of the records of these bounds from the first on. Returns the number of the one at which the
        kernel stops, or how many there are.

        address: where byte 0 of the bounds is. PADDING bytes after each record must be readable.
        """
        last = len(bounds) - 1
        if not self._programs:
            return first
        places, lengths = buffer_address(bounds), buffer_address(self.lengths)
        while True:
            first = kernels.transcode(buffer_address(self._context), address, places, lengths, first, last)
            if first == last or self._context[kernels.CTX_STOPPED_BY // 8] != kernels.NO_ROOM:
                return first
            left = int(self._context[kernels.CTX_LIMIT // 8] - self._context[kernels.CTX_OUT // 8])
            if left >= self._most_room:
                return first
            self._take_text()
            self.begin(min(max(2 * left, len(self._buffer), _ROOM), self._most_room))
