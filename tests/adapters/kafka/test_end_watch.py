"""A defect in the thread that watches the ends of partitions is raised by `check`."""

from __future__ import annotations

import threading

import pytest

from stream_learner.adapters.kafka import EndWatch, KafkaSettings, OffsetQueries
from stream_learner.errors import BrokenInvariant
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
