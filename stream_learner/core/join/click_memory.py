"""The clicks that have been taken by a tick and not forgotten yet: remembered in offset order, found by id.

A remembered click is a record of 32 bytes. Clicks are numbered from 0 in the order in which they are taken; number `n`
lies in block `n // BLOCK`, modulo the number of blocks. Numbers below `first` are forgotten. The clicks of one id form
a chain from the newest to the oldest; the id table holds the number of the newest.

    byte  type  field
       0  i64   offset
       8  i64   time, ms
      16  f64   value
      24  i64   word: bits 0-6 code, bit 7 whether it is ahead, bits 8-15 clicks of its id up to this one, at
                most `CROWDED`,
                from bit 16 on how many numbers back the click before it in the chain lies, 0 for none

The code is `UNMATCHED`, `LATE`, `MATCHED`, `DUPLICATE` (as in `ClickCode`) or `DEAD`. It is the outcome that is counted
when the click is forgotten. It never decides when that is: times do, and whether the click was ahead when it was taken,
in offset order. So clicks that are read again after a restart, with the codes of a resume point, are forgotten by the
same ticks as before.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.join.batches import ClickBatch
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.marks import AHEAD, AHEAD_RULES, LOG_TIME_RULES, RULES
from stream_learner.core.machine.entries import F64, I64, U8, entry
from stream_learner.core.machine.id_table import IdTable, find_entry, put_entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import bits_of_float, load_i64, store_i64

BLOCK = 4096
CLICK_BYTES = 32
TIME, VALUE, WORD = 8, 16, 24
"""Offsets of the time, the value and the word of a remembered click."""
UNMATCHED, LATE, MATCHED, DUPLICATE, DEAD = range(5)
_IS_AHEAD = 128
"""The bit of a word that says that the click is ahead."""
EARLY = 5
"""The place behind those of the codes, where clicks are counted that go unmatched before their own time."""
CROWDED = 255
"""The largest count of clicks of an id that a word holds; it stands for more of them, too."""
NONE = -1
"""In place of a click's number: there is none, or it is forgotten."""

_BLOCK_BITS = 12
_BACK = 16
_NO_CODES = np.zeros(0, np.uint8)


class ClickPlace(NamedTuple):
    """The addresses at which kernels find the remembered clicks.

    table: the header of the `IdTable` with the newest click of each id. blocks: the address of the table of block
    addresses. block_mask: the length of that table, less one. first: the number of the first click not forgotten.
    """

    table: int
    blocks: int
    block_mask: int
    first: int


Place = tuple[int, int, int, int]
"""The fields of a `ClickPlace`. A kernel that is called from Python takes this plain tuple, and opens it as the
NamedTuple: that costs nothing, while Numba takes half a microsecond to recognise a NamedTuple at each call.
"""


class ClickMemory:
    """The remembered clicks of one partition.

    first, end: the numbers of the first click not forgotten and of the next one to be taken. forgotten_log_time,
    forgotten_usual_time: those with which the last ones were forgotten.
    """

    def __init__(self, spec: JoinSpec, log_time: int, usual_time: int | None = None) -> None:
        self._spec = spec
        self._table = IdTable()
        self.first = 0
        self.end = 0
        self.forgotten_log_time = log_time
        self.forgotten_usual_time = log_time if usual_time is None else usual_time
        self._held: deque[NDArray[np.int64]] = deque()
        self._first_block = 0
        self._place_blocks(1)

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def place(self) -> Place:
        """For kernels: valid while this object lives, until clicks are taken or forgotten."""
        return self._table.header, self._blocks_address, self._block_mask, self.first

    @property
    def first_offset(self) -> int | None:
        """Offset of the first click not forgotten, None if there is none."""
        if self.first == self.end:
            return None
        return int(click_offset(self.place, self.first))

    def take(
        self,
        batch: ClickBatch,
        stop: int,
        late_before_ms: int,
        codes: NDArray[np.uint8] = _NO_CODES,
        rules: int = RULES,
    ) -> None:
        """Remember the clicks from `batch.start` to before index `stop`.

        Their codes are `codes`, one for each click of the batch, if given. Else they follow from the rules: a click
        with a time before `late_before_ms` is late then, and one more than `lateness` after it ahead. rules: of the
        mark; before `AHEAD_RULES` every click is ahead, before `RULES` a late one is a duplicate as any other.
        """
        self._make_room(self.end + stop - batch.start)
        base = self.end - batch.start
        while batch.start < stop:
            batch.start = take_clicks(
                self.place,
                base + batch.start,
                *batch.columns,
                batch.start,
                stop,
                codes,
                self._spec.span_ms,
                late_before_ms,
                late_before_ms + self._spec.lateness_ms if rules >= AHEAD_RULES else -1,
                rules >= RULES,
            )
            self.end = base + batch.start
            if batch.start < stop:
                self._table.grow(int(batch.columns.ids[batch.start]), self.first)

    def forget(self, end_ms: int, outcomes: NDArray[np.int64], rules: int = RULES) -> None:
        """Forget the clicks that go when windows are closed up to `end_ms`, in offset order.

        Each is counted by its code in `outcomes`, i64[6], and where it is early at `EARLY`. rules: of the mark; by
        `LOG_TIME_RULES` the least time of a row counts, from `AHEAD_RULES` on the median of nearly two, between of one.
        """
        spec = self._spec
        self.first, self.forgotten_log_time, self.forgotten_usual_time = expire_clicks(
            self.place,
            self.end,
            self.forgotten_log_time,
            self.forgotten_usual_time,
            np.empty(2 * spec.agree - 1 if rules >= AHEAD_RULES else spec.agree, np.int64),
            spec.agree,
            rules > LOG_TIME_RULES,
            spec.lateness_ms,
            end_ms - spec.keep_ms,
            outcomes,
        )
        while self._held and self._first_block < self.first // BLOCK:
            self._held.popleft()
            self._first_block += 1

    def codes(self) -> NDArray[np.uint8]:
        """The codes of all clicks not forgotten, in offset order, as a resume point holds them."""
        out = np.empty(len(self), np.uint8)
        click_codes(self.place, out)
        return out

    def _make_room(self, end: int) -> None:
        if not self._held:
            self._first_block = self.first // BLOCK
        wanted = (end + BLOCK - 1) // BLOCK - self._first_block
        if wanted > len(self._blocks):
            self._place_blocks(1 << (wanted - 1).bit_length())
        while len(self._held) < wanted:
            self._held.append(np.empty(BLOCK * CLICK_BYTES // 8, np.int64))
            self._place_block(self._first_block + len(self._held) - 1, self._held[-1])

    def _place_blocks(self, count: int) -> None:
        """Make the table of `count` block addresses, and enter the blocks that are held."""
        self._blocks = np.zeros(count, np.int64)
        self._block_mask = count - 1
        self._blocks_address: int = self._blocks.ctypes.data  # asked for once: NumPy takes a microsecond to tell it
        for i, held in enumerate(self._held):
            self._place_block(self._first_block + i, held)

    def _place_block(self, block: int, held: NDArray[np.int64]) -> None:
        self._blocks[block & self._block_mask] = held.ctypes.data


@kernel
def click_address(clicks: ClickPlace, number: int) -> int:
    """The address of a remembered click."""
    block = load_i64(clicks.blocks + 8 * ((number >> _BLOCK_BITS) & clicks.block_mask))
    return block + CLICK_BYTES * (number & (BLOCK - 1))


@kernel
def code_of(word: int) -> int:
    """The code of the click with this word."""
    return word & (_IS_AHEAD - 1)


@kernel
def crowd_of(word: int) -> int:
    """How many clicks of its id there are up to the click with this word, at most `CROWDED`."""
    return (word >> 8) & 255


@kernel
def newest_click(clicks: ClickPlace, entry: int) -> int:
    """The number of the newest click of an id whose entry of the table lies at `entry`, or `NONE`."""
    newest = load_i64(entry + 8) - 1
    return newest if newest >= clicks.first else NONE


@kernel
def click_before(clicks: ClickPlace, number: int, word: int) -> int:
    """The number of the click before `number` in the chain of its id, or `NONE`; `word` is that of `number`."""
    back = word >> _BACK
    return number - back if back != 0 and number - back >= clicks.first else NONE


@kernel
def set_code(click: int, word: int, code: int) -> None:
    """Give the click at an address, whose word is `word`, another code."""
    store_i64(click + WORD, (word & -_IS_AHEAD) | code)


@kernel
def _is_repeated(clicks: ClickPlace, newest: int, time: int, span_ms: int, by_counted: bool) -> bool:
    """Whether a click of the chain that begins with `newest` has a time within `span_ms` of `time`.

    by_counted: only one that is matched, or has the same time: no other vouches that a late click was seen in time.
    """
    number = newest
    while number != NONE:
        click = click_address(clicks, number)
        word, apart = load_i64(click + WORD), abs(load_i64(click + TIME) - time)
        if apart <= span_ms and (not by_counted or apart == 0 or code_of(word) == MATCHED):
            return True
        number = click_before(clicks, number, word)
    return False


@entry
def take_clicks(
    place: Place,
    number: int,
    offsets: I64,
    ids: I64,
    status: U8,
    times: I64,
    values: F64,
    start: int,
    stop: int,
    codes: U8,
    span_ms: int,
    late_before_ms: int,
    ahead_after_ms: int,
    late_by_counted: bool,
) -> int:
    """Remember the clicks from index `start` to before `stop` as numbers `number`, `number + 1`, ... .

    Their codes are `codes` if that is not empty. Else a click is a duplicate if an earlier one of its id that is not
    forgotten has a time within `span_ms` (window + skew) of its own, and late if its time is before `late_before_ms`,
    and ahead if it is after `ahead_after_ms`. late_by_counted: one before `late_before_ms` is a duplicate only of one
    that is matched or has its time.
    Returns the index at which it stopped: `stop`, or that of a click for whose id the table must grow first.
    """
    clicks = ClickPlace(*place)
    given = len(codes) > 0
    for i in range(start, stop):
        code, back, crowd, ahead = DEAD, 0, 1, False
        if status[i] == 0:
            entry = find_entry(clicks.table, ids[i])
            newest = newest_click(clicks, entry)
            if not put_entry(clicks.table, entry, ids[i], number):
                return i
            if newest != NONE:
                back = number - newest
                crowd = min(crowd_of(load_i64(click_address(clicks, newest) + WORD)) + 1, CROWDED)
            ahead = times[i] > ahead_after_ms
            if given:
                code, ahead = np.int64(codes[i]) & (AHEAD - 1), codes[i] >= AHEAD
            else:
                code = LATE if times[i] < late_before_ms else UNMATCHED
                if newest != NONE and _is_repeated(clicks, newest, times[i], span_ms, late_by_counted and code == LATE):
                    code = DUPLICATE
        click = click_address(clicks, number)
        store_i64(click, offsets[i])
        store_i64(click + TIME, times[i])
        store_i64(click + VALUE, bits_of_float(values[i]))
        store_i64(click + WORD, (back << _BACK) | (crowd << 8) | (_IS_AHEAD if ahead else 0) | code)
        number += 1
    return stop


@kernel
def _sort_row(clicks: ClickPlace, number: int, end: int, row: I64, agree: int) -> int:
    """Put the times of a click that is not dead and those after it into `row`, in order; click `end` - 1 is the last.

    The click's own time stands for each that is missing. Returns the least of the first `agree`.
    """
    own = load_i64(click_address(clicks, number) + TIME)
    n, least = 0, own
    while n < len(row):
        time, i = own, n
        if number < end:
            click = click_address(clicks, number)
            number += 1
            if code_of(load_i64(click + WORD)) == DEAD:
                continue
            time = load_i64(click + TIME)
        if n < agree:
            least = min(least, time)
        while i > 0 and row[i - 1] > time:  # sorted in; times come nearly in order
            row[i] = row[i - 1]
            i -= 1
        row[i] = time
        n += 1
    return least


@entry
def expire_clicks(
    place: Place,
    end: int,
    log_time: int,
    usual_time: int,
    row: I64,
    agree: int,
    by_usual: bool,
    lateness_ms: int,
    before_ms: int,
    outcomes: I64,
) -> tuple[int, int, int]:
    """Forget clicks from the first on while they are dead, or their time is below `before_ms`; of one that is ahead
    min(time, usual time + lateness).

    `end` is the number after the last click; `log_time` and `usual_time` are those of the clicks forgotten before.
    row: scratch, as long as the row that usual times are of. by_usual: False takes the log time in place of the
    usual one. Counts each click by its code, and those that are early. Returns the number of the first click still
    remembered, `end` if none is, and both times of those forgotten now and before.
    """
    clicks = ClickPlace(*place)
    number = clicks.first
    while number < end:
        click = click_address(clicks, number)
        code = code_of(load_i64(click + WORD))
        if code != DEAD:
            least = _sort_row(clicks, number, end, row, agree)
            passed, usual = max(log_time, least), max(usual_time, row[(len(row) - 1) // 2])
            until = load_i64(click + TIME)
            if load_i64(click + WORD) & _IS_AHEAD:
                until = min(until, (usual if by_usual else passed) + lateness_ms)
            if until >= before_ms:
                break
            log_time, usual_time = passed, usual
            outcomes[EARLY] += code == UNMATCHED and load_i64(click + TIME) >= before_ms
        outcomes[code] += 1
        number += 1
    return number, log_time, usual_time


@entry
def click_offset(place: Place, number: int) -> int:
    """Offset of a remembered click."""
    clicks = ClickPlace(*place)
    return load_i64(click_address(clicks, number))


@entry
def click_codes(place: Place, out: U8) -> None:
    """The codes of the remembered clicks, with `AHEAD`, as many as `out` takes; that of a dead one is `UNMATCHED`."""
    clicks = ClickPlace(*place)
    for i in range(len(out)):
        word = load_i64(click_address(clicks, clicks.first + i) + WORD)
        code = code_of(word)
        out[i] = UNMATCHED if code == DEAD else code | (AHEAD if word & _IS_AHEAD else 0)
