"""The one reader of the training log: over random histories, against rule R itself, and its table of errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stream_learner.adapters.kafka import RawBatch
from stream_learner.adapters.record_errors import ANOTHER_NAME, error_in_state, error_in_topic
from stream_learner.core.errors import BrokenLog, DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where
from stream_learner.core.log.examples import decode
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import RuleR
from stream_learner.errors import DamagedLog, LogTrimmed, NewerFormat, StateDamaged, Stop
from stream_learner.roles.common.log_reader import accepted, beginning_in_sight, marks, records, records_of
from tests.core.log.log_world import Rules, World

PLACE = ("m.examples", 0)
SEEDS = range(12)


def log_of(seed: int) -> list[tuple[int, bytes | None]]:
    """The log that several writers leave behind, with its offsets."""
    world = World(seed, Rules())
    world.run()
    return list(enumerate(world.log))


class InMemory:
    """A reader of records in memory that brings three at a time, and every other time none."""

    topic, partition = PLACE

    def __init__(self, log: list[tuple[int, bytes | None]]) -> None:
        self._log = log
        self._reads = 0
        self.position = 0

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        self._reads += 1
        found = self._log[self.position : self.position + 3]
        if self._reads % 2 or not found:
            return None
        self.position += len(found)
        values = [value for _, value in found]
        return RawBatch(np.array([offset for offset, _ in found]), np.zeros(len(found), np.int64), values)

    def seek(self, offset: int) -> None:
        self.position = offset

    def close(self) -> None:
        pass

    def __enter__(self) -> InMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_read_up_to_the_end_asked_for_and_none_beyond(seed: int) -> None:
    log = log_of(seed)
    end = len(log) * 2 // 3
    assert list(records(InMemory(log), end)) == log[:end]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_accepted_ticks_are_those_of_rule_r(seed: int) -> None:
    log, rule = log_of(seed), RuleR(partition=0)
    wanted = [tick.mark for offset, value in log if (tick := rule.take(offset, value))]
    assert [tick.mark for tick in accepted(RuleR(partition=0), PLACE, log)] == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_marks_are_all_records_that_are_marks_accepted_or_not(seed: int) -> None:
    log = log_of(seed)
    wanted = [(offset, found) for offset, value in log if isinstance(found := decode(value or b""), Mark)]
    assert list(marks(PLACE, log)) == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_of_a_log_is_read_on_from_an_accepted_mark(seed: int) -> None:
    """From the first one in sight, and all accepted ticks after it."""
    log, rule = log_of(seed), RuleR(partition=0)
    ticks = [tick for offset, value in log if (tick := rule.take(offset, value))]
    later = ticks[len(ticks) // 4 :]
    begin = beginning_in_sight(marks(PLACE, log[later[0].mark_offset :]))
    assert begin is not None
    assert (begin.offset, begin.mark.id) == (later[0].mark_offset + 1, later[0].mark.id)
    found = accepted(begin.rule(0), PLACE, log[begin.offset :])
    assert [tick.mark for tick in found] == [tick.mark for tick in later[1:]]


def test_a_log_without_marks_has_no_beginning_in_sight() -> None:
    assert beginning_in_sight(marks(PLACE, [])) is None
    assert list(records_of(None)) == []


def test_a_damaged_mark_stops_reading_with_its_place_or_is_skipped() -> None:
    log = log_of(1)
    offset, mark = list(marks(PLACE, log))[1]
    value = log[offset][1] or b""
    log[offset] = (offset, value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(DamagedLog, match=rf"m\.examples partition 0 offset {offset}: the body's checksum"):
        list(marks(PLACE, log))
    assert mark not in [found for _, found in marks(PLACE, log, skip_damaged=True)]
    with pytest.raises(DamagedLog, match=f"offset {offset}"):
        list(accepted(RuleR(partition=0), PLACE, log))


def test_whoever_misses_the_first_records_is_told_the_same() -> None:
    """A reader with no mark that is shown an offset other than 0."""
    log = log_of(2)
    with pytest.raises(LogTrimmed, match=r"m\.examples partition 0 offset 5: ") as raised:
        list(accepted(RuleR(partition=0), PLACE, log[5:]))
    assert raised.value.action.startswith("Records before this offset are missing: restore the log.")
    assert raised.value.action.endswith(ANOTHER_NAME)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (NewerVersion, NewerFormat),
        (BrokenLog, LogTrimmed),
        (ForeignRecord, DamagedLog),
        (DamagedRecord, DamagedLog),
    ],
)
def test_every_bad_record_of_a_topic_has_its_error(kind: type[RecordError], wanted: type[Stop]) -> None:
    """The error names the record's own offset if that is known."""
    found = error_in_topic(kind("what it is"), "m.examples", 3, 9)
    assert (type(found), found.message) == (wanted, "m.examples partition 3 offset 9: what it is")
    assert "offset 7: what it is" in error_in_topic(kind("what it is", Where(7)), "m.examples", 3, 9).message


@pytest.mark.parametrize(
    ("kind", "wanted"), [(NewerVersion, NewerFormat), (ForeignRecord, StateDamaged), (DamagedRecord, StateDamaged)]
)
def test_every_bad_record_of_a_state_directory_has_its_error(kind: type[RecordError], wanted: type[Stop]) -> None:
    found = error_in_state(kind("what it is"), Path("/state"))
    assert (type(found), found.message) == (wanted, "/state: what it is")
