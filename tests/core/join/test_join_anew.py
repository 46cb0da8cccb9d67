"""A log that begins anew after any of its marks: what is emitted goes on without a gap, and no label is lost."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from stream_learner.core.join.spec import Cut
from stream_learner.core.join.state import JoinState, TickOutput, resume_anew
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.header import open_record
from stream_learner.core.log.marks import (
    GENESIS,
    InputIdentity,
    Mark,
    MarkId,
    ResumePoint,
    TickCounts,
    decode_mark,
    encode_mark,
)
from tests.core.join.join_histories import History, closed_by_log, random_history
from tests.core.join.plain_join import clicks_batch, impressions_batch, true_labels

HISTORIES = 100


def emitted_by(join: JoinState, history: History, impression: int, click: int) -> list[TickOutput]:
    """All that a join emits that reads nothing before these offsets."""
    join.add_impressions(*impressions_batch([r for r in history.impressions if r.offset >= impression]))
    join.add_clicks(*clicks_batch([r for r in history.clicks if r.offset >= click]))
    outputs = []
    while cut := join.next_cut():
        outputs.append(join.emit(cut))
    return outputs


def mark_after(before: MarkId, cut: Cut, counts: TickCounts, first_click: int, resume: ResumePoint | None) -> Mark:
    """A mark without records; with a resume point it begins anew."""
    ends = cut.next_impression, first_click, cut.click_cursor
    place = 0, 7, cut.first_tick, cut.last_tick
    return Mark(*place, *ends, 0, *before, counts, resume, begins_anew=resume is not None)


def anew_after(history: History, last: TickOutput) -> Mark:
    """The mark that begins anew where a cut has ended, as it is read back."""
    tick, first = last.cut.last_tick + 1, last.first_click
    inputs = InputIdentity(b"i" * 16, b"c" * 16, 1, impressions_fingerprint=1, clicks_fingerprint=2)
    point = resume_anew(history.spec, tick, inputs, dedupe_from=last.cut.next_impression)
    cut = Cut(tick, tick, last.cut.next_impression, first)
    value = encode_mark(mark_after(MarkId(7, tick - 1), cut, TickCounts(), first, point))
    return decode_mark(open_record(value))


def labels_of(outputs: list[TickOutput]) -> dict[float, float]:
    """By weight, which tells impressions apart."""
    pairs = [pair for o in outputs for pair in zip(o.examples.weight, o.examples.label, strict=True)]
    assert len(pairs) == len(dict(pairs)), "an impression is there twice"
    return dict(pairs)


@pytest.mark.parametrize("dedupe_ms", [0, 20])
def test_no_impression_and_no_label_is_lost_where_a_log_begins_anew(dedupe_ms: int) -> None:
    """Every impression is emitted once; examples have the label that the join would have given them, or a better one:
    more clicks may have come, and none that matched before is remembered. Only what is late by now is missing. Counts
    add up, and log time does not go back."""
    compared = 0
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        history = closed_by_log(random_history(rng), rng)
        history = replace(history, spec=replace(history.spec, dedupe_ms=dedupe_ms))
        start = [min(r.offset for r in records) for records in (history.impressions, history.clicks)]
        fresh = JoinState(history.spec, impression_start=start[0], click_start=start[1])
        whole = emitted_by(fresh, history, *start)
        done = rng.randrange(1, len(whole) + 1)
        before, anew = whole[:done], anew_after(history, whole[done - 1])
        join = JoinState.resume(history.spec, anew)
        assert join.rebuilt, "nothing before the mark is needed"
        after = emitted_by(join, history, anew.next_impression, anew.first_click)
        wanted, found = labels_of(whole), labels_of(before + after)
        most = true_labels(history.spec, history.impressions, history.clicks)
        by_weight = {r.number: r.offset for r in history.impressions}
        late = sum(o.counts.impressions.late for o in after)
        duplicates = sum(o.counts.impressions.duplicates for o in after)
        assert len(wanted.keys() - found.keys()) <= late + duplicates, seed
        for weight, label in found.items():
            assert label >= wanted.get(weight, 0.0), seed
            assert label <= most[by_weight[weight]], seed
        compared += sum(len(o.examples) for o in after)
        check_balance(history, before, anew, after)
        times = np.concatenate([o.examples.log_time_ms for o in before + after])
        assert (np.diff(times) >= 0).all(), seed
    assert compared > HISTORIES


def check_balance(history: History, before: list[TickOutput], anew: Mark, after: list[TickOutput]) -> None:
    """Impressions add up as if nothing had happened; clicks once those that waited are given up."""
    balance, last = Balance(), GENESIS
    for part, follows in ((before, anew), (after, None)):
        for output in part:
            mark = mark_after(last, output.cut, output.counts, output.first_click, None)
            last = mark.id
            balance.add(mark)
        if follows is not None:
            balance.add(follows)
            last = follows.id
    assert balance.problems == []
    assert balance.given_up == before[-1].counts.clicks.waiting
    ends = [o.cut.next_impression for o in before + after]
    assert balance.impressions.read == sum(r.offset < ends[-1] for r in history.impressions)
