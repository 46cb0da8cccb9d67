"""Checks of the accepted ticks of one partition that need nothing but the ticks: marks, examples, their sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import LOG_TIME_RULES, Mark
from stream_learner.operations.audit.findings import BALANCE, CHECKSUMS, COUNTS, ORDER, POSITIONS
from stream_learner.operations.audit.log_walk import Step
from stream_learner.operations.audit.request import AuditedPartition
from stream_learner.wording import count_of


@dataclass
class Stretch:
    """The sums of marks that follow each other without a gap, and of which none begins the log anew.

    opening: the mark before the first one, None at the beginning of the log. last: the last one, None before the first.
    """

    opening: Mark | None
    balance: Balance
    last: Mark | None = None
    positives: int = 0


@dataclass
class Sums:
    """The sums of the marks in the range.

    first, last: the first and the last mark. begins_anew: the ticks with which the log begins anew. balances: one, and
    one more for each gap. stretches: what lies between gaps and marks that begin anew. other_rules: whether a resume
    point is of earlier rules of the join. lost_examples: those of damaged records that a skip names.
    """

    first: Mark | None = None
    last: Mark | None = None
    from_offset: int = 0
    until_offset: int = 0
    marks: int = 0
    records: int = 0
    examples: int = 0
    lost_examples: int = 0
    positives: int = 0
    resume_points: int = 0
    other_rules: bool = False
    attempts: int = 0
    balances: list[Balance] = field(default_factory=list)
    begins_anew: list[int] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


class MarkChecks:
    """Checks one partition: call `take` with every step in the range, in order."""

    def __init__(self, place: AuditedPartition, spec: JoinSpec) -> None:
        self._place = place
        self._spec = spec
        self._log_time = -1
        self._problems = 0
        self.sums = Sums()

    def take(self, step: Step) -> None:
        """Check the next tick."""
        mark, sums = step.tick.mark, self.sums
        if sums.first is None:
            sums.first, sums.from_offset = mark, step.tick.mark_offset
        if step.before is None or sums.last is None or step.before.id != sums.last.id:
            self._open(step)
        sums.attempts += sums.last is None or sums.last.attempt != mark.attempt
        sums.last, sums.until_offset = mark, step.tick.mark_offset + 1
        sums.marks += 1
        sums.resume_points += mark.resume is not None
        sums.other_rules |= mark.resume is not None and mark.resume.rules < LOG_TIME_RULES
        self._place.findings.held(ORDER)
        self._check_positions(step)
        self._check_balance(step)
        if mark.begins_anew:
            self._begin_anew(mark)
            return
        sums.stretches[-1].last = mark
        if step.whole:
            self._check_examples(step)

    def _begin_anew(self, mark: Mark) -> None:
        """Forget log time and waiting clicks: positions mean something else from here on."""
        self.sums.begins_anew.append(mark.last_tick)
        self.sums.stretches.append(_stretch_after(mark))
        self._log_time = -1

    def _open(self, step: Step) -> None:
        """Begin a new balance, at the beginning of the range or behind a gap."""
        balance = Balance()
        if step.before is not None:
            balance.open(step.before)
        self.sums.balances.append(balance)
        self.sums.stretches.append(_stretch_after(step.before))
        self._problems = 0

    def _check_balance(self, step: Step) -> None:
        balance, mark = self.sums.balances[-1], step.tick.mark
        if step.before is None and mark.first_tick > 0:
            balance.open(mark)  # the impressions and clicks that waited before it are not known
            self.sums.stretches[-1] = _stretch_after(mark)
            self._place.leave_out(BALANCE, f"ticks {mark.first_tick} to {mark.last_tick}: the mark before is missing")
            return
        balance.add(mark)
        if not mark.begins_anew:
            self.sums.stretches[-1].balance.add(mark)
        self._place.findings.held(BALANCE)
        problems = balance.problems
        for problem in problems[self._problems :]:
            self._place.fail(BALANCE, problem.partition(": ")[2], step.tick.mark_offset, mark.last_tick)
        self._problems = len(problems)

    def _check_examples(self, step: Step) -> None:
        mark, records = step.tick.mark, [record for _, record in step.tick.records]
        sums, counted = self.sums, mark.counts.impressions
        positives = sum(int(np.count_nonzero(record.label > 0)) for record in records)
        self._place.findings.held(COUNTS)
        if positives != counted.positives and not step.tick.left_out:
            what = f"the mark counts {count_of(counted.positives, 'positive')}, its examples are {positives}"
            self._place.fail(COUNTS, what, step.tick.mark_offset, mark.last_tick)
        sums.records += mark.records
        sums.examples += step.tick.examples
        sums.lost_examples += step.tick.lost_examples
        sums.positives += positives
        sums.stretches[-1].positives += counted.positives if step.tick.left_out else positives
        for offset, record in step.tick.records:
            for wrong in wrong_in(record):
                self._place.fail(CHECKSUMS, wrong, offset, mark.last_tick)
            self._check_times(offset, record, mark)

    def _check_times(self, offset: int, record: ExampleRecord, mark: Mark) -> None:
        """Check that examples are in the order of log time, and none is in a tick before its window closes."""
        first, last = int(record.log_time_ms[0]), int(record.log_time_ms[-1])
        if first < self._log_time:
            what = f"log time goes back, from {self._log_time} to {first}"
            self._place.fail(ORDER, what, offset, mark.last_tick)
        closes = (last + self._spec.window_ms) // self._spec.tick_ms
        if closes > mark.stream_tick:
            what = (
                f"an example of tick {closes} of stream time is in a mark that closes windows up to {mark.stream_tick}"
            )
            self._place.fail(ORDER, what, offset, mark.last_tick)
        self._log_time = max(self._log_time, last)

    def _check_positions(self, step: Step) -> None:
        self._place.findings.held(POSITIONS)
        before = None if step.tick.mark.begins_anew else step.before
        for wrong in wrong_positions(step.tick.mark, before):
            self._place.fail(POSITIONS, wrong, step.tick.mark_offset, step.tick.mark.last_tick)


def _stretch_after(opening: Mark | None) -> Stretch:
    balance = Balance()
    if opening is not None:
        balance.open(opening)
    return Stretch(opening, balance)


def wrong_in(record: ExampleRecord) -> list[str]:
    """The faults of a record that can be read, but that no joiner writes: keys that repeat, labels out of range."""
    found = []
    if len(np.unique(record.keys)) != len(record.keys):
        found.append("a key is twice among the keys of the record")
    rows = np.repeat(np.arange(len(record), dtype=np.int64), record.row_len)
    places = (rows << 16) | record.indices
    if len(np.unique(places)) != len(places):
        found.append("a feature is twice in an example")
    if not ((record.label >= 0) & (record.label <= 1)).all():
        found.append("a label is not in [0, 1]")
    if not (np.isfinite(record.weight) & (record.weight >= 0)).all():
        found.append("an importance weight is negative or not finite")
    return found


def wrong_positions(mark: Mark, before: Mark | None) -> list[str]:
    """The faults of the positions of a mark, given the mark before it.

    >>> from dataclasses import replace
    >>> first = Mark(0, 1, 0, 4, 10, 3, 5, 1, 0, -1)
    >>> wrong_positions(replace(first, next_impression=9), first)
    ['next_impression goes back from 10 to 9']
    """
    found = []
    if not 0 <= mark.first_click <= mark.click_cursor:
        found.append(f"first_click {mark.first_click} is not before click_cursor {mark.click_cursor}")
    point, waiting = mark.resume, mark.counts.clicks.waiting
    if point is not None and len(point.codes) != waiting:
        found.append(
            f"the resume point has {count_of(len(point.codes), 'code')} for {count_of(waiting, 'waiting click')}"
        )
    if point is not None and point.dedupe_from > mark.next_impression:
        found.append(f"dedupe_from {point.dedupe_from} is behind next_impression {mark.next_impression}")
    if waiting > mark.click_cursor - mark.first_click:
        found.append(
            f"{count_of(waiting, 'waiting click')} between first_click {mark.first_click} and {mark.click_cursor}"
        )
    if before is None:
        return found
    for name in ("next_impression", "first_click", "click_cursor"):
        then, now = getattr(before, name), getattr(mark, name)
        if now < then:
            found.append(f"{name} goes back from {then} to {now}")
    for side, read, records in (
        ("impression", mark.counts.impressions.read, mark.next_impression - before.next_impression),
        ("click", mark.counts.clicks.read, mark.click_cursor - before.click_cursor),
    ):
        if read > max(records, 0):
            found.append(f"{count_of(read, side)} read from {count_of(max(records, 0), 'offset')}")
    return found
