"""Old events fed into a running joiner: the clock waits for their clicks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_learner.roles.joiner.role import JoinerRole
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import Message, scenario

pytestmark = pytest.mark.usefixtures("moved_clock")

NOW_MS = 1_700_000_000_000
MONTH_MS = 30 * 86_400_000
WINDOW_MS = 600_000
SPEED = 60
STEPS = 40
CLICK_DELAY_MS = 300_000


def test_old_events_at_sixty_times_their_speed_keep_their_clicks(make_site: MakeSite) -> None:
    """A month old, a minute of them a second, the click of an impression five minutes later; then nothing more."""
    made = scenario("plain", partitions=1).with_settings(window_ms=WINDOW_MS, tick_ms=1_000, skew_ms=0, dedupe_ms=0)
    closing = {"close_idle": True, "grace": "1s", "idle_after": "1m"}
    site = make_site(replace(made, impressions=[[]], clicks=[[]]), join=closing)
    clock, sent = [NOW_MS], [0]
    joiner = site.joiner(clock_ms=lambda: clock[0])
    with running(joiner):
        for step in range(STEPS + CLICK_DELAY_MS // 60_000):
            at = NOW_MS - MONTH_MS + 60_000 * step
            if step < STEPS:
                site.send(site.impressions, 0, [_event(at, step)])
            clicked = step - CLICK_DELAY_MS // 60_000
            if clicked >= 0:
                site.send(site.clicks, 0, [_event(at, clicked)])
                sent[0] += 1
            wait_until(lambda: _read(joiner, "click") >= sent[0], f"clicks of step {step} are read")
            clock[0] += 60_000 // SPEED
        assert site.stream_tick() < NOW_MS // 1000 - 86_400
        clock[0] += 61_000
        # The last impressions are read only now, when the clicks have been quiet for a minute, and are as old as that.
        wait_until(lambda: _read(joiner, "impression") >= STEPS, "all impressions are read")
        clock[0] += 2 * WINDOW_MS  # at the pace of the stream, which the last sixteen arrivals tell, and a minute later
        wait_until(lambda: len(site.log(0).examples()) == STEPS, "closed by the clock")
    assert [label for _, _, _, label, _, _ in site.log(0).examples()] == [1.0] * STEPS
    assert sum(mark.counts.clicks.late for mark in site.log(0).marks) == 0


def test_old_events_that_were_produced_first_keep_their_clicks(make_site: MakeSite) -> None:
    """Read at once, a month old: each has its click, however far the clock is. What is fed in later is late."""
    made = scenario("plain", partitions=1).with_settings(window_ms=WINDOW_MS, tick_ms=1_000, skew_ms=0, dedupe_ms=0)
    at = [NOW_MS - MONTH_MS + 60_000 * step for step in range(STEPS)]
    impressions = [_event(at[step], step) for step in range(STEPS)]
    clicks = [_event(at[step] + CLICK_DELAY_MS, step) for step in range(STEPS)]
    site = make_site(
        replace(made, impressions=[impressions], clicks=[clicks]),
        join={"close_idle": True, "grace": "1s", "idle_after": "1m"},
    )
    site.produce()
    clock = [NOW_MS]
    joiner = site.joiner(clock_ms=lambda: clock[0])
    with running(joiner):
        wait_until(lambda: _read(joiner, "click") >= STEPS, "all clicks are read")
        clock[0] += 61_000
        wait_until(lambda: _read(joiner, "impression") >= STEPS, "all impressions are read")
        clock[0] += 61_000
        wait_until(lambda: site.stream_tick() >= clock[0] // 1000 - 2, "closed by the clock after a quiet minute")
        assert [label for _, _, _, label, _, _ in site.log(0).examples()] == [1.0] * STEPS
        site.send(site.impressions, 0, [_event(at[-1], STEPS)])
        wait_until(lambda: _read(joiner, "impression") > STEPS, "it is read")
        clock[0] += 61_000
        wait_until(lambda: _late(site) == 1, "the one that came after that is late")
    assert sum(mark.counts.clicks.late for mark in site.log(0).marks) == 0
    assert len(site.log(0).examples()) == STEPS


def _late(site: Site) -> int:
    """How many impressions were too late for an example."""
    return sum(mark.counts.impressions.late for mark in site.log(0).marks)


def _event(at: int, number: int) -> Message:
    return Message(at, str(number).encode(), f'{{"id":"{number}"}}'.encode())


def _read(joiner: JoinerRole, side: str) -> int:
    """How many clicks or impressions have been read."""
    joins = [part.join for part in joiner.partitions.values() if part.join is not None]
    return min((getattr(join, f"next_{side}_to_read") for join in joins), default=-1)
