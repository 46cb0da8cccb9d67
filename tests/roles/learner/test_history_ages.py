"""Which ages a learner's history holds, against the promise as a user reads it, tick by tick."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.roles.learner.history import HistoryAges

AGES = st.lists(st.integers(1, 400), min_size=1, max_size=4)


def walk(ages: HistoryAges, ticks: list[int], known: int | None = None) -> tuple[list[int], int]:
    """The boundaries kept by a learner that folds these ticks, and the most that were kept at one time."""
    kept: list[int] = []
    most, folded = 0, ticks[0]
    for tick in ticks[1:]:
        while folded < tick:
            boundary = ages.next_boundary(after=folded + 1, up_to=tick, known=max(tick, known or 0))
            folded = tick if boundary is None else boundary - 1
            if ages.is_kept(folded + 1, tick=folded):
                kept.append(folded + 1)
            kept = ages.kept(kept, tick=folded)
            most = max(most, len(kept))
    return kept, most


@given(AGES, st.integers(0, 5_000), st.integers(1, 3_000))
@settings(max_examples=150, deadline=None)
def test_of_each_age_one_is_kept_that_is_as_old_and_less_than_half_as_old_again(
    spans: list[int], first: int, length: int
) -> None:
    """At every tick, once the learner has lived so long; and never more than three for each age."""
    ages = HistoryAges([1_000 * span for span in spans], tick_ms=1_000)
    kept: list[int] = []
    for tick in range(first + 1, first + length):
        if ages.is_kept(tick + 1, tick=tick):
            kept.append(tick + 1)
        kept = ages.kept(kept, tick=tick)
        assert len(kept) <= ages.most == 3 * len(set(spans))
        for span in spans:
            step = -(-span // 2)
            if tick + 1 - first >= span + 2 * step:
                assert any(span <= tick + 1 - boundary < span + step for boundary in kept), (tick, span, kept)


@given(AGES, st.integers(0, 5_000), st.lists(st.integers(1, 300), min_size=1, max_size=30), st.integers(0, 2_000))
@settings(max_examples=200, deadline=None)
def test_how_ticks_are_handed_out_and_how_far_the_log_is_known_changes_nothing(
    spans: list[int], first: int, strides: list[int], known_further: int
) -> None:
    """One tick after the other, in strides, or with the end of the log known from the beginning: the same are kept."""
    ages = HistoryAges([1_000 * span for span in spans], tick_ms=1_000)
    last = first + sum(strides)
    jumps, at = [first], first
    for stride in strides:
        at += stride
        jumps.append(at)
    singly, most = walk(ages, list(range(first, last + 1)))
    assert walk(ages, jumps)[0] == singly
    assert walk(ages, jumps, known=last)[0] == singly
    assert most <= ages.most
    # A log that is known further leaves out only what would be too old by then.
    further = walk(ages, jumps, known=last + known_further)[0]
    assert ages.kept(further, tick=last + known_further) == ages.kept(singly, tick=last + known_further)


def test_no_ages_keep_nothing() -> None:
    ages = HistoryAges([], tick_ms=1_000)
    assert ages.next_boundary(after=0, up_to=10**9, known=10**9) is None
    assert ages.kept([1, 2, 3], tick=3) == []


def test_an_age_shorter_than_a_tick_is_a_tick() -> None:
    """Every boundary is kept for two ticks."""
    ages = HistoryAges([60_000], tick_ms=3_600_000)
    assert ages.steps == [(1, 2)]
