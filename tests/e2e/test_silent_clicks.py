"""Clicks stop while impressions go on: nothing is learned without them, and all labels are right when they are back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.roles.joiner.role import JoinerRole
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import Message, scenario

pytestmark = pytest.mark.usefixtures("moved_clock")

BEGIN_MS = 1_700_000_000_000
STEP_MS = 20_000
GRACE_MS = 1_000
WINDOW_MS = 1_800_000
IDLE_AFTER_MS = 600_000
"""The default."""
LEARN_STEPS = 55
OUTAGE_STEPS = 120
SHOWN = 4
"""Impressions a step and partition; the first of them is clicked within the step."""
PARTITIONS = 2


class Traffic:
    """A site under a clock that is moved by steps. A click is sent in the step after its impression."""

    def __init__(self, site: Site) -> None:
        self.site, self.now_ms, self.steps = site, BEGIN_MS, 0
        self.metrics = Metrics(site.model)
        self._unsent: list[list[Message]] = [[] for _ in range(PARTITIONS)]
        self.labels: list[list[float]] = [[] for _ in range(PARTITIONS)]

    def joiner(self) -> JoinerRole:
        """A joiner that goes by this clock."""
        return self.site.joiner(clock_ms=lambda: self.now_ms, metrics=self.metrics)

    @property
    def held(self) -> float:
        """How many partitions the joiner holds, as it says."""
        name = f'{names.JOINER_HELD.full_name}{{model="{self.site.model}"}} '
        return float(
            next(line for line in self.metrics.text().decode().splitlines() if line.startswith(name))[len(name) :]
        )

    @property
    def followed(self) -> bool:
        """Whether the joiner has read what came, and ticks have closed as far as the clock lets them."""
        return self.site.last_tick() >= self.now_ms // 1000 - 3

    def closed(self, waits_ms: int = 0) -> bool:
        """Whether windows have closed as far as the clock lets them; events are read up to four steps late."""
        return self.site.stream_tick() >= (self.now_ms - GRACE_MS - 4 * STEP_MS - waits_ms) // 1000 - 1

    def step(self, *, clicks: bool = True, impressions: bool = True) -> None:
        """Send a step's events in its middle, then turn the clock to its end.

        Whether the joiner asks for the ends of its inputs while they are sent or after, it sees the records at a time
        of this step. Were they sent at its beginning, those of two steps could come at one time to a slow joiner.
        """
        self.steps += 1
        self.now_ms += STEP_MS // 2
        if clicks:
            self.send_clicks(*range(PARTITIONS))
        for partition, labels in enumerate(self.labels if impressions else ()):
            events = list(self._impressions(partition))
            self.site.send(self.site.impressions, partition, events)
            self._unsent[partition].append(events[0]._replace(timestamp_ms=events[0].timestamp_ms + 5_000))
            labels += [1.0] + [0.0] * (SHOWN - 1)
        self.now_ms += STEP_MS // 2

    def _impressions(self, partition: int) -> Iterator[Message]:
        for n in range(SHOWN):
            key = f"p{partition}-{self.steps}-{n}"
            yield Message(self.now_ms + 1_000 * n, key.encode(), f'{{"id":"{key}"}}'.encode())

    def send_clicks(self, *partitions: int) -> None:
        """Send what has been held back for these partitions."""
        for partition in partitions:
            self.site.send(self.site.clicks, partition, self._unsent[partition])
            self._unsent[partition] = []

    def learned_labels(self) -> list[list[float]]:
        """The labels in the training log, partition by partition in the impressions' order."""
        return [[label for _, _, _, label, _, _ in log.examples()] for log in self.site.logs()]


@pytest.fixture
def traffic(make_site: MakeSite) -> Traffic:
    made = scenario("plain", partitions=PARTITIONS)
    made = made.with_settings(window_ms=WINDOW_MS, tick_ms=1_000, skew_ms=0, dedupe_ms=0)
    nothing: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    closing = {"close_idle": True, "grace": f"{GRACE_MS}ms"}
    return Traffic(make_site(replace(made, impressions=nothing, clicks=nothing), join=closing))


@pytest.mark.thorough
def test_an_outage_of_the_clicks_is_waited_out(traffic: Traffic) -> None:
    """The clicks' producer stands still for 40 minutes, then sends all, one partition's after the other's; the joiner
    is started again meanwhile.
    """
    with running(traffic.joiner()):
        for _ in range(LEARN_STEPS):
            traffic.step()
            wait_until(lambda: traffic.followed, f"ticks go on at step {traffic.steps}")
            wait_until(lambda: traffic.steps < 10 or traffic.closed(), f"closed at step {traffic.steps}")
        for _ in range(OUTAGE_STEPS // 2):
            traffic.step(clicks=False)
            wait_until(lambda: traffic.followed, f"ticks go on at step {traffic.steps}")
        assert traffic.held == PARTITIONS
    held_at = traffic.site.stream_tick()
    assert held_at < traffic.now_ms // 1000 - 60
    learned = traffic.learned_labels()
    with running(traffic.joiner()):
        for _ in range(OUTAGE_STEPS // 2):
            traffic.step(clicks=False)
        wait_until(lambda: traffic.held == PARTITIONS, "held again after the restart")
        assert (traffic.site.stream_tick(), traffic.learned_labels()) == (held_at, learned)
        traffic.send_clicks(0)
        wait_until(lambda: traffic.held == 1, "clicks came again in one partition; the other one is held alone")
        traffic.send_clicks(1)
        for _ in range(5):
            traffic.step()
        traffic.step(impressions=False)
        traffic.now_ms += WINDOW_MS + 2 * IDLE_AFTER_MS  # clicks have just come late: windows are closed so much later
        wait_until(lambda: traffic.learned_labels() == traffic.labels, "everything closed by the clock")
        wait_until(lambda: not traffic.held, "nothing is held any more")
    assert traffic.learned_labels() == traffic.labels


def test_clicks_that_died_before_the_joiner_began_are_waited_for(traffic: Traffic) -> None:
    """The topics hold a history whose clicks end: what comes after them is learned when they come, and right."""
    for n in range(LEARN_STEPS + 30):
        traffic.step(clicks=n < LEARN_STEPS)
    with running(traffic.joiner()):
        wait_until(lambda: traffic.followed, "ticks go on")
        for _ in range(IDLE_AFTER_MS // STEP_MS + 30):
            traffic.step(clicks=False)
            wait_until(lambda: traffic.followed, f"ticks go on at step {traffic.steps}")
        wait_until(lambda: traffic.held == PARTITIONS, "both partitions are held")
        learned = traffic.learned_labels()
        assert [sum(labels) for labels in learned] == [-(-len(labels) // SHOWN) for labels in learned]
        traffic.send_clicks(*range(PARTITIONS))
        for _ in range(5):
            traffic.step()
        traffic.step(impressions=False)
        traffic.now_ms += WINDOW_MS + 4 * IDLE_AFTER_MS  # clicks have just come late: windows close so much later
        wait_until(lambda: traffic.learned_labels() == traffic.labels, "everything closed by the clock")
    assert traffic.learned_labels() == traffic.labels


def test_a_site_that_says_so_is_not_held(traffic: Traffic) -> None:
    """With `join.hold_on_silence` off the clock goes on closing after `idle_after`, as an operator may want it."""
    site = traffic.site
    traffic.site.config = site.changed(join={"hold_on_silence": False})
    with running(traffic.joiner()):
        for n in range(LEARN_STEPS + 40):
            traffic.step(clicks=n < LEARN_STEPS)
        wait_until(lambda: traffic.closed(IDLE_AFTER_MS), "closed by the clock, after the longest wait")
        assert not traffic.held
