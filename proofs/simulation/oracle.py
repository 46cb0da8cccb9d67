"""Rule R written down once more, slowly. This file must never use `RuleR` or `find_chain`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from proofs.simulation.kafka import Entry, Log
from stream_learner.core.log.header import Kind, RecordHeader, open_record
from stream_learner.core.log.marks import GENESIS, Mark, decode_mark


@lru_cache(50_000)
def read(value: bytes) -> tuple[RecordHeader | None, Mark | None]:
    """The header of a record, None if it is foreign, and the mark if it is one."""
    if value[:4] != b"SLTL":
        return None, None
    record = open_record(value)
    return record.header, decode_mark(record) if record.header.kind is Kind.MARK else None


def accepted_marks(entries: Sequence[Entry]) -> list[tuple[int, Mark]]:
    """The accepted marks with their offsets, of a log that is read from its beginning."""
    found: list[tuple[int, Mark]] = []
    last = GENESIS
    records: dict[tuple[int, int], list[int]] = {}
    for entry in entries:
        header, mark = read(entry.value or b"")
        if header is None:
            continue
        written = records.setdefault((header.attempt, header.tick), [])
        if mark is None:
            written.append(header.sequence)
            continue
        follows = mark.predecessor == last and mark.first_tick == last.last_tick + 1
        if follows and written == list(range(mark.records)):
            last = mark.id
            found.append((entry.offset, mark))
            records.clear()
    return found


def chain_is_sure(log: Log, start: int = 0) -> bool:
    """Whether a log without the records before `start` leaves no doubt: far more than half its marks are accepted."""
    start = max(start, log.start)
    if not start:
        return True
    accepted = sum(offset >= start for offset, _ in accepted_marks(log.archive))
    marks = sum(read(e.value or b"")[1] is not None for e in log.archive if e.offset >= start)
    return accepted > 1 + 2 * (marks - accepted)
