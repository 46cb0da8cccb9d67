"""The dead letters of one partition, from the reading of a record until its letter is in the topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

LETTER_BYTES = 512
"""About what a letter takes in memory besides its value: key, headers, the producer's own structures."""


@dataclass(frozen=True)
class DeadLetter:
    """An input record that could not be used: its bytes, where it lies, and why."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    value: bytes | None
    reason: str

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, bytes."""
        return LETTER_BYTES + len(self.value or b"")


class DeadLetters:
    """Letters that are not in their topic yet: those that wait, and those in flight. Of the latter only sizes are kept.

    begin: by input topic, the offset from which on records need a letter; records before it have theirs, because a mark
    has counted them. limit_bytes: no letter is handed over while so many bytes are in flight.
    """

    def __init__(self, begin: Mapping[str, int], limit_bytes: int) -> None:
        self.begin = begin
        self._limit_bytes = limit_bytes
        self._read: deque[DeadLetter] = deque()
        self._read_bytes = 0
        self._on_their_way = 0
        self._bytes_on_their_way = 0

    @property
    def nbytes(self) -> int:
        """About how much memory all of them take, bytes."""
        return self._read_bytes + self._bytes_on_their_way

    @property
    def wait(self) -> bool:
        """Whether letters wait to be handed over; no record should be read until they are."""
        return bool(self._read)

    @property
    def are_there(self) -> bool:
        """Whether every record read has its letter in the topic."""
        return not self._read and not self._on_their_way

    def add(self, letter: DeadLetter) -> None:
        """Take the letter of a record that was read."""
        self._read.append(letter)
        self._read_bytes += letter.nbytes

    def hand_over(self) -> DeadLetter | None:
        """The next letter for the producer, in the order of reading; None while none may be handed over."""
        if not self._read or self._bytes_on_their_way >= self._limit_bytes:
            return None
        letter = self._read.popleft()
        self._read_bytes -= letter.nbytes
        self._on_their_way += 1
        self._bytes_on_their_way += letter.nbytes
        return letter

    def acknowledged(self, nbytes: int) -> None:
        """A letter is in the topic. nbytes: its `DeadLetter.nbytes`."""
        self._on_their_way -= 1
        self._bytes_on_their_way -= nbytes
