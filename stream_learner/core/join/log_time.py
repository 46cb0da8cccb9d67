"""Log time: how far event time has come in one input, by the agreement of `agree` events in a row.

`docs/join-rules.md` defines *row*, *least time* and *log time*. Log time is needed in three ways:

- while records are read, to know which ticks may close: `LogTime`, record by record, for complete rows only;
- while a tick is emitted, to be written with its examples: `written_log_times`, where the last record ends all rows;
- to look for a border, by half of each row: `first_candidate`, `count_before`, `take_row`.

A record that is dead (its status is not 0) belongs to no row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.entries import I64, U8, entry
from stream_learner.core.machine.kernels import kernel

NO_LOG_TIME = -1
"""Log time where no good record has been read yet. Times are never negative."""

_OUT_OF_ORDER, _NEGATIVE_TIME = -1, -2
_INDEX, _READ, _LEAST, _TOP, _TIMES = range(5)
"""Words of the state of `log_times`: index in the block, events so far, least of the block, log time, the block."""
_NO_TIME = np.iinfo(np.int64).max


class LogTime:
    """How far the log time of one input has come, fed with its records in offset order.

    now: the largest least time of all complete rows, ms; `NO_LOG_TIME` before the first.
    """

    __slots__ = ("_agree", "_state", "now")

    def __init__(self, agree: int, log_time: int) -> None:
        """agree: events in a row. log_time: how far it had come before the first record; `NO_LOG_TIME` if nowhere."""
        self._agree = agree
        self._state = _new_state(agree, log_time)
        self.now = log_time

    def passed(
        self, offsets: NDArray[np.int64], status: NDArray[np.uint8], times: NDArray[np.int64], position: int
    ) -> NDArray[np.int64]:
        """How far log time has come with each of these records; i64[n], never decreasing.

        Raises ValueError if the columns differ in length, if offsets do not rise from `position` on, or if a good
        record has a negative time. This object must be dropped then.
        """
        if not len(offsets) == len(status) == len(times):
            raise ValueError(f"{len(offsets)} offsets, {len(status)} records")
        out = np.empty(len(offsets), np.int64)
        wrong = log_times(offsets, status, times, position, self._agree, self._state, out)
        if wrong == _OUT_OF_ORDER:
            raise ValueError(f"offsets must rise from position {position} on")
        if wrong == _NEGATIVE_TIME:
            raise ValueError("a good record has a negative time")
        self.now = int(self._state[_TOP])
        return out


def _new_state(agree: int, log_time: int) -> NDArray[np.int64]:
    """The state of `log_times` before the first record: i64[_TIMES + agree]."""
    state = np.zeros(_TIMES + agree, np.int64)
    state[_TOP], state[_LEAST] = log_time, _NO_TIME
    return state


@entry
def log_times(offsets: I64, status: U8, times: I64, position: int, agree: int, state: I64, out: I64) -> int:
    """Write to `out` how far log time has come with each record: the largest least time of the rows complete by then.

    state: carried on from batch to batch; `_new_state` makes the first. Returns 0, `_OUT_OF_ORDER` if offsets do not
    rise from `position` on, or `_NEGATIVE_TIME` if a good record has one; the state must be dropped then.

    Times fill a block of `agree` words again and again. When it is full, each time in it is replaced by the least from
    there to the block's end. So the least of the last `agree` times is the smaller of two numbers: the least of the new
    times, and the word behind them, which is the least of what is left of the old ones.
    """
    index, read, least, top = state[_INDEX], state[_READ], state[_LEAST], state[_TOP]
    for i in range(len(offsets)):
        if offsets[i] < position:
            return _OUT_OF_ORDER
        position = offsets[i] + 1
        if status[i] == 0:
            time = times[i]
            if time < 0:
                return _NEGATIVE_TIME
            if index == agree:
                for k in range(_TIMES + agree - 2, _TIMES - 1, -1):
                    state[k] = min(state[k], state[k + 1])
                index = 0
                least = time
            least = min(least, time)
            state[_TIMES + index] = time
            index += 1
            read += 1
            if read >= agree:
                row = min(least, state[_TIMES + index]) if index < agree else least
                top = max(top, row)
        out[i] = top
    state[_INDEX], state[_READ], state[_LEAST], state[_TOP] = index, read, least, top
    return 0


@entry
def written_log_times(status: U8, times: I64, agree: int, log_time: int, out: I64) -> int:
    """Write to `out` the log time of each record, where the last record ends all rows. Returns that of the last.

    Log times never decrease and are never below `log_time`.

    The records are gone through from the last to the first. The least time of a row stays that of the row behind it,
    unless this record is less, or the least one has left the row; then the row is searched. Where events are in order
    that never happens.
    """
    least, left = _NO_TIME, 0
    for i in range(len(times) - 1, -1, -1):
        if status[i] != 0:
            out[i] = log_time
            continue
        left -= 1
        if times[i] <= least:
            least, left = times[i], agree
        elif left == 0:
            least, left = _least_from(status, times, i, agree)
        out[i] = least
    for i in range(len(times)):
        log_time = max(log_time, out[i])
        out[i] = log_time
    return log_time


@kernel
def _least_from(status: U8, times: I64, start: int, agree: int) -> tuple[int, int]:
    """The least time of a good record's row, and how many good records further back it is no longer in the row."""
    least, left, seen = times[start], agree, 0
    for i in range(start, len(times)):
        if status[i] == 0:
            if times[i] < least:
                least, left = times[i], agree - seen
            seen += 1
            if seen == agree:
                break
    return least, left


@entry
def first_candidate(status: U8, times: I64, start: int, time_ms: int, agree: int, far_ms: int) -> int:
    """The index of the first record from `start` on that waits for `time_ms`, or whose row these records do not decide.

    A good record waits if its own time is at or past `time_ms`, and fewer than half of `agree` in its row are before.
    The row of one near the end goes on in later batches: `count_before`. The number of records if there is none.
    """
    for i in range(start, len(times)):
        if status[i] == 0 and times[i] >= time_ms:
            _, before = count_before(status, times, i + 1, agree - 1, time_ms, far_ms)
            if 2 * before < agree:
                return i
    return len(times)


@entry
def count_before(status: U8, times: I64, start: int, most: int, time_ms: int, far_ms: int) -> tuple[int, int]:
    """The number of the first `most` good records from `start` on, and how many of them are before `time_ms`.

    Those after `far_ms` are passed over.
    """
    found, before = 0, 0
    for i in range(start, len(times)):
        if found == most:
            break
        if status[i] == 0 and times[i] <= far_ms:
            found += 1
            before += times[i] < time_ms
    return found, before


@entry
def take_row(status: U8, times: I64, start: int, found: int, row: I64, far_ms: int) -> int:
    """Put the times of good records from `start` on into `row`, behind the first `found`; how many it then has.

    Those after `far_ms` are passed over, but for the first of the row.
    """
    for i in range(start, len(times)):
        if found == len(row):
            break
        if status[i] == 0 and (times[i] <= far_ms or found == 0):
            row[found] = times[i]
            found += 1
    return found
