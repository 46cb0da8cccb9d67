"""The laws that hold when a history of joiners is over. They judge what is in the logs, not who wrote it.

`laws_content` judges what a tick holds, `laws_closing` when it may close. A broken law is an AssertionError with its
text. The laws must never share code with the join, rule R or rule W, except where these are the subject of a law.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from proofs.simulation.evidence import Evidence, law
from proofs.simulation.joiners import World
from proofs.simulation.kafka import Calm, Log, Queries, Reader
from proofs.simulation.laws_closing import check_positions
from proofs.simulation.laws_content import check_content, counts_of, examples_of, rows
from proofs.simulation.oracle import accepted_marks, chain_is_sure, read
from proofs.simulation.process import CLICKS, IMPRESSIONS, LETTERS, LOG
from stream_learner.core.errors import BrokenLog
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.common.log_reader import accepted_ticks
from tests.oracles.join import join_by_log_time

STOP_OF = {
    "input recreated": {"TopicRecreated"},
    "log emptied": {"LogTrimmed"},
    "settings changed": {"InputsChanged"},
    "partitions changed": {"InputsChanged"},
    "input compacted": {"InputsChanged"},
    "input trimmed": {"LogTrimmed", "InputsChanged"},
}


def check(world: World) -> None:
    """Raise AssertionError for the first law that is broken."""
    if world.lost:
        _check_lost(world)
        return
    law(not world.stops, f"stopped without cause: {world.stops[:1]}")
    for partition in range(world.partitions):
        _check_partition(world, partition)


def _check_lost(world: World) -> None:
    """After a loss that no joiner can go on from, joiners stop with the right error, and accept no further tick."""
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
    evidence = Evidence.of(world, partition, ticks)
    check_content(evidence)
    check_positions(evidence)
    _check_dead_letters(evidence)
    _check_beginnings(world, partition, ticks)
    if not world.lost:
        _check_complete(evidence)


def read_all(log: Log, partition: int) -> list[AcceptedTick]:
    """The ticks that rule R accepts when it reads from the true beginning on."""
    rule = RuleR(partition=partition)
    ticks = [rule.take(entry.offset, entry.value) for entry in log.archive]
    return [tick for tick in ticks if tick is not None]


def _check_order(marks: list[Mark]) -> None:
    """Every tick is accepted once, in order; positions never go back."""
    law(not marks or marks[0].first_tick == 0, "the first tick is not 0")
    for before, after in pairwise(marks):
        law(after.first_tick == before.last_tick + 1, f"tick {after.first_tick} after tick {before.last_tick}")
        law(before.next_impression <= after.next_impression, "impressions go back")
        law(before.click_cursor <= after.click_cursor, "the click cursor goes back")
        law(before.first_click <= after.first_click, "the first click goes back")


def _check_dead_letters(evidence: Evidence) -> None:
    """Every dead record has its letter, under its own key, before the mark that counts it."""
    world, partition, ticks = evidence.world, evidence.partition, evidence.ticks
    written: dict[bytes | None, int] = {}
    for entry in world.logs[LETTERS, 0].archive:
        written.setdefault(entry.key, entry.order)
    orders = {entry.offset: entry.order for entry in world.logs[LOG, partition].archive}
    sides = (
        (IMPRESSIONS, [t.mark.next_impression for t in ticks], evidence.shown),
        (CLICKS, [t.mark.click_cursor for t in ticks], evidence.clicked),
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
        seen = list(accepted_ticks(calm, Queries(calm), LOG, partition, new_reader=Reader))  # type: ignore[arg-type]
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


def _check_complete(evidence: Evidence) -> None:
    """In the end nothing is left over; where no wall clock closed ticks, the log is a function of the inputs alone."""
    law(bool(evidence.ticks), "no tick was made")
    world, marks = evidence.world, evidence.marks
    last = marks[-1]
    if world.until_tick is not None:
        law(last.last_tick <= world.until_tick, f"tick {last.last_tick} is the last, not {world.until_tick}")
        return
    left_over = [e.offset for e in evidence.impressions if e.offset >= last.next_impression]
    not_taken = [e.offset for e in evidence.clicks if e.offset >= last.click_cursor]
    if world.close_idle:
        law(not left_over, "impressions are left over")
        law(not not_taken, "clicks are left over")
        law(last.counts.clicks.waiting == 0, "clicks wait for ever")
        return
    agree = world.spec.agree
    law(len(left_over) == agree, "impressions are left over")
    law(len(not_taken) == 1, "clicks are left over")
    law(last.counts.clicks.waiting == agree - 1, "clicks wait for ever")
    wanted = join_by_log_time(evidence.shown, evidence.clicked, evidence.settings, evidence.partition)
    found = [example for tick in evidence.ticks for example in examples_of(tick)]
    law(found == rows(wanted.examples), "not the examples of the two logs")
    counts = counts_of(marks)
    law(counts.impressions == +wanted.impressions, "not the outcomes of the two logs")
    law(counts.clicks == +wanted.clicks, "not the outcomes of the two logs' clicks")
