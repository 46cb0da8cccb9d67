"""What must hold when a history of joiners is over. Every law is about what is in the logs, none about who did it.

In: a `joining.World` that has run. Out: nothing, or AssertionError with the law that was broken.
This file must never share code with the join, rule R or rule W, except where it runs them as the subject of a law.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import pairwise

from simulation.events import oracle_clicks, oracle_impressions, oracle_settings
from simulation.joining import World
from simulation.kafka import Calm, Entry, Log, Queries, Reader
from simulation.oracle import accepted_marks, chain_is_sure, read
from simulation.process import CLICKS, IMPRESSIONS, LETTERS, LOG
from stream_learner.core.errors import BrokenLog
from stream_learner.core.marks import Mark
from stream_learner.core.training_log import AcceptedTick, RuleR
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.accepted_ticks import accepted_ticks
from tests import oracle_join
from tests.oracle_join import Example, Joined, join_by_log_time, replay

STOP_OF = {
    "input recreated": {"TopicRecreated"},
    "log recreated": {"LogTrimmed"},
    "settings changed": {"InputsChanged"},
    "partitions changed": {"InputsChanged"},
    "input compacted": {"InputsChanged"},
    "input trimmed": {"LogTrimmed", "InputsChanged"},
}


def law(holds: bool, text: str) -> None:
    """Raise AssertionError with the law's text unless it holds."""
    if not holds:
        raise AssertionError(text)


def check(world: World) -> None:
    """Every law."""
    if world.lost:
        _check_lost(world)
        return
    law(not world.stops, f"stopped without cause: {world.stops[:1]}")
    for partition in range(world.partitions):
        _check_partition(world, partition)


def _check_lost(world: World) -> None:
    """What cannot be gone on from is said, with the right words, and not one tick more is accepted."""
    kinds = {type(error).__name__ for error in world.stops}
    law(kinds <= STOP_OF[world.lost], f"{world.lost}, and a joiner stopped with {kinds}")
    after = len(accepted_marks(world.logs[LOG, 0].archive)) - world.marks_when_lost
    if world.lost != "input trimmed":
        law(bool(kinds), f"{world.lost}, and no joiner stopped")
        law(after == 0, f"{world.lost}, and ticks were made all the same")
    elif not kinds:
        _check_partition(world, 0)


def _check_partition(world: World, partition: int) -> None:
    log = world.logs[LOG, partition]
    ticks = read_all(log, partition)
    marks = [tick.mark for tick in ticks]
    world.seen["ticks accepted"] += len(marks)
    world.seen["marks ignored"] += sum(read(e.value or b"")[1] is not None for e in log.archive) - len(marks)
    world.seen["resume points"] += sum(mark.resume is not None for mark in marks)
    _check_order(marks)
    impressions = committed(world.logs[IMPRESSIONS, partition])
    clicks = committed(world.logs[CLICKS, partition])
    _check_content(world, partition, ticks, impressions, clicks)
    _check_positions(world, partition, ticks, impressions, clicks)
    _check_resume_points(world, marks, impressions, clicks)
    _check_dead_letters(world, partition, ticks, impressions, clicks)
    _check_beginnings(world, partition, ticks)
    if not world.lost:
        _check_complete(world, partition, ticks, impressions, clicks)


def committed(log: Log) -> list[Entry]:
    """Every record that readers of committed records ever saw."""
    return [entry for entry in log.archive if entry.transaction not in log.aborted]


def read_all(log: Log, partition: int) -> list[AcceptedTick]:
    """What rule R accepts from the true beginning on."""
    rule = RuleR(partition=partition)
    ticks = [rule.take(entry.offset, entry.value) for entry in log.archive]
    return [tick for tick in ticks if tick is not None]


def _check_order(marks: list[Mark]) -> None:
    """Every tick once, in order; positions never go back."""
    law(not marks or marks[0].first_tick == 0, "the first tick is not 0")
    for before, after in pairwise(marks):
        law(after.first_tick == before.last_tick + 1, f"tick {after.first_tick} after tick {before.last_tick}")
        law(before.next_impression <= after.next_impression, "impressions go back")
        law(before.click_cursor <= after.click_cursor, "the click cursor goes back")
        law(before.first_click <= after.first_click, "the first click goes back")


def _check_content(
    world: World, partition: int, ticks: list[AcceptedTick], impressions: list[Entry], clicks: list[Entry]
) -> None:
    """Each tick is what its marks' positions make of the inputs: examples, counts, what waits; and all adds up."""
    marks = [
        oracle_join.Mark(t.mark.first_tick, t.mark.last_tick, t.mark.next_impression, t.mark.click_cursor)
        for t in ticks
    ]
    settings = oracle_settings(world.spec)
    wanted = replay(oracle_impressions(impressions), oracle_clicks(clicks), marks, settings, partition)
    for tick, one in zip(ticks, wanted, strict=True):
        law(_examples(tick) == _rows(one.examples), f"examples of tick {tick.mark.last_tick}")
        _check_counts(tick.mark, one)


def _rows(examples: list[Example]) -> list[tuple[object, ...]]:
    return [(e.log_time_ms, e.id_hash, e.label, e.weight, e.features) for e in examples]


def _examples(tick: AcceptedTick) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
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


def _check_counts(mark: Mark, wanted: Joined) -> None:
    """The mark counts what happened, and its counts add up."""
    i, c = mark.counts.impressions, mark.counts.clicks
    found = {
        "read": i.read,
        "examples": i.examples,
        "positives": i.positives,
        "duplicates": i.duplicates,
        "sampled_out": i.sampled_out,
        "dead": i.dead,
    }
    law(+Counter(found) == +wanted.impressions, f"impressions of tick {mark.last_tick}: {found}")
    found = {
        "read": c.read,
        "matched": c.matched,
        "duplicates": c.duplicates,
        "orphans": c.orphans,
        "late": c.late,
        "dead": c.dead,
        "waiting": c.waiting,
    }
    law(+Counter(found) == +wanted.clicks, f"clicks of tick {mark.last_tick}: {found}")


def _check_positions(
    world: World, partition: int, ticks: list[AcceptedTick], impressions: list[Entry], clicks: list[Entry]
) -> None:
    """Each tick closed when it might, and stopped where it must, in both inputs: the join's closing rules."""
    spec = world.spec
    log_i = _log_times(oracle_impressions(impressions))
    log_c = _log_times(oracle_clicks(clicks))
    appended = {entry.offset: entry.at for entry in world.logs[LOG, partition].archive}
    cursor_before = -1
    for tick in ticks:
        mark = tick.mark
        end = (mark.last_tick + 1) * spec.tick_ms
        ahead = world.clock_ahead_of[mark.attempt]
        asked = end + world.grace_ms - ahead if world.close_idle else 10**12
        by = appended[tick.mark_offset]
        reaching = next((e.offset for e, log in zip(clicks, log_c, strict=True) if log >= end), None)
        by_log = reaching is not None and mark.click_cursor >= reaching
        law(not by_log or mark.click_cursor in (reaching, cursor_before), "clicks beyond the end of the tick were read")
        law(by_log or by >= asked, f"tick {mark.last_tick} closed before the clicks had passed its end")
        missed = [e.offset for e in clicks if e.offset >= mark.click_cursor and e.at < asked]
        law(by_log or not missed, f"tick {mark.last_tick} closed by the clock without clicks {missed[:3]}")
        open_end = end - spec.window_ms
        asked -= spec.window_ms
        for entry, log in zip(impressions, log_i, strict=True):
            emitted = entry.offset < mark.next_impression
            law(not emitted or log < open_end, f"impression {entry.offset} before its window had closed")
            law(emitted or log >= open_end or entry.at >= asked, f"impression {entry.offset} not in its tick")
        passed = any(log >= open_end for e, log in zip(impressions, log_i, strict=True) if e.at <= by)
        law(passed or by >= asked, f"tick {mark.last_tick} closed before the impressions had passed it")
        world.seen["ticks closed by the clock"] += not by_log
        cursor_before = mark.click_cursor


def _log_times(events: list[oracle_join.Impression] | list[oracle_join.Click]) -> list[int]:
    highest, out = -1, []
    for event in events:
        highest = max(highest, -1 if event.time_ms is None else event.time_ms)
        out.append(highest)
    return out


def _check_resume_points(world: World, marks: list[Mark], impressions: list[Entry], clicks: list[Entry]) -> None:
    """A resume point tells the log times right before the positions from which it has the inputs read again."""
    read_i, read_c = oracle_impressions(impressions), oracle_clicks(clicks)
    offsets_i, offsets_c = [e.offset for e in impressions], [e.offset for e in clicks]
    log_i, log_c = [-1, *_log_times(read_i)], [-1, *_log_times(read_c)]
    for mark in marks:
        point = mark.resume
        if point is None:
            continue
        law(point.dedupe_from <= mark.next_impression, "impressions that were not emitted are not read again")
        log_time = log_i[bisect_left(offsets_i, point.dedupe_from)]
        law(point.impression_log_time == log_time, f"impressions' log time of resume point {mark.last_tick}")
        place = bisect_left(offsets_c, mark.first_click)
        law(point.click_log_time == log_c[place], f"clicks' log time of resume point {mark.last_tick}")
        time_ms = read_c[place].time_ms if place < len(read_c) else None
        world.seen["clicks behind a resume point"] += time_ms is not None and time_ms < log_c[place]


def _check_dead_letters(
    world: World, partition: int, ticks: list[AcceptedTick], impressions: list[Entry], clicks: list[Entry]
) -> None:
    """Every dead record has its letter, under its own key, before the mark that counts it."""
    written: dict[bytes | None, int] = {}
    for entry in world.logs[LETTERS, 0].archive:
        written.setdefault(entry.key, entry.order)
    orders = {entry.offset: entry.order for entry in world.logs[LOG, partition].archive}
    sides = (
        (IMPRESSIONS, [t.mark.next_impression for t in ticks], oracle_impressions(impressions)),
        (CLICKS, [t.mark.click_cursor for t in ticks], oracle_clicks(clicks)),
    )
    for topic, ends, events in sides:
        for event in events:
            place = bisect_right(ends, event.offset)
            if event.time_ms is None and place < len(ends):
                world.seen["dead letters"] += 1
                by = orders[ticks[place].mark_offset]
                letter = written.get(f"{topic}/{partition}/{event.offset}".encode(), by)
                law(letter < by, f"{topic} {event.offset} is counted before its dead letter is there")


def _check_beginnings(world: World, partition: int, ticks: list[AcceptedTick]) -> None:
    """A reader that begins after any accepted mark, or in a trimmed log, accepts the same marks from there."""
    log = world.logs[LOG, partition]
    if not ticks:
        return
    at = world.rng.randrange(len(ticks))
    rule = RuleR(ticks[at].mark.id, partition=partition)
    begin = world.rng.randrange(ticks[at].mark_offset + 2)
    try:
        found = [rule.take(e.offset, e.value) for e in log.archive if e.offset >= begin]
    except BrokenLog as error:
        raise AssertionError(f"a reader that begins after a known mark: {error}") from error
    law([t.mark for t in found if t] == [t.mark for t in ticks[at + 1 :]], "a reader that begins after a known mark")
    _check_gap(log, partition, ticks, at)
    upto = world.rng.randrange(log.start, log.end)
    if not chain_is_sure(log, upto):
        return
    log.trim(upto)
    calm = Calm(world.logs)
    try:
        seen = list(accepted_ticks(calm, Queries(calm), LOG, partition, new_reader=Reader))
    except StreamLearnerError as error:
        raise AssertionError(f"a reader of a trimmed log: {error}") from error
    later = [t.mark for t in ticks if t.mark_offset >= upto][1 if upto else 0 :]
    law([t.mark for t in seen] == later, "a reader of a trimmed log")


def _check_gap(log: Log, partition: int, ticks: list[AcceptedTick], at: int) -> None:
    """A reader for whom ticks are missing says so when another attempt begins, unless a loser's tick fits the gap."""
    later = ticks[at + 1 :]
    if not later:
        return
    rule, refused = RuleR(ticks[at].mark.id, partition=partition), False
    begins = any(t.mark.pred_attempt != t.mark.attempt for t in later[1:])
    try:
        found = [rule.take(e.offset, e.value) for e in log.archive if e.offset > later[0].mark_offset]
        refused = any(found)
    except BrokenLog:
        refused = True
    law(refused or not begins, "a reader with a gap did not notice")


def _check_complete(
    world: World, partition: int, ticks: list[AcceptedTick], impressions: list[Entry], clicks: list[Entry]
) -> None:
    """In the end nothing is left over; where no clock was asked, the log is a function of the inputs alone."""
    law(bool(ticks), "no tick was made")
    last = ticks[-1].mark
    if world.until_tick is not None:
        law(last.last_tick <= world.until_tick, f"tick {last.last_tick} is the last, not {world.until_tick}")
        return
    if world.close_idle:
        law(all(e.offset < last.next_impression for e in impressions), "impressions are left over")
        law(all(e.offset < last.click_cursor for e in clicks), "clicks are left over")
        law(last.counts.clicks.waiting == 0, "clicks wait for ever")
        return
    settings = oracle_settings(world.spec)
    wanted = join_by_log_time(oracle_impressions(impressions), oracle_clicks(clicks), settings, partition)
    found = [example for tick in ticks for example in _examples(tick)]
    law(found == _rows(wanted.examples), "not the examples of the two logs")
