"""When the thread that watches the ends of partitions asks; a defect in it is raised by `check`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from itertools import pairwise

import pytest

from stream_learner.adapters.kafka import EndWatch, KafkaSettings, Moments, OffsetQueries, TopicAndPartition
from stream_learner.errors import BrokenInvariant, RetryLater, StreamLearnerError
from tests.adapters.kafka.kafka_help import watching
from tests.waiting import wait_until


def test_a_defect_in_the_thread_that_asks_stops_whoever_relies_on_it() -> None:
    queries = OffsetQueries(KafkaSettings({"bootstrap.servers": "127.0.0.1:1"}))
    watch = EndWatch(queries, clock_ms=lambda: 1 // 0, partitions=[("clicks", 0)], period_s=0.01).start()
    try:
        wait_until(lambda: not any(thread.name == "end-watch" for thread in threading.enumerate()), "the thread ended")
        with pytest.raises(BrokenInvariant, match="asking for the ends failed: ZeroDivisionError") as raised:
            watch.check()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
    finally:
        watch.stop()


def test_the_next_moment_comes_after_now() -> None:
    """Against a search over all times; at a moment itself, the next one is a whole step away."""
    for moments in (Moments(10, 0), Moments(7, 3), Moments(3, 20)):
        for now_ms in range(100):
            wanted = next(t for t in range(now_ms + 1, 200) if (t - moments.after_ms) % moments.every_ms == 0)
            assert moments.next_in_s(now_ms) == (wanted - now_ms) / 1000


class Answering(OffsetQueries):
    """Answers every question, except while told not to; `asked_ms` are the times."""

    def __init__(self) -> None:
        self.asked_ms: list[int] = []
        self.mute = False

    def high_watermarks_known(
        self, partitions: Iterable[TopicAndPartition]
    ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, StreamLearnerError]]:
        self.asked_ms.append(time.time_ns() // 1_000_000)
        if self.mute:
            return {}, {place: RetryLater("no answer") for place in partitions}
        return dict.fromkeys(partitions, 5), {}


def test_it_asks_soon_after_each_moment_and_every_period_without_an_answer() -> None:
    """Never twice for one moment: each costs the brokers and this process something."""
    queries, every_ms = Answering(), 400
    moments = Moments(every_ms, after_ms=150)
    clock_ms = lambda: time.time_ns() // 1_000_000  # noqa: E731
    with watching(EndWatch(queries, clock_ms, [("clicks", 0)], period_s=0.01, moments=lambda: moments)):
        wait_until(lambda: len(queries.asked_ms) > 6, "it asks again and again")
        numbers = [(asked_ms - 150) // every_ms for asked_ms in queries.asked_ms]
        assert all(after > before for before, after in pairwise(numbers))
        queries.mute = True
        began = len(queries.asked_ms)
        wait_until(lambda: len(queries.asked_ms) > began + 20, "it asks without waiting for a moment")
