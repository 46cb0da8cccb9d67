"""Labels of impressions whose id has very many clicks, where every impression stands for itself (`dedupe` is 0).

In: the impressions of a tick, the clicks remembered. Out: their labels; the clicks that count for them are matched.
This file must never take longer than the clicks and the impressions of an id together, sorted, take.

Looking through the clicks of an id once for each of its impressions would take the product of both numbers. Here both
are sorted by time, and a window of clicks is moved over the impressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.join.kernels import (
    BLOCK,
    CLICK_BYTES,
    CROWDED,
    LATE,
    TIME,
    VALUE,
    WORD,
    back_of,
    click_address,
    crowd_of,
    matched_word,
)
from stream_learner.core.machine.id_table import IdTable, find_entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import float_of_bits, load_i64, store_i64

if TYPE_CHECKING:
    from stream_learner.core.join.clicks import ClickMemory
    from stream_learner.core.join.rows import ImpressionRows
    from stream_learner.core.join.spec import JoinSpec

_NONE = np.zeros(0)


def crowded_labels(
    rows: ImpressionRows, stop: int, late_before_ms: int, clicks: ClickMemory, spec: JoinSpec
) -> NDArray[np.float64]:
    """Labels f64[n] of the batch's rows before `stop` whose id has very many clicks, -1 for all others; empty if none.

    Late and dead rows have none.
    """
    found = np.empty(stop - rows.start, np.int64)
    place = (clicks.table.header, clicks.blocks, clicks.block_mask, clicks.first)
    count = crowded_rows(*place, rows.ids, rows.status, rows.time_ms, rows.start, stop, late_before_ms, found)
    if not count:
        return _NONE
    labels = np.full(len(rows.ids), -1.0)
    found = found[:count]
    for key in np.unique(rows.ids[found]).tolist():
        of_id = found[rows.ids[found] == key]
        labels[of_id] = _labels_of(key, rows.time_ms[of_id], clicks, spec)
    return labels


def _labels_of(key: int, times: NDArray[np.int64], clicks: ClickMemory, spec: JoinSpec) -> NDArray[np.float64]:
    place = (clicks.table.header, clicks.blocks, clicks.block_mask, clicks.first)
    numbers = np.empty(len(clicks), np.int64)
    numbers = numbers[: numbers_of(*place, key, numbers)]
    click_times, values = np.empty(len(numbers), np.int64), np.empty(len(numbers))
    read_clicks(clicks.blocks, clicks.block_mask, numbers, click_times, values)
    order, by_time = np.argsort(click_times, kind="stable"), np.argsort(times, kind="stable")
    click_times, rising = click_times[order], times[by_time]
    begin = np.searchsorted(click_times, rising - spec.skew_ms, "left")
    end = np.searchsorted(click_times, rising + spec.window_ms, "right")
    labels = np.empty(len(times))
    greatest_of_windows(values[order], begin, end, np.empty(len(numbers), np.int64), labels)
    edges = np.zeros(len(numbers) + 1, np.int64)
    np.add.at(edges, begin, 1)
    np.add.at(edges, end, -1)
    set_matched(clicks.blocks, clicks.block_mask, numbers[order[np.cumsum(edges)[:-1] > 0]])
    out = np.empty(len(times))
    out[by_time] = labels
    return out


@kernel
def crowded_rows(
    table: int,
    blocks: int,
    block_mask: int,
    first: int,
    ids: NDArray[np.int64],
    status: NDArray[np.uint8],
    times: NDArray[np.int64],
    start: int,
    stop: int,
    late_before_ms: int,
    out: NDArray[np.int64],
) -> int:
    """The good rows `start..stop-1` that are not late and whose id has `CROWDED` clicks or more; their number."""
    count = 0
    for i in range(start, stop):
        if status[i] != 0 or times[i] < late_before_ms:
            continue
        newest = load_i64(find_entry(table, ids[i]) + 8) - 1
        if newest >= first and crowd_of(load_i64(click_address(blocks, block_mask, newest) + WORD)) == CROWDED:
            out[count] = i
            count += 1
    return count


@kernel
def numbers_of(table: int, blocks: int, block_mask: int, first: int, key: int, out: NDArray[np.int64]) -> int:
    """The numbers of the remembered clicks of an id, the newest first; how many there are."""
    count = 0
    number = load_i64(find_entry(table, key) + 8) - 1
    while number >= first:
        out[count] = number
        count += 1
        back = back_of(load_i64(click_address(blocks, block_mask, number) + WORD))
        if back == 0:
            break
        number -= back
    return count


@kernel
def read_clicks(
    blocks: int, block_mask: int, numbers: NDArray[np.int64], times: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    """Time and value of remembered clicks."""
    for i in range(len(numbers)):
        click = click_address(blocks, block_mask, numbers[i])
        times[i] = load_i64(click + TIME)
        values[i] = float_of_bits(load_i64(click + VALUE))


@kernel
def set_matched(blocks: int, block_mask: int, numbers: NDArray[np.int64]) -> None:
    """Those of these clicks that were unmatched or late are matched."""
    for i in range(len(numbers)):
        click = click_address(blocks, block_mask, numbers[i])
        word = load_i64(click + WORD)
        if word & 255 <= LATE:
            store_i64(click + WORD, matched_word(word))


@kernel
def greatest_of_windows(
    values: NDArray[np.float64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    queue: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """The greatest of `values[begin[i]:end[i]]` for each i, 0 for none; neither begin nor end goes back.

    queue: i64[len(values)], memory: the places in the window whose value nothing behind them exceeds, in order.
    """
    head = tail = read = 0
    for i in range(len(begin)):
        while read < end[i]:
            while tail > head and values[queue[tail - 1]] <= values[read]:
                tail -= 1
            queue[tail] = read
            tail += 1
            read += 1
        while head < tail and queue[head] < begin[i]:
            head += 1
        out[i] = values[queue[head]] if head < tail else 0.0


def warm() -> None:
    """Compile every kernel of this module, for the types with which the join calls them."""
    table = IdTable()
    block = np.zeros(BLOCK * CLICK_BYTES // 8, np.int64)
    blocks = np.array([block.ctypes.data], np.int64)
    one, real, byte = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.uint8)
    place = (table.header, blocks.ctypes.data, 0, 0)
    crowded_rows(*place, one, byte, one, 0, 1, 0, one.copy())
    numbers_of(*place, 0, one.copy())
    read_clicks(blocks.ctypes.data, 0, one, one.copy(), real.copy())
    set_matched(blocks.ctypes.data, 0, one)
    greatest_of_windows(real, one, one, one.copy(), real.copy())
