"""The join's closing rules and resume points with one step less.

In: nothing. Out: `MUTATIONS`: for each name, what to patch. This file must never be imported by anything that ships.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from simulation import kafka, process
from stream_learner.core import join_clicks, join_impressions
from stream_learner.core.join import PartitionJoin
from stream_learner.core.join_clicks import ClickMemory
from stream_learner.core.join_impressions import ImpressionBuffer
from stream_learner.core.join_spec import JoinSpec
from stream_learner.core.marks import Mark
from stream_learner.edges.kafka import End, EndWatch, Place
from stream_learner.roles.inputs import Inputs


def _forget_late(by: int) -> Any:
    right = ClickMemory.forget

    def forget(self: ClickMemory, before_ms: int, outcomes: Any) -> None:
        right(self, before_ms + by * self._tick_ms, outcomes)

    return forget


def _no_wait_for_impressions() -> Any:
    right = PartitionJoin.next_cut

    def next_cut(self: PartitionJoin, click_idle: Any = None, impression_idle: Any = None, **kw: Any) -> Any:
        return right(self, click_idle, 10**9, **kw)

    return next_cut


def _no_wait_for_clicks() -> Any:
    right = PartitionJoin.next_cut

    def next_cut(self: PartitionJoin, click_idle: Any = None, impression_idle: Any = None, **kw: Any) -> Any:
        return right(self, max(self.impression_log_time, click_idle or 0), impression_idle, **kw)

    return next_cut


def _whole_batch(self: PartitionJoin, end_ms: int) -> int:
    return self._ahead.position


def _end_without_position() -> Any:
    right = Inputs._at_end

    def at_end(self: Inputs, ends: Any, topic: str, position: int, clock: Any) -> int | None:
        return right(self, ends, topic, sys.maxsize, clock)

    return at_end


def _end_without_grace() -> Any:
    right = Inputs._at_end

    def at_end(self: Inputs, ends: Any, topic: str, position: int, clock: Any) -> int | None:
        found = right(self, ends, topic, position, clock)
        return None if found is None else found + self._plan.clock.grace_ms

    return at_end


def _clock_after_the_answer(self: EndWatch) -> Any:
    known, _ = self._queries.high_watermarks_known(self._places)
    now = self._clock_ms()
    kept = {place: end for place, end in self.snapshot.items() if place in self._places}
    self.snapshot = MappingProxyType({**kept, **{place: End(now, offset) for place, offset in known.items()}})
    return self.snapshot


def _old_answer_for_new() -> Any:
    right = EndWatch.ask

    def ask(self: EndWatch) -> Any:
        right(self)
        now = self._clock_ms()
        answers: dict[Place, End] = {place: End(now, end.high_watermark) for place, end in self.snapshot.items()}
        self.snapshot = MappingProxyType(answers)
        return self.snapshot

    return ask


def _raw_times(offsets: Any, status: Any, times: Any, position: int, log_time: int) -> Any:
    return times.copy()


def _read_uncommitted() -> Any:
    right = kafka.Reader.__init__

    def begin(self: kafka.Reader, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self._committed = False

    return begin


def _no_dedupe_point(self: ImpressionBuffer) -> tuple[int, int]:
    return self.next, self._emitted_log_time


def _point_without(name: str) -> Any:
    right = PartitionJoin.resume_point
    return lambda self, *args: replace(right(self, *args), **{name: -1})


def _resume_without(name: str) -> Any:
    right = PartitionJoin.resume

    def resume(spec: JoinSpec, mark: Mark, **kw: Any) -> PartitionJoin:
        assert mark.resume is not None
        return right(spec, replace(mark, resume=replace(mark.resume, **{name: -1})), **kw)

    return resume


MUTATIONS = {
    "closing: impressions need not have been read past the tick": lambda: [
        (PartitionJoin, "next_cut", _no_wait_for_impressions())
    ],
    "closing: clicks need not have been read past the tick": lambda: [
        (PartitionJoin, "next_cut", _no_wait_for_clicks())
    ],
    "closing: clicks count however far was read": lambda: [(PartitionJoin, "_cursor_at", _whole_batch)],
    "closing: times instead of log time": lambda: [
        (join_clicks, "running_log_time", _raw_times),
        (join_impressions, "running_log_time", _raw_times),
    ],
    "closing: the position need not have reached the end": lambda: [(Inputs, "_at_end", _end_without_position())],
    "closing: no grace": lambda: [(Inputs, "_at_end", _end_without_grace())],
    "closing: the clock is read after the answer": lambda: [
        (EndWatch, "ask", _clock_after_the_answer),
        (process, "END_DELAY_SHARE", 0.9),  # not of the mutation itself: more of the trouble in question
        (process, "DELAY_MS", 12),
        (kafka, "PARTIAL_READS", 1),
    ],
    "closing: no answer counts as the old one": lambda: [
        (EndWatch, "ask", _old_answer_for_new()),
        (process, "END_ERROR_SHARE", 0.8),  # not of the mutation itself: more of the trouble in question
        (kafka, "PARTIAL_READS", 1),
    ],
    "inputs: records that are not committed are read": lambda: [(kafka.Reader, "__init__", _read_uncommitted())],
    "clicks: forgotten a tick late": lambda: [(ClickMemory, "forget", _forget_late(-1))],
    "clicks: forgotten a tick early": lambda: [(ClickMemory, "forget", _forget_late(1))],
    "clicks: remembered without the skew": lambda: [(JoinSpec, "memory_ms", property(lambda spec: spec.window_ms))],
    "resume point: nothing is read again for duplicates": lambda: [
        (ImpressionBuffer, "dedupe_point", _no_dedupe_point)
    ],
    "resume point: without the clicks' log time": lambda: [
        (PartitionJoin, "resume_point", _point_without("click_log_time"))
    ],
    "resume point: without the impressions' log time": lambda: [
        (PartitionJoin, "resume_point", _point_without("impression_log_time"))
    ],
    "resume point: the clicks' log time is not taken from it": lambda: [
        (PartitionJoin, "resume", _resume_without("click_log_time"))
    ],
    "resume point: the impressions' log time is not taken from it": lambda: [
        (PartitionJoin, "resume", _resume_without("impression_log_time"))
    ],
    "resume point: no click was matched": lambda: [(ClickMemory, "codes", lambda self: np.zeros(len(self), np.uint8))],
    "resume point: clicks that wait are not read again": lambda: [
        (PartitionJoin, "_first_click", lambda self: self._click_cursor)
    ],
}
