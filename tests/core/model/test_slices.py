"""Two models on the traffic that both have predicted: which slices count, and what their losses are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core.model.slices import Compared, compare


def row(start_ms: int, loss: float | None = 0.5, importance: float = 100.0) -> dict[str, Any]:
    """A slice as a model record has it."""
    return {"start_ms": start_ms, "examples": int(importance), "importance": importance, "average_loss": loss}


LOSSES = st.floats(0.01, 5.0)
SLICES = st.dictionaries(st.integers(0, 8), st.tuples(LOSSES, st.floats(1.0, 1e6)), max_size=8)


def oracle(current: dict[int, tuple[float, float]], candidate: dict[int, tuple[float, float]]) -> Any:
    """Losses as exact fractions, slice by slice, straight from the rule."""
    starts, sums, weight = [], [Fraction(0), Fraction(0)], Fraction(0)
    for start in range(9):
        if start not in current or start not in candidate or start in (max(current), max(candidate)):
            continue
        (loss, h), (other_loss, other_h) = current[start], candidate[start]
        if abs(h - other_h) > 0.1 * max(h, other_h):
            continue
        starts.append(start)
        weight += Fraction(h)
        sums = [sums[0] + Fraction(h) * Fraction(loss), sums[1] + Fraction(h) * Fraction(other_loss)]
    return tuple(starts), [float(s / weight) for s in sums] if weight else [0.0, 0.0]


@given(SLICES, SLICES, st.lists(st.integers(0, 8)))
def test_losses_are_those_of_the_shared_slices(
    current: dict[int, tuple[float, float]], candidate: dict[int, tuple[float, float]], alike: list[int]
) -> None:
    """The oracle's slices and losses, whatever the order of the rows."""
    for start in alike:
        if start in current and start in candidate:
            candidate[start] = candidate[start][0], current[start][1]
    rows = [[row(start, *values) for start, values in model.items()] for model in (current, candidate)]
    found = compare(*rows)
    starts, losses = oracle(current, candidate)
    assert found.start_ms == starts
    assert [found.current_loss, found.candidate_loss] == pytest.approx(losses)


def test_slices_that_do_not_count() -> None:
    """The newest of either, one that only one model has, one of other traffic, one without an example."""
    current = [row(0), row(10), row(20, importance=200.0), row(30, loss=None), row(40), row(50), row(60)]
    candidate = [row(10, 0.25), row(20), row(30), row(35), row(40, 0.75), row(50)]
    assert compare(current, candidate) == Compared((10, 40), 200, 0.5, 0.5)
    for one, other in (([], []), (current, []), ([], current), ([row(10)], [row(10)])):
        assert compare(one, other) == Compared((), 0, 0.0, 0.0)


@pytest.mark.parametrize(("loss", "tolerance", "worse"), [(0.5, 0.0, False), (0.504, 0.01, False), (0.506, 0.01, True)])
def test_worse_means_beyond_the_tolerance(loss: float, tolerance: float, worse: bool) -> None:
    """Relative to the current loss; what is not a number is worse."""
    assert Compared((1,), 1, 0.5, loss).is_worse(tolerance) is worse
    assert Compared((1,), 1, 0.5, float("nan")).is_worse(10.0)
