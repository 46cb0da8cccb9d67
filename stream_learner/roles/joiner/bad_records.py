"""The bad records of a joiner's inputs: the letters that they get, and their share of what is read."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from stream_learner.core.events.reasons import Reason
from stream_learner.errors import TooManyBadRecords
from stream_learner.wording import count_of

BAD_SHARE_RECORDS = 100
"""The share of bad records is not judged while fewer records than this have been read within a period."""
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
    """The letters of one partition that are not in their topic yet: those that wait, and those in flight. Of the latter
    only sizes are kept.

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


class BadShare:
    """The share of bad records of each input topic within the current period, over all partitions of a joiner.

    Each topic has a share of its own: where one impression in fifty is clicked, clicks that are all bad would hardly
    raise a common share.
    """

    def __init__(self, limit: float, period_ms: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._period_s = period_ms / 1000
        self._clock_s = clock_s
        self._until_s = self._look_at_s = 0.0
        self._read: Counter[str] = Counter()
        self._bad: defaultdict[str, Counter[Reason]] = defaultdict(Counter)
        self._let_pass: set[str] = set()
        self._excused: dict[tuple[str, int], int] = {}

    def share_of(self, topic: str) -> float:
        """The share of a topic in the current period, 0.0 without records."""
        read = self._read[topic]
        return self._bad[topic].total() / read if read else 0.0

    def let_pass(self, topic: str) -> None:
        """Raise nothing more for this topic in the current period."""
        self._let_pass.add(topic)

    def note(self, topic: str, partition: int, offsets: np.ndarray, status: np.ndarray, why: str) -> None:
        """Count the records of a batch that are not excused. Raises TooManyBadRecords above the limit.

        why: the words for the last bad one.
        """
        first = first_at(offsets, self._excused.get((topic, partition), 0))
        offsets, status = offsets[first:], status[first:]
        if not len(status):
            return
        now_s = self._clock_s()
        if now_s > self._until_s:
            self._until_s = now_s + self._period_s
            self._read.clear()
            self._bad.clear()
            self._let_pass.clear()
        self._read[topic] += len(status)
        bad = status.nonzero()[0]
        if not len(bad):
            return
        self._bad[topic].update(Reason(code) for code in status[bad].tolist())
        read, found = self._read[topic], self._bad[topic]
        if topic not in self._let_pass and read >= BAD_SHARE_RECORDS and found.total() > self._limit * read:
            reasons = "; ".join(f"{count_of(count, 'time')} {reason.text}" for reason, count in found.most_common())
            raise TooManyBadRecords(
                f"{found.total()} of {count_of(read, 'record')} of {topic} read in the last {self._period_s:g} s "
                f"are bad ({reasons}), the latest in partition {partition} at offset {offsets[bad[-1]]} "
                f"({why}); join.max_bad_share allows {self._limit:.0%}"
            )

    def allows(self, bad: int, read: int) -> bool:
        """Whether a share of bad records is within the limit; False also where there are too few records to judge."""
        return read >= BAD_SHARE_RECORDS and bad <= self._limit * read

    def may_look(self) -> bool:
        """Whether a partition that is held may look at the newest records now: one of a joiner does each second."""
        now_s = self._clock_s()
        may = now_s >= self._look_at_s
        if may:
            self._look_at_s = now_s + 1.0
        return may

    def excuse(self, topic: str, before: Mapping[int, int]) -> None:
        """Begin a topic's share anew. before: by partition, the offset before which no record counts any more."""
        self._read.pop(topic, None)
        self._bad.pop(topic, None)
        self._excused.update({(topic, partition): offset for partition, offset in before.items()})


def first_at(offsets: np.ndarray, offset: int) -> int:
    """The index of the first of ascending offsets that is not below `offset`; nearly always the first of all."""
    return 0 if len(offsets) and offsets[0] >= offset else int(np.searchsorted(offsets, offset))
