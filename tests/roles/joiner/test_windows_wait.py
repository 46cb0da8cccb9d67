"""For how long windows have waited, as the inputs of a partition tell it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import End, RawBatch
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.decoders import ClickDecoder, EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.roles.joiner.bad_records import BadShare
from stream_learner.roles.joiner.inputs import InputPlan, Inputs
from stream_learner.roles.joiner.stream_clock import ClockRule
from stream_learner.roles.joiner.ticks import BrokersClock
from stream_learner.roles.joiner.watches import AWAITS_CLICK, AWAITS_NEXT, StreamReport

NOW_MS = 1_763_000_000_000
TOPICS = ("impressions", "clicks")


class _Stream:
    """Both topics as lists of events, one partition each, and the clock; an event a second comes to each."""

    def __init__(self) -> None:
        self.m = 0
        self.records: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        spec = JoinSpec(window_ms=60_000, skew_ms=0, tick_ms=1_000, dedupe_ms=0, lateness_ms=30_000, agree=1)
        self.join = JoinState(spec, impression_start=0, click_start=0)
        plan = InputPlan(
            settings=cast("Any", None),
            impressions_topic=TOPICS[0],
            clicks_topic=TOPICS[1],
            impression_decoder=ImpressionDecoder(EventSpec(id="id"), FeatureSpec()),
            click_decoder=ClickDecoder(EventSpec(id="id")),
            bad_share=BadShare(1.0, 1),
            clock=ClockRule(grace_ms=2_000, lateness_ms=30_000, idle_after_ms=600_000, window_ms=60_000),
            clock_ms=lambda: self.m,
            new_reader=lambda _settings, topic, _partition, start, name: _Reader(self, topic, start),
        )
        plan.brokers.note(NOW_MS, 0)
        self.inputs = Inputs(plan, 0, self.join, 1 << 20)

    def look(self) -> int:
        """Read to the ends as they are now; returns for how long windows have waited."""
        ends = {(topic, 0): End(self.m, len(times)) for topic, times in self.records.items()}
        while self.inputs.read(self.inputs.look(ends)):
            pass
        return self.inputs.waits_ms(self.m)

    def come(self) -> None:
        """A second passes, and an event comes to each topic."""
        self.m += 1_000
        for times in self.records.values():
            times.append(NOW_MS + self.m)


class _Reader:
    def __init__(self, stream: _Stream, topic: str, start: int) -> None:
        self._records, self.position = stream.records[topic], start

    def read(self, most: int) -> RawBatch | None:
        times = self._records[self.position : self.position + most]
        if not times:
            return None
        offsets = np.arange(self.position, self.position + len(times))
        self.position += len(times)
        values = [json.dumps({"id": f"i{offset}"}).encode() for offset in offsets.tolist()]
        return RawBatch(offsets, np.array(times), values)


@pytest.fixture
def stream() -> _Stream:
    """A stream that has come for half a minute, and been read."""
    found = _Stream()
    for _ in range(30):
        found.come()
        assert found.look() == 0
    return found


def test_windows_wait_while_nothing_comes(stream: _Stream) -> None:
    """From when an arrival no longer vouches for the stream, until `grace` after the next one."""
    stream.m += 100_000
    assert stream.look() == 100_000 - 8_000
    waited = []
    for _ in range(3):
        stream.come()
        waited.append(stream.look())
    assert waited == [93_000, 94_000, 0]


def test_windows_wait_for_idle_after_at_the_most(stream: _Stream) -> None:
    """A silence that lasts longer holds nothing any more; S is so far behind."""
    stream.m += 1_000_000
    assert stream.look() == 600_000


def test_nothing_waits_in_a_backlog(stream: _Stream) -> None:
    """A joiner that is behind makes windows late; no input is silent."""
    stream.m += 100_000
    for times in stream.records.values():
        times.append(NOW_MS + stream.m)
    stream.inputs.look({(topic, 0): End(stream.m, 31) for topic in TOPICS})
    assert stream.inputs.waits_ms(stream.m) == 0


def test_nothing_waits_where_all_windows_are_closed(stream: _Stream) -> None:
    """A topic that has ended is no alarm."""
    stream.m += 1_000_000
    assert stream.look() > 0
    cut = stream.join.next_cut(NOW_MS + stream.m, NOW_MS + stream.m, together=True)
    assert cut is not None and cut.next_impression == 30
    stream.join.emit(cut)
    assert stream.look() == 0


def test_the_line_says_what_windows_wait_for() -> None:
    """For the next click in one partition, for anything in the other; the line has what the worst one waits for."""
    brokers = BrokersClock()
    brokers.note(NOW_MS, 0)
    for worst, note in ((0, AWAITS_CLICK), (1, AWAITS_NEXT)):
        joiners = [
            _waiting(0, awaits_click=True, ms=70_000),
            _waiting(1, awaits_click=False, ms=69_000 + 2_000 * worst),
        ]
        with capture_logs() as logged:
            report = StreamReport(Metrics("m"), get_logger("joiner"), brokers, window_s=60)
            report.look(joiners, 0, NOW_MS)
        assert [(line["event"], line["partition"], line["note"]) for line in logged] == [("windows_wait", worst, note)]


def _waiting(partition: int, *, awaits_click: bool, ms: int) -> Any:
    clock = SimpleNamespace(lag_ms=lambda _base: None, extra_ms=lambda: None)
    inputs = SimpleNamespace(clock=clock, awaits_click=awaits_click, waits_ms=lambda _m: ms)
    return SimpleNamespace(partition=partition, inputs=inputs, count_guesses=lambda _m, _base: 0)
