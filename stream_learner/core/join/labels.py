"""Decides which impressions of a tick are duplicates, and which become examples with which label.

The table of outcomes in `docs/join-rules.md` stands here as code, in `label_impressions`. Where a click counts for one
impression only (`dedupe`), an impression looks through all clicks of its id; where it may count for many, the labels of
ids with very many clicks come from `crowded.py` instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_learner.core.join.click_memory import (
    DUPLICATE,
    LATE,
    MATCHED,
    NONE,
    TIME,
    VALUE,
    WORD,
    ClickPlace,
    Place,
    click_address,
    click_before,
    code_of,
    set_code,
)
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.marks import RULES
from stream_learner.core.machine.entries import F64, I64, U8, entry
from stream_learner.core.machine.hashing import mix
from stream_learner.core.machine.id_table import find_entry, first_entry, put_entry
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import float_of_bits, load_i64, prefetch_for_write

READ, EXAMPLES, POSITIVES, DUPLICATES, SAMPLED_OUT, DEAD_IMPRESSIONS, LATE_IMPRESSIONS, EARLY, FEATURES = range(9)
"""The places of the counts in the tally of `label_impressions`, i64[TALLY]: first those of `ImpressionCounts`."""
TALLY = 9

_AHEAD = 16
_REPEAT = -1.0
_SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15)  # keeps the choice apart from other uses of the id's hash


class LabelRule(NamedTuple):
    """The settings that decide the labels of a tick. An impression with a time before `late_before_ms` is late, an
    example from `open_from_ms` on is early.

    With `dedupe` a click counts for one impression only; with `one_click`, too, an impression has one click, and what
    else came for it are duplicates. Of the examples with label 0 the share `keep_negatives` is kept; `keep_below` is
    ceil(keep_negatives * 2^64), and not used where all are kept.
    """

    late_before_ms: int
    open_from_ms: int
    skew_ms: int
    window_ms: int
    dedupe: bool
    one_click: bool
    keep_negatives: float
    keep_below: np.uint64


RuleFields = tuple[int, int, int, int, bool, bool, float, np.uint64]
"""The fields of a `LabelRule`, as a kernel that is called from Python takes them."""


def label_rule(spec: JoinSpec, late_before_ms: int, open_from_ms: int, rules: int) -> RuleFields:
    """The rule of a tick; rules: those of its mark."""
    return (
        late_before_ms,
        open_from_ms,
        spec.skew_ms,
        spec.window_ms,
        spec.dedupe_ms > 0,
        spec.dedupe_ms > 0 and rules >= RULES,
        spec.keep_negatives,
        spec.keep_below,
    )


@entry
def find_duplicates(
    table: int, offsets: I64, ids: I64, status: U8, start: int, stop: int, first: int, duplicate: U8
) -> int:
    """Set `duplicate` of impressions `start..stop-1`: 1 where an id repeats one seen at or after offset `first`.

    Good impressions count as seen from then on. Returns the index at which it stopped: `stop`, or that of an impression
    for whose id the table must grow first.
    """
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
def _match(clicks: ClickPlace, newest: int, earliest: int, latest: int, rule: LabelRule) -> float:
    """The label of an impression: the greatest value of its clicks with a time in `earliest..latest`, 0 without any.

    Its clicks are the chain that begins with `newest`; those in the span are matched then (`_match_span`). Where one of
    the chain has been matched before and counts once, the impression is a repeat: `_REPEAT`, nothing changed.
    """
    label, found = 0.0, False
    number = newest
    while number != NONE:
        click = click_address(clicks, number)
        word = load_i64(click + WORD)
        if rule.dedupe and code_of(word) == MATCHED:
            return _REPEAT
        if earliest <= load_i64(click + TIME) <= latest:
            label = max(label, float_of_bits(load_i64(click + VALUE)))
            found = True
        number = click_before(clicks, number, word)
    if found:
        _match_span(clicks, newest, earliest, latest, rule)
    return label


@kernel
def _match_span(clicks: ClickPlace, number: int, earliest: int, latest: int, rule: LabelRule) -> None:
    """Set every click of a chain in `earliest..latest` that is unmatched or late to matched.

    Where an impression has one click that is the first of them, and the others are duplicates. With `dedupe`, where all
    are duplicates already, the first is matched: one click for each impression.
    """
    first, first_counting = np.int64(0), np.int64(0)
    while number != NONE:
        click = click_address(clicks, number)
        word = load_i64(click + WORD)
        if earliest <= load_i64(click + TIME) <= latest:
            first = click
            if code_of(word) <= LATE:
                first_counting = click
                set_code(click, word, DUPLICATE if rule.one_click else MATCHED)
        number = click_before(clicks, number, word)
    if rule.dedupe:
        click = first_counting if first_counting != 0 else first
        set_code(click, load_i64(click + WORD), MATCHED)


@kernel
def _is_sampled_out(key: int, keep_below: np.uint64) -> bool:
    return bool(mix(np.uint64(key) ^ _SAMPLE_SALT) >= keep_below)


@entry
def label_impressions(
    place: Place,
    ids: I64,
    status: U8,
    times: I64,
    weights: F64,
    row_start: I64,
    duplicate: U8,
    start: int,
    stop: int,
    rule_fields: RuleFields,
    known: F64,
    kept: I64,
    label: F64,
    weight: F64,
    tally: I64,
) -> int:
    """Label impressions `start..stop-1`. Writes the indices of those that become examples to `kept`, with their `label`
    and `weight`; returns their number. `tally` is added to.

    known: labels that have been found already, below 0 for all others; may be empty.
    """
    clicks = ClickPlace(*place)
    rule = LabelRule(*rule_fields)
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
            newest, y = load_i64(find_entry(clicks.table, ids[i]) + 8) - 1, 0.0
            if newest >= clicks.first:  # few have been clicked: no call for the others
                y = _match(clicks, newest, times[i] - rule.skew_ms, times[i] + rule.window_ms, rule)
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
        tally[EARLY] += times[i] >= rule.open_from_ms
        tally[FEATURES] += row_start[i + 1] - row_start[i]
    tally[READ] += stop - start
    tally[EXAMPLES] += k
    return k
