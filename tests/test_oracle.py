"""The oracle itself: tiny inputs worked out by hand, and its two joins against each other."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests import scenarios
from tests.oracle import (
    Joined,
    Mark,
    Settings,
    join_by_log_time,
    read_click,
    read_impression,
    replay_topics,
    settings,
)
from tests.oracle_arithmetic import mix
from tests.oracle_events import Click, Impression, hash_bytes
from tests.oracle_join import log_times

FAR_MS = 1_000_000


def impressions_of(*events: tuple[int, int]) -> list[Impression]:
    """Impressions from (time, id), and one far later that closes all of them."""
    return [Impression(o, t, i, 1.0, ()) for o, (t, i) in enumerate([*events, (FAR_MS, 2**63)])]


def clicks_of(*events: tuple[int, int] | tuple[int, int, float]) -> list[Click]:
    """Clicks from (time, id[, value]), and one far later that lets all of them expire."""
    rows = [(*e, 1.0)[:3] for e in [*events, (FAR_MS, 2**63)]]
    return [Click(o, t, i, v) for o, (t, i, v) in enumerate(rows)]


def labels(joined: Joined) -> dict[int, float]:
    """Label by the offset of the impression."""
    return {e.offset: e.label for e in joined.examples}


SMALL = settings(window_ms=500, skew_ms=50, tick_ms=100, dedupe_ms=200)

# --- the join -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("click_ms", "label"), [(949, 0), (950, 1), (1000, 1), (1500, 1), (1501, 0)])
def test_both_edges_of_the_window_count(click_ms: int, label: int) -> None:
    """A click from skew before to window after the impression makes it positive; one ms more does not."""
    joined = join_by_log_time(impressions_of((1000, 1)), clicks_of((click_ms, 1)), SMALL)
    assert labels(joined) == {0: label}
    assert joined.clicks == Counter({"read": 1, "matched" if label else "orphans": 1})


def test_an_example_belongs_to_the_tick_in_which_its_window_closes() -> None:
    """Log time 1000 and 1099 close at 1500 and 1599, tick 15; 1100 closes in tick 16."""
    joined = join_by_log_time(impressions_of((1000, 1), (1099, 2), (1100, 3)), clicks_of(), SMALL)
    assert [(e.tick, e.log_time_ms) for e in joined.examples] == [(15, 1000), (15, 1099), (16, 1100)]


def test_an_impression_out_of_order_closes_by_log_time_and_is_labelled_by_its_own() -> None:
    """Time 900 at log time 1000: tick 15, window from 850 to 1400."""
    joined = join_by_log_time(impressions_of((1000, 1), (900, 2)), clicks_of((1401, 2)), SMALL)
    assert [(e.tick, e.log_time_ms, e.label) for e in joined.examples] == [(15, 1000, 0), (15, 1000, 0)]
    joined = join_by_log_time(impressions_of((1000, 1), (900, 2)), clicks_of((1400, 2)), SMALL)
    assert labels(joined) == {0: 0, 1: 1}


def test_a_click_behind_the_position_that_closes_the_tick_is_late() -> None:
    """The tick ends at 1600: after a click at 1600 nothing counts any more, after one at 1599 it does."""
    closed = join_by_log_time(impressions_of((1000, 1)), clicks_of((1600, 9), (1200, 1)), SMALL)
    assert labels(closed) == {0: 0}
    assert closed.outcome_of_click == {0: "orphans", 1: "late"}
    still_open = join_by_log_time(impressions_of((1000, 1)), clicks_of((1599, 9), (1200, 1)), SMALL)
    assert labels(still_open) == {0: 1}
    assert still_open.outcome_of_click == {0: "orphans", 1: "matched"}


def test_duplicates_of_impressions_reach_back_by_log_time_and_renew_themselves() -> None:
    """200 ms later is a duplicate, 201 ms later is not; and a duplicate counts as seen."""
    joined = join_by_log_time(impressions_of((1000, 1), (1200, 1), (1400, 1), (1601, 1)), clicks_of(), SMALL)
    assert list(labels(joined)) == [0, 3]
    assert joined.impressions == Counter({"read": 4, "duplicates": 2, "examples": 2, "positives": 0})


def test_duplicate_clicks_reach_back_window_and_skew() -> None:
    """550 ms after the last of that id is a duplicate, 551 is not; it still makes a label."""
    joined = join_by_log_time(impressions_of((1700, 1)), clicks_of((1200, 1), (1750, 1), (2301, 1)), SMALL)
    assert joined.outcome_of_click == {0: "orphans", 1: "duplicates", 2: "orphans"}
    assert labels(joined) == {0: 1}


def test_soft_labels_take_the_highest_value_and_zero_matches_too() -> None:
    """Values 0.25 and 0.75 make 0.75; a value of 0 makes no positive, but is matched."""
    clicks = clicks_of((1000, 1, 0.25), (1010, 1, 0.75), (1020, 2, 0.0))
    joined = join_by_log_time(impressions_of((1000, 1), (1000, 2)), clicks, SMALL)
    assert labels(joined) == {0: 0.75, 1: 0.0}
    assert joined.impressions["positives"] == 1
    assert joined.outcome_of_click == {0: "matched", 1: "duplicates", 2: "matched"}


def test_negatives_that_are_kept_weigh_more_and_positives_stay() -> None:
    """At a half, each negative is dropped or weighs double, by its id alone."""
    s = {**SMALL, "keep_negatives": 0.5}
    events = [(1000 + 10 * i, hash_bytes(b"%d" % i)) for i in range(50)]
    joined = join_by_log_time(impressions_of(*events), clicks_of((1000, events[0][1])), s)
    assert {e.id_hash: e.weight for e in joined.examples} == {
        h: 1.0 if i == 0 else 2.0
        for i, (_, h) in enumerate(events)
        if i == 0 or mix(h ^ s["sampling_constant"]) < 2**63
    }
    assert joined.impressions["sampled_out"] == 50 - len(joined.examples) > 0


def test_bad_records_wait_their_turn() -> None:
    """They are counted where they lie, and time goes on without them."""
    impressions = [*impressions_of((1000, 1)), Impression(2, None, 0, 0.0, ())]
    clicks = [Click(0, None, 0, 0.0), *(c._replace(offset=c.offset + 1) for c in clicks_of((1000, 1)))]
    joined = join_by_log_time(impressions, clicks, SMALL)
    assert joined.impressions == Counter({"read": 1, "examples": 1, "positives": 1})
    assert joined.outcome_of_click == {0: "dead", 1: "matched"}


def test_what_the_logs_leave_open_is_not_read_or_waits() -> None:
    """An impression that nothing closes is not read; a click not yet expired is waiting, matched or not."""
    clicks = clicks_of((1200, 1), (1600, 2))[:2]
    joined = join_by_log_time(impressions_of((1000, 1))[:1], clicks, SMALL)
    assert joined.impressions == Counter()
    assert joined.clicks == Counter({"read": 1, "waiting": 1})
    joined = join_by_log_time(impressions_of((1000, 1), (1300, 2))[:2], clicks, SMALL)
    assert labels(joined) == {0: 1}
    assert joined.clicks == Counter({"read": 1, "waiting": 1})


# --- one join against the other -------------------------------------------------------------------------


def marks_by_log_time(
    impressions: list[Impression], clicks: list[Click], s: Settings, rng: random.Random
) -> list[Mark]:
    """Marks for all ticks that the logs close, each run of empty ticks cut somewhere or not."""
    tick_ms, window = s["tick_ms"], s["window_ms"]
    ticks_i = [(log_time + window) // tick_ms for log_time in log_times(impressions)]
    ticks_c = [log_time // tick_ms for log_time in log_times(clicks)]
    end = min(ticks_c[-1], ticks_i[-1])
    cuts = {t for t in ticks_i if t < end} | {end - 1}
    cuts |= {t + rng.randrange(3) for t in cuts if rng.random() < 0.3}
    marks, first = [], 0
    for last in sorted(t for t in cuts if t < end):
        next_impression = impressions[sum(t <= last for t in ticks_i)].offset
        cursor = clicks[sum(t <= last for t in ticks_c)].offset
        marks.append(Mark(first, last, next_impression, cursor))
        first = last + 1
    return marks


@pytest.mark.parametrize("name", ["edges", "disorder", "late_and_orphans", "duplicates", "bad_records"])
def test_replay_of_marks_by_log_time_is_the_join_by_log_time(name: str) -> None:
    """However runs of empty ticks are cut, examples and every click's end are those of the definition."""
    scenario = scenarios.scenario(name, partitions=2)
    s, rng = scenario.settings, random.Random(name)
    topics = scenarios.records(scenario.impressions), scenarios.records(scenario.clicks)
    marks = [
        marks_by_log_time([read_impression(r, s) for r in imps], [read_click(r, s) for r in clks], s, rng)
        for imps, clks in zip(*topics, strict=True)
    ]
    for replayed, want in zip(replay_topics(*topics, marks, s), scenario.expected(), strict=True):
        assert [e for m in replayed for e in m.examples] == want.examples
        assert {o: x for m in replayed for o, x in m.outcome_of_click.items()} == want.outcome_of_click
        assert sum((m.impressions for m in replayed), Counter()) == +want.impressions
