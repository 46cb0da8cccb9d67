"""What a tick costs where there are fewer impressions than ticks, as `docs/join.md` says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.e2e.conftest import MakeSite
from tests.e2e.site import running, wait_until
from tests.scenarios import Message, scenario

pytestmark = pytest.mark.usefixtures("moved_clock")

NOW_MS = 1_700_000_000_000
TICK_MS = 10_000
IMPRESSIONS = 30
APART_MS = 60_000
QUIET_TICKS = 5


def test_the_records_of_a_sparse_log_are_those_that_the_page_counts(make_site: MakeSite) -> None:
    """Two records for each tick with an example, and marks of empty ticks: shared in between, one each at the end."""
    made = scenario("plain", partitions=1).with_settings(window_ms=APART_MS, tick_ms=TICK_MS, skew_ms=0, dedupe_ms=0)
    sent = [
        Message(at, b"%d" % at, b'{"id":"%d"}' % at) for at in range(NOW_MS - IMPRESSIONS * APART_MS, NOW_MS, APART_MS)
    ]
    closing = {"close_idle": True, "grace": "1s", "idle_after": "0"}
    site = make_site(replace(made, impressions=[sent], clicks=[[]]), join=closing)
    site.produce()
    clock = [NOW_MS + 2 * APART_MS]
    # With an end, as of a backfill, ticks and windows close together.
    with running(site.joiner(clock_ms=lambda: clock[0], until_tick=1 << 40)):
        for _ in range(QUIET_TICKS):
            wait_until(lambda: site.last_tick() >= (clock[0] - 1_000) // TICK_MS - 1, "closed by the clock")
            clock[0] += TICK_MS
        wait_until(lambda: site.last_tick() >= (clock[0] - 1_000) // TICK_MS - 1, "closed by the clock")
    marks = site.log(0).marks
    full = [mark for mark in marks if mark.records]
    between = [mark for mark in marks[marks.index(full[0]) : marks.index(full[-1])] if not mark.records]
    assert [(mark.records, mark.first_tick) for mark in full] == [(1, mark.last_tick) for mark in full]
    assert len(full) == IMPRESSIONS
    assert len(between) == IMPRESSIONS - 1
    assert [(mark.first_tick, mark.records) for mark in marks[-QUIET_TICKS:]] == [
        (mark.last_tick, 0) for mark in marks[-QUIET_TICKS:]
    ]
    assert site.ends(site.config.examples_topic, 1) == [len(marks) + len(full)]
