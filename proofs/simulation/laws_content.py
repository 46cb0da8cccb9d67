"""The laws on what a tick holds: the examples, counts and resume points that its positions make of the two inputs.

Whether it might close at these positions is the matter of `laws_closing`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from proofs.simulation.evidence import BEFORE_ALL, Evidence, law, passed_with
from stream_learner.core.log.marks import AHEAD, Mark, ResumePoint
from stream_learner.core.log.rule_r import AcceptedTick
from tests.oracles import join as oracle_join
from tests.oracles.join import Example, Joined, label_by_definition, log_times, replay, usual_time

Row = tuple[object, ...]


class _Gone(NamedTuple):
    """The clicks that have been given up: with which times the last of them went, and how many."""

    log_time: int = BEFORE_ALL
    usual_time: int = BEFORE_ALL
    count: int = 0


def check_content(evidence: Evidence) -> None:
    """Each tick holds the examples and counts that its mark's positions make of the inputs, and the counts add up."""
    parts = _one_by_one(evidence)
    found = replay(evidence.shown, evidence.clicked, [part for _, part in parts], evidence.settings, evidence.partition)
    of_mark: list[list[Joined]] = [[] for _ in evidence.ticks]
    for (number, _), joined in zip(parts, found, strict=True):
        of_mark[number].append(joined)
    for tick, of in zip(evidence.ticks, of_mark, strict=True):
        examples = [example for joined in of for example in joined.examples]
        law(examples_of(tick) == rows(examples), f"examples of tick {tick.mark.last_tick}")
        _check_counts(tick.mark, of)
        _check_labels(evidence, tick.mark, examples)
    _check_resume_points(evidence, _gone_after(evidence, parts, found))
    outcomes = counts_of(evidence.marks)
    evidence.world.seen.update({f"impressions: {name}": n for name, n in outcomes.impressions.items()})
    evidence.world.seen.update({f"clicks: {name}": n for name, n in outcomes.clicks.items()})


def rows(examples: list[Example]) -> list[Row]:
    """Examples of the oracle as rows that compare with those of the log."""
    return [(e.log_time_ms, e.id_hash, e.label, e.weight, e.features) for e in examples]


def examples_of(tick: AcceptedTick) -> list[Row]:
    """The examples of a tick of the log, as rows."""
    found: list[Row] = []
    for _, record in tick.records:
        law(record.tick == tick.mark.last_tick, "a record of another tick")
        values = [1.0] * len(record.indices)
        for place, value in zip(record.positions.tolist(), record.values.tolist(), strict=True):
            values[place] = value
        keys, at = record.keys[record.indices].tolist(), 0
        columns = (record.log_time_ms, record.id_hash, record.label, record.weight, record.row_len)
        for log_time, id_hash, label, weight, width in zip(*(c.tolist() for c in columns), strict=True):
            row = tuple(zip(keys[at : at + width], values[at : at + width], strict=True))
            found.append((log_time, id_hash, label, weight, row))
            at += width
    return found


def _one_by_one(evidence: Evidence) -> list[tuple[int, oracle_join.Mark]]:
    """The marks with their numbers; one that emits no record is cut around every tick of stream time with a click."""
    tick_ms, clicked = evidence.settings["tick_ms"], evidence.clicked
    passed = passed_with([click.time_ms for click in clicked], evidence.settings["agree"])
    parts: list[tuple[int, oracle_join.Mark]] = []
    taken, closed = 0, -1

    def add(number: int, mark: Mark, stream_tick: int, cursor: int) -> None:
        part = (mark.first_tick, mark.last_tick, mark.next_impression, cursor, stream_tick, mark.labels_from_ms)
        parts.append((number, oracle_join.Mark(*part)))

    for number, mark in enumerate(evidence.marks):
        first = closed + 1
        while taken < len(clicked) and clicked[taken].offset < mark.click_cursor:
            tick, offset = min(passed[taken] // tick_ms, mark.stream_tick), clicked[taken].offset
            if tick > first and not mark.counts.impressions.read:
                add(number, mark, first, offset)
                if tick > first + 1:
                    add(number, mark, tick - 1, offset)
                first = tick
            taken += 1
        if first < mark.stream_tick and not mark.counts.impressions.read:
            add(number, mark, first, mark.click_cursor)
        add(number, mark, mark.stream_tick, mark.click_cursor)
        closed = mark.stream_tick
    return parts


def _check_counts(mark: Mark, wanted: list[Joined]) -> None:
    """The mark counts the outcomes that the oracle finds."""
    impressions, clicks = Counter[str](), Counter[str]()
    for joined in wanted:
        impressions.update(joined.impressions)
        clicks.update(joined.clicks)
    clicks["waiting"] = wanted[-1].clicks["waiting"]
    found = counts_of([mark])
    law(found.impressions == +impressions, f"impressions of tick {mark.last_tick}: {found.impressions}")
    law(found.clicks == +clicks, f"clicks of tick {mark.last_tick}: {found.clicks}")


def counts_of(marks: list[Mark]) -> Joined:
    """The sums of the counts of marks; `waiting` is that of the last mark."""
    impressions, clicks = Counter[str](), Counter[str]()
    for mark in marks:
        i, c = mark.counts.impressions, mark.counts.clicks
        for name in ("read", "examples", "positives", "duplicates", "late", "sampled_out", "dead"):
            impressions[name] += getattr(i, name)
        for name in ("read", "matched", "duplicates", "orphans", "late", "dead"):
            clicks[name] += getattr(c, name)
        clicks["waiting"] = c.waiting
    return Joined([], +impressions, +clicks, {}, Counter())


def _check_labels(evidence: Evidence, mark: Mark, examples: list[Example]) -> None:
    """Every label is true: only a click more than `lateness` ahead of log time may be missing from it."""
    s, clicks = evidence.settings, evidence.clicked
    known = log_times([click.time_ms for click in clicks], s["agree"])
    sure = [
        click
        for click, log_time in zip(clicks, known, strict=True)
        if click.time_ms is not None and log_time is not None and click.time_ms <= log_time + s["lateness_ms"]
    ]
    impression_at = {imp.offset: imp for imp in evidence.shown} if examples else {}
    for example in examples:
        imp = impression_at[example.offset]
        least, most = (label_by_definition(imp, of, mark.click_cursor, s) for of in (sure, clicks))
        law(least <= example.label <= most, f"the label of impression {imp.offset} is not true")
        evidence.world.seen["labels of clicks ahead of log time"] += least != most


def _gone_after(evidence: Evidence, parts: list[tuple[int, oracle_join.Mark]], found: list[Joined]) -> list[_Gone]:
    """The clicks given up after each mark."""
    usable = [(click.offset, click.time_ms) for click in evidence.clicked if click.time_ms is not None]
    offsets, agree = [offset for offset, _ in usable], evidence.settings["agree"]
    gone, out = _Gone(), [_Gone()] * len(evidence.ticks)
    length = 2 * agree - 1
    for (number, part), joined in zip(parts, found, strict=True):
        gone = gone._replace(count=gone.count + len(joined.outcome_of_click))
        for offset, outcome in joined.outcome_of_click.items():
            if outcome != "dead":
                place = bisect_left(offsets, offset)
                row = [time for at, time in usable[place : place + length] if at < part.click_cursor]
                latest = max(gone.log_time, min(row[:agree])), max(gone.usual_time, usual_time(row, length))
                gone = _Gone(*latest, gone.count)
        out[number] = gone
    return out


def _check_resume_points(evidence: Evidence, gone_after: list[_Gone]) -> None:
    """A resume point has what the inputs from its positions on do not tell: log times, steps, codes."""
    offsets = [entry.offset for entry in evidence.clicks]
    wanted = zip(evidence.marks, gone_after, _written_after(evidence), _steps_after(evidence), strict=True)
    for mark, gone, written, steps in wanted:
        point, tick = mark.resume, mark.last_tick
        waiting = offsets[gone.count : bisect_left(offsets, mark.click_cursor)]
        first_click = bisect_left(offsets, mark.first_click)
        first_waiting = gone.count if waiting else bisect_left(offsets, mark.click_cursor)
        law(first_click == first_waiting, f"first click of {tick}")
        if point is None:
            continue
        law(point.impression_log_time == max(written, -1), f"impressions' log time of resume point {tick}")
        law(point.click_log_time == max(gone.log_time, -1), f"clicks' log time of resume point {tick}")
        law(point.click_usual_time == max(gone.usual_time, -1), f"clicks' usual time of resume point {tick}")
        law(len(point.codes) == len(waiting), f"resume point {tick} has codes for {len(point.codes)} clicks")
        _check_steps(evidence, mark, point, steps)
        is_ahead = point.codes >= AHEAD
        evidence.world.seen["resume points with clicks ahead and others"] += bool(is_ahead.any() and not is_ahead.all())


def _check_steps(evidence: Evidence, mark: Mark, point: ResumePoint, steps: list[tuple[int, int]]) -> None:
    offsets = [entry.offset for entry in evidence.impressions]
    found = [(step, bisect_left(offsets, offset)) for step, offset in point.steps]
    law(found == steps, f"steps of resume point {mark.last_tick}: {found}, not {steps}")
    begin = steps[0][1] if steps else bisect_left(offsets, mark.next_impression)
    law(bisect_left(offsets, point.dedupe_from) == begin, f"where resume point {mark.last_tick} has ids read from")


def _written_after(evidence: Evidence) -> list[int]:
    """After each mark: the log time written for its last impression; a mark that emits only dead ones writes none."""
    s, written, out = evidence.settings, BEFORE_ALL, []
    for _, tick, first, end in _emitted(evidence):
        times = [imp.time_ms for imp in evidence.shown[first:end] if imp.time_ms is not None]
        least = [min(times[n : n + s["agree"]]) for n in range(len(times))]
        if first < end:
            written = max(written, tick * s["tick_ms"] - s["window_ms"], *least)
        out.append(written)
    return out


def _steps_after(evidence: Evidence) -> list[list[tuple[int, int]]]:
    """After each mark, by docs/join-rules.md: the steps remembered, with the first impression emitted in each."""
    s = evidence.settings
    k = -(-s["dedupe_ms"] // s["tick_ms"])
    g = max(1, -(-k // 8))
    steps: dict[int, int] = {}
    out = []
    for mark, tick, first, end in _emitted(evidence):
        if k and first < end:
            steps.setdefault(tick // g, first)
        remembered = (mark.stream_tick + 1 - k) // g
        out.append([(step, begin) for step, begin in steps.items() if step >= remembered])
    return out


def _emitted(evidence: Evidence) -> list[tuple[Mark, int, int, int]]:
    """Each mark with its T, and the numbers of the records that it emits: the first, and the one after the last."""
    offsets, marks = [entry.offset for entry in evidence.impressions], evidence.marks
    ends = [0, *(bisect_left(offsets, mark.next_impression) for mark in marks)]
    ticks = [0, *(mark.stream_tick + 1 for mark in marks[:-1])]
    return [(mark, tick, *of) for mark, tick, of in zip(marks, ticks, pairwise(ends), strict=True)]
