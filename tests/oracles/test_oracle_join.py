"""The oracle's join on tiny inputs, worked out by hand from docs/join-rules.md.

All hand-made cases have windows of 500 ms, 50 ms of skew, ticks of 100 ms, and 300 ms of lateness. So a click with
time u goes with the first W after u + 850, and a mark calls impressions late before W0 - 800.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracles.arithmetic import mix
from tests.oracles.events import Click, Impression, hash_bytes
from tests.oracles.join import (
    first_tick_remembered,
    least_times,
    log_times,
    marks_by_log_time,
    usual_time,
)
from tests.oracles.loop import Joined, Mark, join_by_log_time, replay, settings

FAR_MS = 1_000_000
SMALL = settings(window_ms=500, skew_ms=50, tick_ms=100, dedupe_ms=200, lateness_ms=300, agree=1)
THREE = {**SMALL, "agree": 3}

Timed = tuple[int, int] | tuple[int, int, float] | None


def impressions_of(*events: Timed, last: int = 1) -> list[Impression]:
    """Impressions from (time, id), dead ones from None, and `last` far later ones that close all of them."""
    rows = [*events, *((FAR_MS, 2**63 + n) for n in range(last))]
    return [Impression(o, *((None, 0) if e is None else e[:2]), 1.0, ()) for o, e in enumerate(rows)]


def clicks_of(*events: Timed, last: int = 1) -> list[Click]:
    """Clicks from (time, id[, value]), dead ones from None, and `last` far later ones that let all of them go."""
    rows = [*events, *((FAR_MS, 2**63 + n) for n in range(last))]
    return [Click(o, *((None, 0, 0.0) if e is None else (*e, 1.0)[:3])) for o, e in enumerate(rows)]


def labels(joined: Joined) -> dict[int, float]:
    """Label by the offset of the impression."""
    return {e.offset: e.label for e in joined.examples}


def outcomes(joined: Joined) -> Counter[str]:
    """The outcomes of impressions that occurred, with their counts."""
    return +joined.impressions


# --- labels and ticks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("click_ms", "label"), [(949, 0), (950, 1), (1000, 1), (1500, 1), (1501, 0)])
def test_both_bounds_of_the_span_count(click_ms: int, label: int) -> None:
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


def test_a_negative_that_is_sampled_out_has_its_click() -> None:
    """A click of value 0 belongs to it all the same."""
    s = {**SMALL, "keep_negatives": 1e-9}
    joined = join_by_log_time(impressions_of((1000, 1)), clicks_of((1000, 1, 0.0)), s)
    assert outcomes(joined) == Counter(read=1, sampled_out=1)
    assert joined.outcome_of_click == {0: "matched"}


# --- log time ---------------------------------------------------------------------------------------------


def test_log_time_is_what_so_many_in_a_row_agree_on() -> None:
    """Three: rows from 1000, 9000, 1010, 1020 and 1005 have 1000, 1010, 1005, then, cut by the end, 1005 and 1005."""
    times = [1000, 9000, 1010, 1020, 1005]
    assert least_times(times, 3) == [1000, 1010, 1005, 1005, 1005]
    assert log_times(times, 3) == [1000, 1010, 1010, 1010, 1010]
    assert log_times(times, 1) == [1000, 9000, 9000, 9000, 9000]
    assert log_times([1000, None, 1020, None, None, 1010, None], 2) == [1000, None, 1010, None, None, 1010, None]


def test_events_in_order_keep_their_own_time() -> None:
    """Whatever must agree."""
    times = [1000, 1000, 1003, 1010, 1500, 1501]
    assert all(log_times(times, agree) == times for agree in range(1, 9))


def test_one_impression_ahead_moves_nothing_where_three_must_agree() -> None:
    """Least times are 1000, 1010, 1010, 1020: all in tick 15. Alone it moves log time to 99999, which is tick 1004."""
    impressions = impressions_of((1000, 1), (99_999, 2), (1010, 3), (1020, 4), last=3)
    clicks = clicks_of((1015, 3), (1025, 4), last=3)
    joined = join_by_log_time(impressions, clicks, THREE)
    assert [(e.tick, e.log_time_ms, e.label) for e in joined.examples] == [
        (15, 1000, 0),
        (15, 1010, 0),
        (15, 1010, 1),
        (15, 1020, 1),
    ]
    joined = join_by_log_time(impressions, clicks, SMALL)
    assert [(e.tick, e.log_time_ms) for e in joined.examples[:2]] == [(15, 1000), (1004, 99_999)]
    assert joined.impressions["late"] == 2


def test_one_click_ahead_closes_nothing_where_three_must_agree() -> None:
    """Alone it ends what is read for the impression's tick, and the click behind it is late."""
    clicks = clicks_of((1000, 8), (99_999, 9), (1010, 1), (1400, 3), last=3)
    joined = join_by_log_time(impressions_of((1000, 1), last=3), clicks, THREE)
    assert labels(joined) == {0: 1}
    assert joined.outcome_of_click[2] == "matched"
    joined = join_by_log_time(impressions_of((1000, 1), last=3), clicks, SMALL)
    assert labels(joined)[0] == 0
    assert joined.outcome_of_click[2] == "late"


def test_a_quarter_of_the_impressions_behind_closes_nothing_early() -> None:
    """Every fourth is 200 ms behind. Where four must agree, log time is theirs: 830, 870 and so on.

    The others wait for their own time all the same, since more than half of their row waits with them: 830, 870 and 910
    stand behind 1020, 1060 and 1100, and ticks 15 and 16 emit them. With 300 ms of lateness these call late what is
    before 700 and 800, so nobody; with 100 ms what is before 900 and 1000, so all three.
    """
    times = [1000 + 10 * n - (200 if n % 4 == 3 else 0) for n in range(12)]
    assert times[:4] == [1000, 1010, 1020, 830]
    assert log_times(times, 4)[:8] == [830] * 4 + [870] * 4
    impressions = impressions_of(*((time, n) for n, time in enumerate(times)), last=4)
    clicks = clicks_of(*((time, n) for n, time in enumerate(times)), last=4)
    for agree, lateness, late in ((4, 300, 0), (4, 100, 3), (1, 300, 0), (1, 100, 3)):
        joined = join_by_log_time(impressions, clicks, {**SMALL, "agree": agree, "lateness_ms": lateness})
        assert joined.impressions["late"] == late, (agree, lateness)
        examples = [e for e in joined.examples if e.offset < 12]
        assert len(examples) == joined.impressions["positives"] == 12 - late
        assert all(e.tick == (times[e.offset] + 500) // 100 for e in examples if e.offset % 4 != 3)


# --- closing ----------------------------------------------------------------------------------------------


def test_cursor_and_border_are_the_end_and_the_beginning_of_a_row() -> None:
    """Tick 15 ends at 1600. The first three clicks that are not before it end at offset 5: the dead one is passed over.
    Tick 14 ends at 1500: those at offsets 0, 1 and 2.

    Impressions pass it at 1100. Two in three of the first row are before it, so the first does not wait; the one at
    offset 3 does, and that a dead one is in its row does not matter. The first three, with log times 1099, are emitted
    by tick 15.
    """
    impressions = impressions_of((1100, 1), (1099, 2), (1099, 3), (1100, 4), None, (1100, 5), last=3)
    clicks = clicks_of((1600, 1), (1599, 2), (1600, 3), (1600, 4), None, (1600, 5), last=3)
    marks = marks_by_log_time(impressions, clicks, THREE)
    assert marks[:2] == [Mark(0, 14, 0, 2), Mark(15, 15, 3, 5)]
    assert marks[2] == Mark(16, 16, 6, 8)


def test_the_first_tick_emits_dead_records_in_front() -> None:
    """Nothing older is there to wait for; others are emitted with the impression before them."""
    impressions = impressions_of(None, None, (1000, 1), None, (1000, 2), None, (1100, 3))
    marks = marks_by_log_time(impressions, clicks_of(), SMALL)
    assert [(m.first_tick, m.last_tick, m.next_impression) for m in marks] == [
        (0, 0, 2),
        (1, 14, 2),
        (15, 15, 6),
        (16, 16, 7),
        (17, 9999, 7),
    ]
    assert outcomes(join_by_log_time(impressions, clicks_of(), SMALL)) == Counter(read=7, examples=3, dead=4)


@pytest.mark.parametrize(("impressions", "clicks"), [(2, 4), (4, 2)])
def test_nothing_closes_before_so_many_are_there_that_they_can_agree(impressions: int, clicks: int) -> None:
    """Two of three."""
    there = impressions_of((1000, 1), last=3)[:impressions], clicks_of((1000, 1), last=3)[:clicks]
    joined = join_by_log_time(*there, THREE)
    assert (joined.examples, joined.outcome_of_click) == ([], {})
    assert joined.impressions["read"] == joined.clicks["read"] == 0


def test_what_the_logs_leave_open_is_not_read_or_waits() -> None:
    """An impression that nothing closes is not read; a click that is not gone is waiting, matched or not."""
    clicks = clicks_of((1200, 1), (1600, 2))[:2]
    joined = join_by_log_time(impressions_of((1000, 1))[:1], clicks, SMALL)
    assert outcomes(joined) == Counter()
    assert joined.clicks == Counter({"read": 1, "waiting": 1})
    joined = join_by_log_time(impressions_of((1000, 1), (1300, 2))[:2], clicks, SMALL)
    assert labels(joined) == {0: 1}
    assert joined.clicks == Counter({"read": 1, "waiting": 1})


def test_of_the_clicks_that_close_a_tick_all_but_the_last_are_taken() -> None:
    """Three agree: the first two of them are read before the third, and wait."""
    joined = join_by_log_time(impressions_of((1000, 1), last=3), clicks_of((1000, 1), last=3), THREE)
    assert joined.outcome_of_click == {0: "matched", 1: "waiting", 2: "waiting"}
    assert outcomes(joined) == Counter(read=1, examples=1, positives=1)


# --- impressions ------------------------------------------------------------------------------------------


def test_repeats_are_told_by_ticks_and_make_a_chain() -> None:
    """200 ms are 2 ticks: emitted by ticks 15, 17, 19, 21 it is one example; the next by tick 24 is another."""
    joined = join_by_log_time(impressions_of((1000, 1), (1200, 1), (1499, 1), (1699, 1), (1900, 1)), clicks_of(), SMALL)
    assert [(e.offset, e.tick) for e in joined.examples] == [(0, 15), (4, 24)]
    assert outcomes(joined) == Counter(read=5, duplicates=3, examples=2)


@pytest.mark.parametrize(
    ("first", "repeat", "duplicate"), [(81, 100, 1), (83, 100, 1), (81, 101, 0), (83, 101, 0), (84, 101, 1)]
)
def test_an_id_is_remembered_in_steps_of_an_eighth(first: int, repeat: int, duplicate: int) -> None:
    """1700 ms are 17 ticks in steps of 3: tick 100 remembers from 81 on, the step at or below 83; 101 from 84 on."""
    s = {**SMALL, "dedupe_ms": 1700}
    assert [first_tick_remembered(tick, s) for tick in (98, 100, 101, 103, 104)] == [81, 81, 84, 84, 87]
    impressions = impressions_of((first * 100 - 500, 1), (repeat * 100 - 500, 1))
    assert join_by_log_time(impressions, clicks_of(), s).impressions["duplicates"] == duplicate


def test_a_part_of_a_tick_is_remembered_as_a_whole_one() -> None:
    """101 ms are 2 ticks: emitted by ticks 15 and 17 it is one example. 100 ms are 1 tick."""
    impressions = impressions_of((1000, 1), (1200, 1))
    assert join_by_log_time(impressions, clicks_of(), {**SMALL, "dedupe_ms": 101}).impressions["duplicates"] == 1
    assert join_by_log_time(impressions, clicks_of(), {**SMALL, "dedupe_ms": 100}).impressions["duplicates"] == 0


def test_an_impression_is_late_by_its_tick() -> None:
    """Log time 2000 and 2099 both are tick 25, which calls late what is before 1700. A late one is remembered too."""
    joined = join_by_log_time(
        impressions_of((2000, 1), (1699, 2), (1700, 3), (2099, 4), (1699, 5), (1700, 6), (2099, 2)),
        clicks_of((1650, 2), (1650, 3)),
        SMALL,
    )
    assert labels(joined) == {0: 0, 2: 1, 3: 0, 5: 0}
    assert outcomes(joined) == Counter(read=7, examples=4, positives=1, late=2, duplicates=1)
    assert joined.outcome_of_click == {0: "orphans", 1: "matched"}


def test_the_latest_impression_that_is_not_late_still_has_its_earliest_click() -> None:
    """By tick 21, an impression of 1300 is not late, of 1299 is. A click at 1250 goes after 2100: with tick 21."""
    clicks = clicks_of((1250, 1), (1249, 2))
    joined = join_by_log_time(impressions_of((1600, 9), (1300, 1), (1299, 2)), clicks, SMALL)
    assert labels(joined) == {0: 0, 1: 1}
    assert outcomes(joined) == Counter(read=3, examples=2, positives=1, late=1)
    assert joined.outcome_of_click == {0: "matched", 1: "orphans"}


def test_a_repeat_after_it_is_forgotten_is_an_example_unless_a_click_of_its_id_was_matched() -> None:
    """Ticks 15 and 18, two ticks remembered; spans to 1500 and from 1050 to 1600.

    Nobody clicked: a second negative. A click at 1100 is in both spans: it counts once. One at 1550 is only in the
    second's, one at 1000 only in the first's: that one tells that the second is a repeat.
    """
    impressions = impressions_of((1000, 1), (1300, 2), (1100, 1))
    found = [
        (labels(joined), joined.impressions["duplicates"])
        for joined in (
            join_by_log_time(impressions, clicks_of(*c), SMALL) for c in ([], [(1100, 1)], [(1550, 1)], [(1000, 1)])
        )
    ]
    assert found == [
        ({0: 0, 1: 0, 2: 0}, 0),
        ({0: 1, 1: 0}, 1),
        ({0: 0, 1: 0, 2: 1}, 0),
        ({0: 1, 1: 0}, 1),
    ]


def test_without_dedupe_every_impression_stands_for_itself() -> None:
    """A click counts for all in whose span it lies, in one tick or in several."""
    joined = join_by_log_time(
        impressions_of((1000, 1), (1000, 1), (1300, 2), (1100, 1)), clicks_of((1100, 1)), {**SMALL, "dedupe_ms": 0}
    )
    assert labels(joined) == {0: 1, 1: 1, 2: 0, 3: 1}
    assert joined.clicks == Counter(read=1, matched=1)


# --- clicks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "outcome"),
    [(1750, "duplicates"), (1751, "orphans"), (1200, "duplicates"), (1199, "late"), (650, "late")],
)
def test_clicks_of_one_id_within_window_and_skew_are_duplicates(second: int, outcome: str) -> None:
    """550 ms after it; 551 ms are not. One that is late only where the time is the same."""
    joined = join_by_log_time(impressions_of(), clicks_of((1200, 1), (second, 1)), SMALL)
    assert joined.outcome_of_click == {0: "orphans", 1: outcome}


@pytest.mark.parametrize(("second", "outcome"), [(650, "duplicates"), (649, "orphans")])
def test_a_prompt_click_with_a_time_before_another_one_is_a_duplicate_too(second: int, outcome: str) -> None:
    """550 ms before it; with rows of three no tick has closed when the second comes."""
    joined = join_by_log_time(impressions_of(last=3), clicks_of((1200, 1), (second, 1), last=3), THREE)
    assert joined.outcome_of_click == {0: "orphans", 1: outcome, 2: "waiting", 3: "waiting"}


def test_a_late_click_is_not_hidden_by_a_prompt_one_outside_the_span() -> None:
    """The impression was emitted before the click in its span came: that click is late, not a repeat of the other."""
    clicks = clicks_of((1600, 1), (1400, 1))
    joined = join_by_log_time(impressions_of((1000, 1)), clicks, SMALL)
    assert labels(joined) == {0: 0}
    assert joined.outcome_of_click == {0: "orphans", 1: "late"}
    by_4 = [mark._replace(rules=4) for mark in marks_by_log_time(impressions_of((1000, 1)), clicks, SMALL)]
    assert [part.outcome_of_click for part in replay(impressions_of((1000, 1)), clicks, by_4, SMALL)][-1] == {
        0: "orphans",
        1: "duplicates",
    }


def test_a_late_click_beside_a_matched_one_is_a_duplicate() -> None:
    """Its impression has its click. Of one that is matched already, and of one that is matched later."""
    joined = join_by_log_time(impressions_of((1100, 1)), clicks_of((1200, 1), (2000, 9), (1150, 1)), SMALL)
    assert joined.outcome_of_click == {0: "matched", 1: "orphans", 2: "duplicates"}
    for dedupe_ms, second in ((200, "duplicates"), (0, "matched")):
        s = {**SMALL, "dedupe_ms": dedupe_ms}
        joined = join_by_log_time(impressions_of((1500, 1)), clicks_of((1900, 9), (1550, 1), (1560, 1)), s)
        assert joined.outcome_of_click == {0: "orphans", 1: "matched", 2: second}


def test_a_duplicate_click_that_makes_a_label_is_matched() -> None:
    """The span begins at 1650: only the second click, 550 ms after the first, lies in it."""
    joined = join_by_log_time(impressions_of((1700, 1)), clicks_of((1200, 1), (1750, 1), (2301, 1)), SMALL)
    assert joined.outcome_of_click == {0: "orphans", 1: "matched", 2: "orphans"}
    assert labels(joined) == {0: 1}


def test_a_click_that_is_gone_makes_no_duplicate() -> None:
    """The first goes when a tick ends after 1850, whether or not that tick has a mark of its own."""
    clicks = clicks_of((1000, 1), (1900, 9), (1500, 1))
    for impressions in (impressions_of((1300, 7)), impressions_of()):
        joined = join_by_log_time(impressions, clicks, SMALL)
        assert joined.outcome_of_click == {0: "orphans", 1: "orphans", 2: "late"}


def test_dead_records_are_counted_where_they_lie() -> None:
    """And time goes on without them; one that the border does not pass is not read."""
    impressions = [*impressions_of((1000, 1)), Impression(2, None, 0, 0.0, ())]
    joined = join_by_log_time(impressions, clicks_of(None, (1000, 1), None), SMALL)
    assert outcomes(joined) == Counter({"read": 1, "examples": 1, "positives": 1})
    assert joined.outcome_of_click == {0: "dead", 1: "matched", 2: "dead"}


def gone_with(clicks: list[Click], marks: list[Mark], rules: int) -> list[list[int]]:
    """The offsets of the clicks that go with each mark, by the rules of a version."""
    joined = replay([], clicks, [mark._replace(rules=rules) for mark in marks], THREE)
    return [list(j.outcome_of_click) for j in joined]


def test_usual_time_is_the_lower_median() -> None:
    """Of rows of three and four; where one or two are missing, the first stands for them."""
    assert [usual_time(row, 3) for row in ([7], [9, 5], [9, 1, 5])] == [7, 9, 5]
    assert [usual_time(row, 4) for row in ([7], [9, 5], [9, 1, 5], [9, 1, 5, 7])] == [7, 9, 5, 5]


def test_a_click_ahead_goes_in_time() -> None:
    """Its time is 99999, the median of its row 1400: it goes when W is after 1700 + 850 = 2550, and lets the next go.

    By the rules of version 2 it is the least time of its row, 1010: after 2160.
    """
    clicks = clicks_of((1000, 8), (99_999, 9), (1010, 1), (1400, 3), last=3)
    marks = [Mark(0, 17, 0, 6), Mark(18, 20, 0, 6), Mark(21, 21, 0, 6), Mark(22, 24, 0, 6), Mark(25, 25, 0, 6)]
    assert gone_with(clicks, marks, rules=3) == [[], [0], [], [], [1, 2, 3]]
    assert gone_with(clicks, marks, rules=2) == [[], [0], [1, 2], [3], []]


def test_clicks_ahead_go_in_time_where_nearly_a_row_of_them_is_ahead() -> None:
    """Two of three are: the median of five is 1420, so they go when W is after 1720 + 850; in version 3 they wait."""
    clicks = clicks_of((99_998, 8), (99_999, 9), (1400, 1), (1410, 2), (1420, 3), last=3)
    marks = [Mark(0, 17, 0, 8), Mark(18, 24, 0, 8), Mark(25, 25, 0, 8)]
    assert gone_with(clicks, marks, rules=4) == [[], [], [0, 1, 2, 3, 4]]
    assert gone_with(clicks, marks, rules=3) == [[], [], []]


def test_a_click_that_was_not_ahead_when_it_was_taken_goes_by_its_own_time() -> None:
    """Windows are closed up to 4000: 4300 is not ahead, though clicks of 1000 stand around it; 4301 is, and goes."""
    for time, gone in ((4300, []), (4301, [0])):
        clicks = clicks_of((time, 1), (1000, 2), (1010, 3), (1020, 4), (1030, 5), last=0)
        assert gone_with(clicks, [Mark(0, 39, 0, 0), Mark(40, 40, 0, 5)], rules=4)[1][:1] == gone
        assert gone_with(clicks, [Mark(0, 39, 0, 0), Mark(40, 40, 0, 5)], rules=3)[1][:1] == [0]


def test_a_click_that_comes_late_does_not_take_the_punctual_ones_with_it() -> None:
    """3000 and 3010 stay until after 3850 and 3860, though 1000 is in their rows; version 2 let them go after 2150."""
    clicks = clicks_of((3000, 1), (3010, 2), (1000, 3), (3020, 4), last=3)
    marks = [Mark(0, 30, 0, 4), Mark(31, 37, 0, 4), Mark(38, 38, 0, 4)]
    assert gone_with(clicks, marks, rules=3) == [[], [], [0, 1, 2, 3]]
    assert gone_with(clicks, marks, rules=2) == [[0, 1, 2], [], [3]]


def test_usual_time_does_not_go_back_while_clicks_go() -> None:
    """The first two go with 3000. The third, whose row says 1010, goes by 3000 too: after 3300 + 850 = 4150."""
    clicks = clicks_of((2900, 1), (3000, 2), (4150, 3), (1000, 4), (1010, 5), last=0)
    marks = [Mark(0, 37, 0, 5), Mark(38, 40, 0, 5), Mark(41, 41, 0, 5)]
    assert gone_with(clicks, marks, rules=3) == [[0], [1], [2, 3, 4]]


# --- stream time ------------------------------------------------------------------------------------------


def test_a_mark_that_closes_no_window_changes_nothing() -> None:
    """Ticks go on, windows wait: from tick 10 to 99, with W = 1000 before, with them and after."""
    impressions, clicks = impressions_of((1000, 1), last=0), clicks_of((900, 9), (1100, 1), last=0)
    marks = [Mark(0, 9, 0, 1), Mark(10, 60, 0, 1, 9), Mark(61, 99, 0, 1, 9), Mark(100, 100, 1, 2, 16)]
    joined = replay(impressions, clicks, marks, SMALL)
    assert [(+j.impressions, +j.clicks) for j in joined[1:3]] == [(Counter(), Counter(waiting=1))] * 2
    assert [(e.tick, e.label, e.log_time_ms) for e in joined[3].examples] == [(100, 1, 1000)]
    assert joined[3].clicks == Counter(read=1, waiting=2)


def test_stream_time_of_a_mark_moves_positions_or_stays() -> None:
    """It never goes back, never passes the last tick, and without it positions stay."""
    clicks = clicks_of((900, 9), last=0)
    for marks in (
        [Mark(0, 9, 0, 0, 10)],
        [Mark(0, 9, 0, 0), Mark(10, 19, 0, 0, 8)],
        [Mark(0, 9, 0, 0), Mark(10, 19, 0, 1, 9)],
        [Mark(0, 9, 0, 1, -1)],
    ):
        with pytest.raises(AssertionError):
            replay([], clicks, marks, SMALL)


def test_impressions_are_late_by_the_stream_time_of_the_mark_before() -> None:
    """W0 is 3000 in tick 90: 2200 is not late, 2199 is; no log time is before 2500. That W is 6000 does not matter."""
    impressions = impressions_of((2200, 1), (2199, 2), (2600, 3), last=0)
    for last in (30, 59):
        _, joined = replay(impressions, [], [Mark(0, 80, 0, 0, 29), Mark(81, 90, 3, 0, last)], SMALL)
        assert [(e.tick, e.offset, e.log_time_ms) for e in joined.examples] == [(90, 0, 2500), (90, 2, 2600)]
        assert joined.impressions["late"] == 1


def test_repeats_are_told_by_stream_time() -> None:
    """T is 15 and 17, then 18: two ticks are remembered, however many ticks of the log lie between."""
    impressions = impressions_of((1000, 1), (1200, 1), (1200, 2), (1300, 2), last=0)
    marks = [Mark(0, 14, 0, 0), Mark(15, 15, 1, 0), Mark(16, 70, 1, 0, 16), Mark(71, 80, 3, 0, 17)]
    marks += [Mark(81, 90, 3, 0, 19), Mark(91, 91, 4, 0, 20)]
    joined = replay(impressions, [], marks, SMALL)
    assert [[(e.offset, e.tick) for e in j.examples] for j in joined] == [[], [(0, 15)], [], [(2, 80)], [], [(3, 91)]]
    assert [j.impressions["duplicates"] for j in joined] == [0, 0, 0, 1, 0, 0]


def test_no_click_goes_before_the_impressions_of_its_mark_are_emitted() -> None:
    """W goes from 1000 to 6100, and log time passes 5000 with the second click. The first, whose time is over at 1850,
    goes at the end; until then it is one that makes a label, and the third is a duplicate. The fourth is not late.

    Where no impression is emitted, the run is that of its ticks made one by one: the first is gone when the third is
    taken, which is late.
    """
    clicks = clicks_of((1000, 1), (5000, 9), (1500, 1), (1500, 2), last=0)
    marks = [Mark(0, 9, 0, 0), Mark(10, 60, 1, 4)]
    joined = replay(impressions_of((1000, 1), last=0), clicks, marks, SMALL)
    assert labels(joined[1]) == {0: 1}
    assert joined[1].outcome_of_click == {0: "matched", 1: "orphans", 2: "duplicates", 3: "orphans"}
    joined = replay([], clicks, marks, SMALL)
    assert joined[1].outcome_of_click == {0: "orphans", 1: "orphans", 2: "late", 3: "late"}


def test_impressions_from_before_labels_can_be_trusted_are_late() -> None:
    """By a mark whose labels count from 1100 on, 1099 is late, whatever clicks it has; 1100 is not."""
    mark = Mark(0, 30, 2, 2, labels_from_ms=1100)
    (joined,) = replay(impressions_of((1099, 1), (1100, 2), last=0), clicks_of((1100, 1), (1100, 2)), [mark], SMALL)
    assert labels(joined) == {1: 1}
    assert outcomes(joined) == Counter(read=2, late=1, examples=1, positives=1)


def test_a_mark_of_version_2_is_late_by_its_last_tick_and_the_next_goes_on_from_there() -> None:
    """Ticks 0 to 30 with an impression: W0 is 3000. After it W0 is 3100, in whichever tick of the log."""
    impressions = impressions_of((2200, 1), (2199, 2), (2300, 3), (2299, 4), last=0)
    marks = [Mark(0, 30, 2, 0, rules=2), Mark(31, 70, 4, 0, 40)]
    first, second = replay(impressions, [], marks, SMALL)
    assert [(e.tick, e.offset, e.log_time_ms) for e in first.examples + second.examples] == [
        (30, 0, 2500),
        (70, 2, 2600),
    ]
    assert first.impressions["late"] == second.impressions["late"] == 1


# --- what the clock closed --------------------------------------------------------------------------------


def test_the_border_ends_rows_of_impressions() -> None:
    """What the tick did not emit has no say in it: 1200 stands alone, though 1100 comes after it."""
    impressions = impressions_of((1000, 1), (1200, 2), (1100, 3), last=0)
    first, second = replay(impressions, [], [Mark(0, 15, 2, 0), Mark(16, 16, 3, 0)], THREE)
    assert [e.log_time_ms for e in first.examples + second.examples] == [1000, 1200, 1200]


def test_the_cursor_ends_rows_of_clicks() -> None:
    """The second click is kept by its own time, 5850, while it stands alone and with the third; then by 1020: 2170."""
    clicks = clicks_of((1000, 1), (5000, 2), (1010, 3), (1020, 4), last=0)
    marks = [Mark(0, 20, 0, 2), Mark(21, 21, 0, 3), Mark(22, 22, 0, 4)]
    assert gone_with(clicks, marks, rules=3) == [[0], [], [1, 2, 3]]
    assert gone_with(clicks, marks, rules=2) == [[0], [1, 2], [3]]


def test_a_click_is_late_by_the_first_tick_of_stream_time_of_its_mark() -> None:
    """A run from tick 10 on: 999 is before it, 1000 is not; what log time has passed with them is not there."""
    (first, second) = replay([], clicks_of((999, 1), (1000, 2), last=0), [Mark(0, 9, 0, 0), Mark(10, 40, 0, 2)], SMALL)
    assert first.outcome_of_click == {}
    assert second.outcome_of_click == {0: "late", 1: "orphans"}
