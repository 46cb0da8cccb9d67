"""The dead records that marks count, against the letters in the dead-letter topic.

A letter must count once: a joiner that crashed writes letters again, under the same keys. So the keys are remembered,
8 bytes for each letter of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.kafka import READ_UNCOMMITTED, Admin, KafkaSettings, PartitionReader, TopicAndPartition
from stream_learner.operations.audit.findings import DEAD_LETTERS, Finding, Findings
from stream_learner.operations.audit.mark_checks import Sums
from stream_learner.roles.common.log_reader import READ_RECORDS, WAIT_S
from stream_learner.wording import count_of

COMPACT_AT = 100_000


@dataclass
class ExpectedLetters:
    """The marks count `count` dead records at offsets [start, stop) of one partition of an input."""

    start: int
    stop: int
    count: int
    _new: list[int] = field(default_factory=list)
    _known: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, offset: int) -> None:
        """Note the letter of the record at `offset`, if that is in the range."""
        if self.start <= offset < self.stop:
            self._new.append(offset)
            if len(self._new) >= COMPACT_AT:
                self.offsets()

    def offsets(self) -> NDArray[np.int64]:
        """The offsets of the letters found, i64[], rising, each once."""
        if self._new:
            self._known = np.union1d(self._known, np.array(self._new, np.int64))
            self._new.clear()
        return self._known


def expected_letters(
    impressions: str, clicks: str, sums: dict[int, Sums]
) -> dict[TopicAndPartition, list[ExpectedLetters]]:
    """The dead records that marks count, by input topic and partition; several ranges if the log begins anew."""
    found: dict[TopicAndPartition, list[ExpectedLetters]] = {}
    for partition, of in sums.items():
        for stretch in of.stretches if len(of.balances) == 1 else ():
            opening, last, balance = stretch.opening, stretch.last, stretch.balance
            if last is None:
                continue
            begin = (0, 0) if opening is None else (opening.next_impression, opening.first_click)
            dead = balance.impressions.dead, balance.clicks.dead
            found.setdefault((impressions, partition), []).append(
                ExpectedLetters(begin[0], last.next_impression, dead[0])
            )
            found.setdefault((clicks, partition), []).append(ExpectedLetters(begin[1], last.first_click, dead[1]))
    return found


def check_dead_letters(
    settings: KafkaSettings,
    admin: Admin,
    topic: str,
    expected: dict[TopicAndPartition, list[ExpectedLetters]],
    findings: Findings,
    progress: Callable[[int], None],
) -> None:
    """Read the dead letters and compare. Raises BrokerUnreachable, NotAuthorised."""
    info = admin.describe([topic]).get(topic)
    for of, partition in [place for place, ranges in expected.items() if _overlap(ranges)]:
        # The log began anew with a new topic of the same name: letters of both have the same keys.
        why = f"the log begins anew, and letters of {of} partition {partition} before and after it cannot be told apart"
        findings.leave_out(DEAD_LETTERS, why)
        expected[of, partition] = []
    counted = sum(letters.count for ranges in expected.values() for letters in ranges)
    if info is None:
        if counted:
            findings.leave_out(DEAD_LETTERS, f"there is no topic {topic}; {counted} are counted")
        return
    places = [(topic, partition) for partition in range(info.partitions)]
    earliest, ends = admin.offsets.earliest(places), admin.offsets.high_watermarks(places)
    for place in places:
        for offset, key in _keys(settings, place, earliest[place], ends[place]):
            progress(1)
            if not _note(key, expected):
                findings.pass_over(Finding(DEAD_LETTERS, f"no letter: the key {key!r}", topic, place[1], offset))
    is_trimmed = any(earliest.values())
    for (of, partition), letters in [(place, one) for place, ranges in expected.items() for one in ranges]:
        found = len(letters.offsets())
        findings.held(DEAD_LETTERS, letters.count)
        where = f"{of} partition {partition}, offsets {letters.start} to {letters.stop}"
        if found < letters.count and is_trimmed:
            findings.leave_out(DEAD_LETTERS, f"{topic} has lost its beginning; it holds {found} of {letters.count}")
        elif found != letters.count:
            what = f"{count_of(found, 'letter')} of {where}; the marks count {letters.count}"
            findings.fail(Finding(DEAD_LETTERS, what, topic, partition))


def _overlap(ranges: list[ExpectedLetters]) -> bool:
    return any(later.start < before.stop for before, later in pairwise(ranges))


def _note(key: bytes | None, expected: dict[TopicAndPartition, list[ExpectedLetters]]) -> bool:
    """Note a letter by its key, `<topic>/<partition>/<offset>`. False if the key is not of this form."""
    parts: Sequence[str] = (key or b"").decode(errors="replace").rsplit("/", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return False
    for letters in expected.get((parts[0], int(parts[1])), ()):
        letters.add(int(parts[2]))
    return True


def _keys(
    settings: KafkaSettings, place: TopicAndPartition, earliest: int, end: int
) -> Iterator[tuple[int, bytes | None]]:
    with PartitionReader(
        settings, *place, earliest, isolation=READ_UNCOMMITTED, name="audit-letters", with_keys=True
    ) as reader:
        while reader.position < end:
            batch = reader.read(READ_RECORDS, WAIT_S)
            if batch is not None:
                yield from zip(batch.offsets.tolist(), batch.keys or (), strict=True)
