"""Which impressions of a tick are duplicates, and which become examples with which label.

The table of outcomes in `docs/join.md` stands here as code, in `label_impressions`. Where a click counts for one
impression only (`dedupe`), an impression looks through all clicks of its id; where it may count for many, the labels of
ids with very many clicks come from `crowded.py` instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.join.batches import ImpressionColumns
from stream_learner.core.join.click_memory import (
    MATCHED,
    NONE,
    TIME,
    VALUE,
    WORD,
    ClickMemory,
    ClickPlace,
    click_address,
    click_before,
    code_of,
    matched_word,
    newest_click,
    set_matched,
)
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.machine.hashing import mix
from stream_learner.core.machine.id_table import IdTable, find_entry, first_entry, put_entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import float_of_bits, load_i64, prefetch_for_write, store_i64

EXAMPLES, POSITIVES, DUPLICATES, SAMPLED_OUT, DEAD_IMPRESSIONS, LATE_IMPRESSIONS, FEATURES = range(7)
"""Where `label_impressions` counts what in its tally, i64[TALLY]."""
TALLY = 7

_AHEAD = 16
_REPEAT = -1.0
_SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15)  # keeps the choice apart from other uses of the id's hash


class LabelRule(NamedTuple):
    """What decides the labels of a tick. An impression with a time before `late_before_ms` is late.

    With `dedupe` a click counts for one impression only. Of the examples with label 0 the share `keep_negatives` is
    kept; `keep_below` is ceil(keep_negatives * 2^64), and not used where all are kept.
    """

    late_before_ms: int
    skew_ms: int
    window_ms: int
    dedupe: bool
    keep_negatives: float
    keep_below: np.uint64


def label_rule(spec: JoinSpec, late_before_ms: int) -> LabelRule:
    """The rule of a tick."""
    return LabelRule(
        late_before_ms, spec.skew_ms, spec.window_ms, spec.dedupe_ms > 0, spec.keep_negatives, spec.keep_below
    )


@kernel
def find_duplicates(table: int, columns: ImpressionColumns, start: int, stop: int, first: int) -> int:
    """Set `duplicate` of impressions `start..stop-1`: 1 where an id repeats one seen at or after offset `first`.

    Good impressions count as seen from then on. Returns the index at which it stopped: `stop`, or that of an impression
    for whose id the table must grow first.
    """
    offsets, ids, status, duplicate = columns.offsets, columns.ids, columns.status, columns.duplicate
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch_for_write(first_entry(table, ids[i + _AHEAD]))
        if status[i] != 0:
            continue
        entry = find_entry(table, ids[i])
        seen = load_i64(entry + 8) - 1
        if not put_entry(table, entry, ids[i], offsets[i]):
            return i
        duplicate[i] = seen >= first
    return stop


@kernel
def _match(clicks: ClickPlace, newest: int, earliest: int, latest: int, dedupe: bool) -> float:
    """The label of an impression: the greatest value of its clicks with a time in `earliest..latest`, 0 without any.

    Its clicks are the chain that begins with `newest`; those in the span are matched then (`_match_span`). With
    `dedupe`, where one of the chain has been matched before, the impression is a repeat: `_REPEAT`, nothing changed.
    """
    label, found = 0.0, False
    number = newest
    while number != NONE:
        click = click_address(clicks, number)
        word = load_i64(click + WORD)
        if dedupe and code_of(word) == MATCHED:
            return _REPEAT
        if earliest <= load_i64(click + TIME) <= latest:
            label = max(label, float_of_bits(load_i64(click + VALUE)))
            found = True
        number = click_before(clicks, number, word)
    if found:
        _match_span(clicks, newest, earliest, latest, dedupe)
    return label


@kernel
def _match_span(clicks: ClickPlace, number: int, earliest: int, latest: int, dedupe: bool) -> None:
    """Set every click of a chain in `earliest..latest` that is unmatched or late to matched.

    With `dedupe`, where all of them are duplicates, the first of them is matched: one click for each impression.
    """
    oldest, any_is = np.int64(0), False
    while number != NONE:
        click = click_address(clicks, number)
        word = load_i64(click + WORD)
        if earliest <= load_i64(click + TIME) <= latest:
            oldest = click
            any_is |= set_matched(click, word)
        number = click_before(clicks, number, word)
    if dedupe and not any_is:
        store_i64(oldest + WORD, matched_word(load_i64(oldest + WORD)))


@kernel
def _is_sampled_out(key: int, keep_below: np.uint64) -> bool:
    return bool(mix(np.uint64(key) ^ _SAMPLE_SALT) >= keep_below)


@kernel
def label_impressions(
    clicks: ClickPlace,
    columns: ImpressionColumns,
    start: int,
    stop: int,
    rule: LabelRule,
    known: NDArray[np.float64],
    kept: NDArray[np.int64],
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    tally: NDArray[np.int64],
) -> int:
    """Label impressions `start..stop-1`. Writes the indices of those that become examples to `kept`, with their `label`
    and `weight`; returns their number. `tally` is added to.

    known: labels that have been found already, below 0 for all others; may be empty.
    """
    ids, status, times, weights = columns.ids, columns.status, columns.time_ms, columns.weight
    row_start, duplicate = columns.row_start, columns.duplicate
    k = 0
    for i in range(start, stop):
        if i + _AHEAD < stop:
            prefetch_for_write(first_entry(clicks.table, ids[i + _AHEAD]))
        if status[i] != 0:
            tally[DEAD_IMPRESSIONS] += 1
            continue
        if duplicate[i] != 0:
            tally[DUPLICATES] += 1
            continue
        if times[i] < rule.late_before_ms:
            tally[LATE_IMPRESSIONS] += 1
            continue
        if i < len(known) and known[i] >= 0.0:
            y = known[i]
        else:
            newest, y = newest_click(clicks, find_entry(clicks.table, ids[i])), 0.0
            if newest != NONE:  # few have been clicked: no call for the others
                y = _match(clicks, newest, times[i] - rule.skew_ms, times[i] + rule.window_ms, rule.dedupe)
        if y < 0.0:
            tally[DUPLICATES] += 1
            continue
        h = weights[i]
        if y > 0.0:
            tally[POSITIVES] += 1
        elif rule.keep_negatives < 1.0:
            if _is_sampled_out(ids[i], rule.keep_below):
                tally[SAMPLED_OUT] += 1
                continue
            h = h / rule.keep_negatives
        kept[k], label[k], weight[k] = i, y, h
        k += 1
        tally[FEATURES] += row_start[i + 1] - row_start[i]
    tally[EXAMPLES] += k
    return k


def warm() -> None:
    """Compile every kernel of this module, for the types with which the join calls them."""
    one, byte, real = np.zeros(1, np.int64), np.zeros(1, np.uint8), np.zeros(1)
    columns = ImpressionColumns(
        one, byte, one, one, real, np.zeros(2, np.int64), np.zeros(0, np.uint64), np.zeros(0), byte.copy()
    )
    seen, spec = IdTable(), JoinSpec(window_ms=1, skew_ms=0, tick_ms=1, dedupe_ms=0)
    find_duplicates(seen.header, columns, 0, 1, 0)
    clicks, rule, tally = ClickMemory(spec, 0), label_rule(spec, 0), np.zeros(TALLY, np.int64)
    label_impressions(clicks.place, columns, 0, 1, rule, real, one.copy(), real.copy(), real.copy(), tally)
