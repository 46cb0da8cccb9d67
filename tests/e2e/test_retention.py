"""How often resume points are written: by the least retention of the training log and both inputs, on a real Kafka."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from stream_learner.operations.doctor.retention import retention_warnings
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.e2e.test_bad_input import set_topic
from tests.scenarios import scenario

HOUR_MS = 3_600_000
WINDOW_MS, DEDUPE_MS, SKEW_MS, LATENESS_MS = 600_000, 1_200_000, 60_000, 300_000
IDLE_MS = 120_000
IMPRESSIONS_MS = WINDOW_MS + DEDUPE_MS * 9 // 8 + IDLE_MS
CLICKS_MS = WINDOW_MS + SKEW_MS + 2 * LATENESS_MS + IDLE_MS


@pytest.mark.parametrize(
    ("log_ms", "impressions_ms", "clicks_ms", "expected_s"),
    [
        (8 * HOUR_MS, -1, -1, 7_200),
        (-1, -1, -1, 7 * 86_400 / 4),
        (8 * HOUR_MS, IMPRESSIONS_MS + 2 * HOUR_MS, -1, 1_800),
        (8 * HOUR_MS, 9 * HOUR_MS, CLICKS_MS + 2 * HOUR_MS, 1_800),
        (2 * HOUR_MS, 9 * HOUR_MS, 9 * HOUR_MS, 1_800),
    ],
)
def test_the_least_that_retention_leaves_counts(
    log_ms: int, impressions_ms: int, clicks_ms: int, expected_s: float, make_site: MakeSite
) -> None:
    """A quarter of it, where each input must hold besides what the join reads again; -1 keeps everything."""
    site = retained(make_site, log_ms, impressions_ms, clicks_ms)
    assert started(site) == (expected_s, [])


def test_a_topic_that_is_kept_for_too_short_is_named(make_site: MakeSite) -> None:
    """What is deleted sooner than a window and `dedupe` is over cannot be read again: it says so, and does its best. A
    role can be away for an hour where nothing is said; `topics ensure` says the same."""
    site = retained(make_site, HOUR_MS, WINDOW_MS, CLICKS_MS + HOUR_MS)
    short = [(site.impressions, WINDOW_MS, IMPRESSIONS_MS), (site.clicks, CLICKS_MS + HOUR_MS, CLICKS_MS)]
    short.append((site.config.examples_topic, HOUR_MS, 0))
    assert started(site) == (10.0, [(topic, kept / 1000, needed / 1000) for topic, kept, needed in short])
    warnings = retention_warnings(site.config)
    assert [warning.split()[0] for warning in warnings] == [topic for topic, _, _ in short]
    assert "started again" in warnings[0] and "away for 60 min" in warnings[1]


def retained(make_site: MakeSite, log_ms: int, impressions_ms: int, clicks_ms: int) -> Site:
    """A site whose topics are kept for so long."""
    made = scenario("plain", 1).with_settings(
        window_ms=WINDOW_MS, dedupe_ms=DEDUPE_MS, skew_ms=SKEW_MS, lateness_ms=LATENESS_MS
    )
    site = make_site(made, join={"close_idle": True, "idle_after": f"{IDLE_MS}ms"})
    for topic, kept_ms in (
        (site.config.examples_topic, log_ms),
        (site.impressions, impressions_ms),
        (site.clicks, clicks_ms),
    ):
        set_topic(site, topic, "retention.ms", str(kept_ms))
    return site


def started(site: Site) -> tuple[float, list[tuple[str, float, float]]]:
    """How often a joiner says that it writes resume points, and which topics it says are kept too short."""
    with capture_logs() as logged:
        joiner = site.joiner()
        with running(joiner):
            wait_until(lambda: not joiner.why_not_ready, "it does its part")
    (found,) = (event["resume_points_every_s"] for event in logged if event["event"] == "joiner_started")
    short = [event for event in logged if event["event"] == "retention_too_short"]
    return found, [(event["topic"], event["retention_s"], event["needed_s"]) for event in short]
