"""A joiner's lines about shares of records and about partitions that are behind: once at the beginning, once at the
end."""

from __future__ import annotations

import random

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.join.state import NOTHING_EARLY, Early
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, TickCounts
from stream_learner.roles.joiner.watches import FALLS_S, BehindWatch, ShareWatch


def impressions(examples: int = 0, **others: int) -> TickCounts:
    """Impressions of one mark."""
    return TickCounts(ImpressionCounts(read=examples + sum(others.values()), examples=examples, **others))


def clicks(matched: int = 0, **others: int) -> TickCounts:
    """Clicks of one mark whose outcome became known; those read are others."""
    return TickCounts(clicks=ClickCounts(read=10_000, matched=matched, **others))


def said(*marks: TickCounts, early: Early = NOTHING_EARLY) -> list[tuple[str, str, float]]:
    """What is logged of these marks: event, input, share."""
    with capture_logs() as logged:
        watch = ShareWatch(get_logger("joiner"))
        for mark in marks:
            watch.note(mark, early)
    return [(line["event"], line["input"], line["share"]) for line in logged]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (impressions(880, duplicates=120), [("many_duplicates", "impressions", 0.12)]),
        (impressions(900, duplicates=100), []),
        (impressions(980, dead=20), [("many_dead_letters", "impressions", 0.02)]),
        (impressions(990, dead=10), []),
        (impressions(980, late=20), [("many_late", "impressions", 0.02)]),
        (impressions(0, sampled_out=1_000), []),
        (clicks(940, late=60), [("many_late", "clicks", 0.06)]),
        (clicks(950, late=50), []),
        (clicks(0, orphans=1_000), []),
        (
            clicks(800, duplicates=150, dead=50),
            [("many_duplicates", "clicks", 0.15), ("many_dead_letters", "clicks", 0.05)],
        ),
        (clicks(0), []),
    ],
)
def test_a_share_above_its_bound_is_said(mark: TickCounts, expected: list[tuple[str, str, float]]) -> None:
    """Of a thousand records; the bound itself is still right."""
    assert said(mark) == expected


def test_what_is_early_is_said_from_two_in_a_hundred_on() -> None:
    """Of the impressions, and of the clicks whose outcome is known."""
    both = TickCounts(ImpressionCounts(read=1_000, examples=1_000), ClickCounts(read=1_000, matched=1_000))
    assert said(both, early=Early(20, 20)) == []
    assert said(both, early=Early(21, 22)) == [("many_early", "impressions", 0.021), ("many_early", "clicks", 0.022)]


def test_it_is_said_once_and_its_end_too() -> None:
    """Judged by each thousand records alone, however many marks they come in."""
    bad, good = impressions(250, duplicates=250), impressions(500)
    assert said(bad) == []
    assert said(bad, bad, bad, bad, good, good, good, good, bad, bad) == [
        ("many_duplicates", "impressions", 0.5),
        ("many_duplicates_no_more", "impressions", 0.0),
        ("many_duplicates", "impressions", 0.5),
    ]
    assert said(bad, clicks(1_000), good, clicks(1_000)) == [("many_duplicates", "impressions", 0.25)]


@pytest.mark.parametrize("records", [100, 1_000, 20_000])
def test_a_steady_share_at_its_bound_is_said_once(records: int) -> None:
    """One late impression in a hundred, by chance a few more or fewer to a mark: no line says that it is over."""
    rng = random.Random(records)
    late = [sum(rng.random() < 0.01 for _ in range(records)) for _ in range(600_000 // records)]
    assert [event for event, *_ in said(*(impressions(records - n, late=n) for n in late))] == ["many_late"]


def test_a_share_is_over_at_half_its_bound() -> None:
    """By five thousand records where the bound is one in a hundred: of a thousand, chance would decide."""
    begins, half, more = impressions(980, late=20), impressions(995, late=5), impressions(994, late=6)
    over = ("many_late_no_more", "impressions", 0.005)
    assert said(begins, *[half] * 4)[1:] == []
    assert said(begins, *[half] * 5)[1:] == [over]
    assert said(begins, *[half] * 4, more)[1:] == []


def test_being_behind_is_said_once_with_the_worst_partition() -> None:
    """From a minute on; it has caught up when all are below half of that, or given away. The end names the same one."""
    begins = [{0: 0.0, 1: 0.0}, {0: 60.0, 1: 0.0}, {0: 61.0, 1: 90.0, 2: 5.0}]
    ends = [{0: 400.0, 1: 9.0}, {0: 31.0, 1: 8.0}, {0: 30.0, 1: 7.0}]
    assert behind(*begins, *ends) == [("behind", 1, 90.0), ("caught_up", 1, 7.0)]
    assert behind({0: 0.0}, {0: 61.0}, {}) == [("behind", 0, 61.0), ("caught_up", 0, 0.0)]


def test_a_history_that_is_read_is_not_said_to_be_behind() -> None:
    """As long as it comes nearer; a partition that does not, is."""
    falling = [{0: 9_000.0 - 1_000 * look, 1: 0.0} for look in range(10)]
    assert behind(*falling) == []
    stands = [{0: lags[0], 1: 500.0} for lags in falling]
    assert behind(*stands) == [("behind", 1, 500.0)]


def test_what_a_wait_has_left_is_not_said_to_be_behind() -> None:
    """When a silence ends, windows that have waited close a moment later."""
    waited, late = {0: 0.0}, {0: 90.0}
    assert behind(waited, waited, late, waited, late, late, every_s=FALLS_S - 1) == [("behind", 0, 90.0)]
    assert behind(waited, waited, late, waited, late, waited, every_s=FALLS_S - 1) == []


def behind(*lags_s: dict[int, float], every_s: float = FALLS_S) -> list[tuple[str, int | None, float]]:
    """What is said, looking by default as often as a partition may take to come nearer."""
    watch = BehindWatch(get_logger("joiner"))
    with capture_logs() as logged:
        for look, of_partitions in enumerate(lags_s):
            watch.look(of_partitions, look * every_s)
    return [(line["event"], line["partition"], line["seconds"]) for line in logged]
