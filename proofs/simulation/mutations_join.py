"""Mutations of the join: its closing rules and its resume points, each with one step less."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from proofs.simulation import joiners, kafka, process
from stream_learner.adapters.kafka import End, EndWatch, TopicAndPartition
from stream_learner.core.join import impressions as join_impressions
from stream_learner.core.join.batches import ClickBatch, ImpressionBatch
from stream_learner.core.join.click_memory import BLOCK, DEAD, UNMATCHED, ClickMemory, expire_clicks
from stream_learner.core.join.impressions import ImpressionBuffer
from stream_learner.core.join.labels import RuleFields, label_rule
from stream_learner.core.join.log_time import LogTime, count_before
from stream_learner.core.join.spec import Cut, JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.log.marks import RULES, Mark
from stream_learner.core.log.rule_w import Attempt
from stream_learner.roles.joiner import stream_clock, ticks
from stream_learner.roles.joiner.inputs import Inputs
from stream_learner.roles.joiner.partition_state import PartitionState
from stream_learner.roles.joiner.stream_clock import StreamClock
from stream_learner.roles.joiner.ticks import Ticks

FOR_EVER_MS = 10**9


def _forget_late(by: int) -> Any:
    right = ClickMemory.forget

    def forget(self: ClickMemory, end_ms: int, outcomes: Any, *rules: int) -> None:
        right(self, end_ms + by * self._spec.tick_ms, outcomes, *rules)

    return forget


def _no_wait_for_impressions() -> Any:
    right = JoinState.next_cut

    def next_cut(self: JoinState, click_idle: Any = None, impression_idle: Any = None, **kw: Any) -> Any:
        return right(self, click_idle, FOR_EVER_MS, **kw)

    return next_cut


def _no_wait_for_clicks() -> Any:
    right = JoinState.next_cut

    def next_cut(self: JoinState, click_idle: Any = None, impression_idle: Any = None, **kw: Any) -> Any:
        return right(self, max(self.impression_log_time, click_idle or 0), impression_idle, **kw)

    return next_cut


def _whole_batch(self: JoinState, end_ms: int) -> int:
    return self._ahead.position


def _end_without_position() -> Any:
    right = Inputs.look

    def look(self: Inputs, ends: Any) -> Any:
        return right(self, {place: End(end.asked_at_ms, 0) for place, end in ends.items()})

    return look


def _clock_after_the_answer(self: EndWatch) -> Any:
    known, _ = self._queries.high_watermarks_known(self._partitions)
    now = self._clock_ms()
    kept = {place: end for place, end in self.snapshot.items() if place in self._partitions}
    self.snapshot = MappingProxyType({**kept, **{place: End(now, offset) for place, offset in known.items()}})
    return self.snapshot


def _old_answer_for_new() -> Any:
    right = EndWatch.ask

    def ask(self: EndWatch) -> Any:
        right(self)
        now = self._clock_ms()
        answers: dict[TopicAndPartition, End] = {
            place: End(now, end.high_watermark) for place, end in self.snapshot.items()
        }
        self.snapshot = MappingProxyType(answers)
        return self.snapshot

    return ask


def _whole_buffer(self: ImpressionBuffer, time_ms: int) -> int:
    return self.position


def _own_word() -> Any:
    """Log time of both inputs with `agree` 1: every clock is believed."""
    right = LogTime.__init__

    def begin(self: LogTime, agree: int, log_time: int) -> None:
        right(self, 1, log_time)

    return begin


def _with_spec(of: type, **changes: Any) -> Any:
    """A class of the join, made with other settings but the fingerprint of the right ones."""
    right = of.__init__  # type: ignore[misc]

    def begin(self: Any, spec: JoinSpec, *args: Any, **kwargs: Any) -> None:
        other = replace(spec, **changes)
        vars(other)["fingerprint"] = spec.fingerprint
        right(self, other, *args, **kwargs)

    return begin


def _without_grace() -> Any:
    right = StreamClock.stream_ms

    def stream_ms(self: StreamClock, *args: Any, **rest: Any) -> int | None:
        found = right(self, *args, **rest)
        return None if found is None else found + self.rule.grace_ms

    return stream_ms


def _no_bound_by_the_brokers() -> Any:
    """Takes the bound that is the brokers' clock out of the lag offset and of S."""

    def lag_offset(self: StreamClock, base: int | None) -> int | None:
        kept = self.remembered
        fallback = None if kept is None or base is None else base - kept.lag
        return stream_clock._agreed(self.impressions, self.topics.impressions, fallback)

    def now_ms(self: StreamClock, m: int, base: int, **rest: bool) -> int | None:
        offset, extra = self._lag_offset(base), self._extra(m, base)
        return None if offset is None else m + offset + min(extra or 0, 0) - self.rule.grace_ms

    return [(StreamClock, "_lag_offset", lag_offset), (StreamClock, "now_ms", now_ms)]


def _known_at_once() -> Any:
    right = StreamClock.stream_ms

    def stream_ms(self: StreamClock, m: int, base: int, **rest: Any) -> int:
        found = right(self, m, base, **rest)
        return m + base - self.rule.grace_ms if found is None else found

    return stream_ms


def _w_of_the_tick() -> Any:
    right = Attempt.stamp
    return lambda self, *args, **kw: right(self, *args, **{**kw, "stream_tick": kw["last_tick"]})


def _moves_though_w_stands(cursor: bool) -> Any:
    """Moves the cursor, or the border, to the end of what was read with a mark that closes no window."""
    right = JoinState._cut

    def cut(self: JoinState, last_tick: int, next_impression: int) -> Cut:
        found = right(self, last_tick, next_impression)
        if last_tick >= self.next_tick:
            return found
        if cursor:
            return found._replace(click_cursor=self._ahead.position)
        return found._replace(next_impression=self._impressions.position)

    return [(JoinState, "_cut", cut), (Cut, "closes", property(lambda self: True))]


def _next_at_once() -> Any:
    right = Ticks._passed

    def passed(self: Ticks, first_tick: int, m: int, base: int | None) -> int:
        return first_tick if base is None else right(self, first_tick, m, base)

    return passed


def _patient() -> list[tuple[Any, str, Any]]:
    """No part of a mutation: windows wait long in a silence, and buffers are never full."""
    return [(joiners, "IDLE_AFTER_MS", (400,)), (joiners, "BUFFERS_BYTES", (1 << 20,))]


def _wrong_sign() -> Any:
    right = StreamClock.__post_init__

    def begin(self: StreamClock) -> None:
        if self.remembered is not None:
            self.remembered = self.remembered._replace(lag=-self.remembered.lag)
        right(self)

    return begin


def _nobody_is_late() -> Any:
    right = join_impressions._label

    def label(batch: ImpressionBatch, stop: int, rule: RuleFields, *args: Any) -> int:
        return right(batch, stop, (-FOR_EVER_MS, *rule[1:]), *args)

    return label


def _forget_ids_early() -> Any:
    right = JoinSpec.first_remembered_step
    return lambda self, tick: right(self, tick) + 1


def _clicks_count_twice() -> Any:
    right = join_impressions._label

    def label(
        batch: ImpressionBatch, stop: int, rule: RuleFields, clicks: ClickMemory, spec: JoinSpec, *args: Any
    ) -> int:
        bare = replace(spec, dedupe_ms=0)
        return right(batch, stop, label_rule(bare, *rule[:2], RULES), clicks, bare, *args)

    return label


def _run_as_one_tick(self: ClickBatch, time_ms: int, stop: int) -> int:
    return stop


def _all_or_none(*row: Any) -> tuple[int, int]:
    """Counts a row as wholly before the time where one event is."""
    found, before = count_before(*row)
    return found, found if before else 0


def _look_again_for(cursor: bool) -> Any:
    """Makes a tick again with the cursor, or the border, that what has been read now would give it."""
    right = PartitionState._make_tick_again

    def make(self: PartitionState, mark: Mark) -> Any:
        join = self.join
        while join.next_click_to_read < mark.click_cursor or join.next_impression_to_read < mark.next_impression:
            yield self._read_towards(mark.next_impression, mark.click_cursor)
        end_ms = (mark.stream_tick + 1) * join.spec.tick_ms
        if mark.stream_tick < join.next_tick:
            pass
        elif cursor:
            mark = replace(mark, click_cursor=join._cursor_at(end_ms))
        else:
            mark = replace(mark, next_impression=join._impressions.end_of_those_before(end_ms - join.spec.window_ms))
        yield from right(self, mark)

    return make


def _rows_beyond_the_cursor() -> Any:
    """Lets rows of clicks end with what has been read, not at the cursor: lends the memory the clicks read ahead."""
    right = JoinState.emit

    def emit(self: JoinState, *args: Any) -> Any:
        self._clicks.ahead = self._ahead  # type: ignore[attr-defined]
        return right(self, *args)

    def forget(self: ClickMemory, end_ms: int, outcomes: Any, rules: int) -> None:
        spec, end = self._spec, self.end
        for batch in self.ahead._batches:  # type: ignore[attr-defined]
            columns = batch.columns
            for i in range(batch.start, len(columns.offsets)):
                self._make_room(end + 1)
                block, place = self._held[end // BLOCK - self._first_block], 4 * (end % BLOCK)
                code = UNMATCHED if columns.status[i] == 0 else DEAD
                block[place : place + 4] = columns.offsets[i], columns.time_ms[i], 0, code
                end += 1
        before_ms, row = end_ms - spec.keep_ms, np.empty(2 * spec.agree - 1, np.int64)
        reached = self.forgotten_log_time, self.forgotten_usual_time
        self.first, self.forgotten_log_time, self.forgotten_usual_time = expire_clicks(
            self.place, end, *reached, row, spec.agree, True, spec.lateness_ms, before_ms, outcomes
        )
        self.first = min(self.first, self.end)

    return [(JoinState, "emit", emit), (ClickMemory, "forget", forget)]


def _read_uncommitted() -> Any:
    right = kafka.Reader.__init__

    def begin(self: kafka.Reader, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self._committed = False

    return begin


def _point_without(**nothing: Any) -> Any:
    right = JoinState.resume_point
    return lambda self, *args, **kwargs: replace(right(self, *args, **kwargs), **nothing)


def _resume_without(**nothing: Any) -> Any:
    right = JoinState.resume

    def resume(spec: JoinSpec, mark: Mark, **kw: Any) -> JoinState:
        assert mark.resume is not None
        return right(spec, replace(mark, resume=replace(mark.resume, **nothing)), **kw)

    return resume


MUTATIONS = {
    "closing: impressions need not have been read past the tick": lambda: [
        (JoinState, "next_cut", _no_wait_for_impressions())
    ],
    "closing: clicks need not have been read past the tick": lambda: [(JoinState, "next_cut", _no_wait_for_clicks())],
    "closing: clicks count however far was read": lambda: [(JoinState, "_cursor_at", _whole_batch)],
    "closing: impressions are emitted however far was read": lambda: [
        (ImpressionBuffer, "end_of_those_before", _whole_buffer)
    ],
    "closing: every clock is believed": lambda: [(LogTime, "__init__", _own_word())],
    "closing: every clock is believed, of clicks that are kept as well": lambda: [
        (JoinState, "__init__", _with_spec(JoinState, agree=1))
    ],
    "closing: the position need not have reached the end": lambda: [(Inputs, "look", _end_without_position())],
    "closing: no grace": lambda: [(StreamClock, "stream_ms", _without_grace())],
    "closing: the clock is read after the answer": lambda: [
        (EndWatch, "ask", _clock_after_the_answer),
        (process, "END_DELAY_SHARE", 0.9),  # no part of the mutation: more of the trouble that it needs
        (process, "DELAY_MS", 12),
        (kafka, "PARTIAL_READS", 1),
    ],
    "closing: no answer counts as the old one": lambda: [
        (EndWatch, "ask", _old_answer_for_new()),
        (process, "END_ERROR_SHARE", 0.8),  # no part of the mutation: more of the trouble that it needs
        (kafka, "PARTIAL_READS", 1),
    ],
    "clock: S may be ahead of the brokers' clock": _no_bound_by_the_brokers,
    "clock: windows go on in a silence": lambda: [
        (StreamClock, "stood_at", lambda self, m, base, **rest: m),
        *_patient(),
    ],
    "clock: what is not known is waited for no time": lambda: [(StreamClock, "stream_ms", _known_at_once())],
    "clock: the lag that is remembered has the wrong sign": lambda: [
        (StreamClock, "__post_init__", _wrong_sign()),
        (joiners, "LAGS_MS", (150,)),  # no part of the mutation, as what follows: more of the trouble that it needs
        (joiners, "CLOCK_STEPS_MS", (0,)),
        *_patient(),
    ],
    "clock: one broker is believed": lambda: [(ticks, "REPORTS", 1)],
    "ticks: half pace is ignored": lambda: [(ticks, "HALF_PACE", 0)],
    "ticks: a joiner without a clock goes on": lambda: [(Ticks, "_passed", _next_at_once())],
    "marks: the tick is taken for W": lambda: [(Attempt, "stamp", _w_of_the_tick())],
    "marks: the cursor moves though W stands": lambda: _moves_though_w_stands(cursor=True),
    "marks: the border moves though W stands": lambda: _moves_though_w_stands(cursor=False),
    "runs: clicks are taken as in one tick": lambda: [(ClickBatch, "end_of_those_before", _run_as_one_tick)],
    "impressions: none is late": lambda: [(join_impressions, "_label", _nobody_is_late())],
    "impressions: ids are forgotten a step early": lambda: [(JoinSpec, "first_remembered_step", _forget_ids_early())],
    "impressions: a click counts for every repeat": lambda: [(join_impressions, "_label", _clicks_count_twice())],
    "inputs: records that are not committed are read": lambda: [(kafka.Reader, "__init__", _read_uncommitted())],
    "clicks: forgotten a tick late": lambda: [(ClickMemory, "forget", _forget_late(-1))],
    "clicks: forgotten a tick early": lambda: [(ClickMemory, "forget", _forget_late(1))],
    "clicks: kept without the skew": lambda: [
        (JoinSpec, "keep_ms", property(lambda spec: spec.window_ms + spec.lateness_ms))
    ],
    "clicks: kept without the lateness": lambda: [(ClickMemory, "__init__", _with_spec(ClickMemory, lateness_ms=0))],
    "clicks: rows do not end at the cursor": _rows_beyond_the_cursor,
    "border: one that is before it lets all of its row go": lambda: [(join_impressions, "count_before", _all_or_none)],
    "made again: the cursor is looked for again": lambda: [
        (PartitionState, "_make_tick_again", _look_again_for(cursor=True))
    ],
    "made again: the border is looked for again": lambda: [
        (PartitionState, "_make_tick_again", _look_again_for(cursor=False))
    ],
    "resume point: without steps": lambda: [(JoinState, "resume_point", _point_without(steps=()))],
    "resume point: steps are not taken from it": lambda: [(JoinState, "resume", _resume_without(steps=()))],
    "resume point: nothing is read again for duplicates": lambda: [
        (ImpressionBuffer, "remembered_from", property(lambda self: self.next))
    ],
    "resume point: without the clicks' usual time": lambda: [
        (JoinState, "resume_point", _point_without(click_usual_time=-1))
    ],
    "resume point: without the impressions' log time": lambda: [
        (JoinState, "resume_point", _point_without(impression_log_time=-1))
    ],
    "resume point: the clicks' usual time is not taken from it": lambda: [
        (JoinState, "resume", _resume_without(click_usual_time=-1))
    ],
    "resume point: the impressions' log time is not taken from it": lambda: [
        (JoinState, "resume", _resume_without(impression_log_time=-1))
    ],
    "resume point: no click was matched": lambda: [(ClickMemory, "codes", lambda self: np.zeros(len(self), np.uint8))],
    "resume point: clicks that wait are not read again": lambda: [
        (JoinState, "_first_click", lambda self: self._click_cursor)
    ],
}
