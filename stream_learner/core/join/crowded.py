"""Labels of impressions whose id has very many clicks, where every impression stands for itself (`dedupe` is 0).

Going through the clicks of an id once for each of its impressions would take the product of both numbers. Here both are
sorted by time, and a window of clicks is moved over the impressions: it takes as long as sorting both.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.join.batches import Columns, ImpressionBatch, ImpressionColumns
from stream_learner.core.join.click_memory import (
    CROWDED,
    LATE,
    MATCHED,
    NONE,
    TIME,
    VALUE,
    WORD,
    ClickMemory,
    ClickPlace,
    Place,
    click_address,
    click_before,
    code_of,
    crowd_of,
    newest_click,
    set_code,
)
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.machine.entries import F64, I64, entry
from stream_learner.core.machine.id_table import find_entry
from stream_learner.core.machine.memory import float_of_bits, load_i64

_NO_LABELS = np.zeros(0)


def crowded_labels(
    batch: ImpressionBatch, stop: int, late_before_ms: int, clicks: ClickMemory, spec: JoinSpec
) -> NDArray[np.float64]:
    """Labels f64[n] of the impressions before index `stop` whose id has very many clicks, -1 for all others.

    Late and dead impressions have none. Empty if no impression has one. The clicks that count are matched.
    """
    columns = batch.columns
    found = np.empty(stop - batch.start, np.int64)
    count = crowded_impressions(clicks.place, tuple(columns), batch.start, stop, late_before_ms, found)
    if not count:
        return _NO_LABELS
    labels = np.full(len(columns.ids), -1.0)
    found = found[:count]
    for key in np.unique(columns.ids[found]).tolist():
        of_id = found[columns.ids[found] == key]
        labels[of_id] = _labels_of(key, columns.time_ms[of_id], clicks, spec)
    return labels


def _labels_of(key: int, times: NDArray[np.int64], clicks: ClickMemory, spec: JoinSpec) -> NDArray[np.float64]:
    """The labels of the impressions of one id with these times."""
    numbers = np.empty(len(clicks), np.int64)
    numbers = numbers[: clicks_of(clicks.place, key, numbers)]
    click_times, values = np.empty(len(numbers), np.int64), np.empty(len(numbers))
    read_clicks(clicks.place, numbers, click_times, values)
    order, by_time = np.argsort(click_times, kind="stable"), np.argsort(times, kind="stable")
    click_times, rising = click_times[order], times[by_time]
    begin = np.searchsorted(click_times, rising - spec.skew_ms, "left")
    end = np.searchsorted(click_times, rising + spec.window_ms, "right")
    labels = np.empty(len(times))
    greatest_of_windows(values[order], begin, end, np.empty(len(numbers), np.int64), labels)
    edges = np.zeros(len(numbers) + 1, np.int64)
    np.add.at(edges, begin, 1)
    np.add.at(edges, end, -1)
    match_clicks(clicks.place, numbers[order[np.cumsum(edges)[:-1] > 0]])
    out = np.empty(len(times))
    out[by_time] = labels
    return out


@entry
def crowded_impressions(
    place: Place, columns: Annotated[Columns, ImpressionColumns], start: int, stop: int, late_before_ms: int, out: I64
) -> int:
    """Write to `out` the indices of the good impressions `start..stop-1` that are not late and whose id has `CROWDED`
    clicks or more; returns their number.
    """
    clicks = ClickPlace(*place)
    batch = ImpressionColumns(*columns)
    ids, status, times = batch.ids, batch.status, batch.time_ms
    count = 0
    for i in range(start, stop):
        if status[i] != 0 or times[i] < late_before_ms:
            continue
        newest = newest_click(clicks, find_entry(clicks.table, ids[i]))
        if newest != NONE and crowd_of(load_i64(click_address(clicks, newest) + WORD)) == CROWDED:
            out[count] = i
            count += 1
    return count


@entry
def clicks_of(place: Place, key: int, out: I64) -> int:
    """Write the numbers of the remembered clicks of an id to `out`, the newest first; returns how many there are."""
    clicks = ClickPlace(*place)
    count = 0
    number = newest_click(clicks, find_entry(clicks.table, key))
    while number != NONE:
        out[count] = number
        count += 1
        number = click_before(clicks, number, load_i64(click_address(clicks, number) + WORD))
    return count


@entry
def read_clicks(place: Place, numbers: I64, times: I64, values: F64) -> None:
    """Write time and value of remembered clicks to `times` and `values`."""
    clicks = ClickPlace(*place)
    for i in range(len(numbers)):
        click = click_address(clicks, numbers[i])
        times[i] = load_i64(click + TIME)
        values[i] = float_of_bits(load_i64(click + VALUE))


@entry
def match_clicks(place: Place, numbers: I64) -> None:
    """Set those of these clicks that are unmatched or late to matched."""
    clicks = ClickPlace(*place)
    for i in range(len(numbers)):
        click = click_address(clicks, numbers[i])
        word = load_i64(click + WORD)
        if code_of(word) <= LATE:
            set_code(click, word, MATCHED)


@entry
def greatest_of_windows(values: F64, begin: I64, end: I64, queue: I64, out: F64) -> None:
    """Write the greatest of `values[begin[i]:end[i]]` to `out[i]`, 0 for an empty window. `begin` and `end` never go
    back.

    queue: i64[len(values)], memory for the indices in the window whose value no later one reaches, in order.
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
