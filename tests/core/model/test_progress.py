"""Progressive metrics: the documented formulas over the predictions made, in total and by slice of time."""

from __future__ import annotations

import base64
import json
import math
import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.losses import LOGISTIC, SQUARED
from stream_learner.core.model.progress import BINS_PER_UNIT, LARGEST_MARGIN, LOG_LOSS, Progress
from tests.oracles.arithmetic import log_loss, sigmoid

Seen = tuple[float, float, float, int]
"""Margin (NaN: refused), label, importance, log time."""

margins = st.one_of(st.floats(-20, 20), st.just(math.nan))
labels = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99))
importances = st.one_of(st.just(0.0), st.floats(0.001, 10))
seen = st.tuples(margins, labels, importances, st.integers(0, 5_000))


def observe(progress: Progress, examples: list[Seen]) -> None:
    """Hand examples over as columns."""
    p, y, h = (np.array([e[i] for e in examples], np.float64) for i in range(3))
    t = np.array([e[3] for e in examples], np.int64)
    progress.observe(address_of(p), address_of(y), address_of(h), address_of(t), len(examples))


def slow_auc(examples: list[Seen]) -> float | None:
    """All pairs of a positive and a negative part, margins cut to the documented bins."""
    won = pairs = 0.0
    low, high = -LARGEST_MARGIN * BINS_PER_UNIT, LARGEST_MARGIN * BINS_PER_UNIT - 1
    cut = [(min(max(math.floor(p * BINS_PER_UNIT), low), high), y, h) for p, y, h, _ in examples]
    for p, y, h in cut:
        for q, z, k in cut:
            weight = h * y * (k * (1.0 - z))
            pairs += weight
            won += weight * (1.0 if p > q else 0.5 if p == q else 0.0)
    return won / pairs if pairs > 0.0 else None


def slow_figures(examples: list[Seen]) -> dict[str, float | None]:
    """The formulas of the documentation, in plain floats."""
    good = [e for e in examples if not math.isnan(e[0])]
    importance = sum(h for _, _, h, _ in good)
    clicks = sum(h * y for _, y, h, _ in good)
    predicted = sum(h * sigmoid(p) for p, _, h, _ in good)
    loss = sum(h * log_loss(p, y) for p, y, h, _ in good)
    average = loss / importance if importance else None
    rate = clicks / importance if importance else 0.0
    entropy = -sum(c * math.log(c) for c in (rate, 1.0 - rate) if c > 0.0)
    return {
        "examples": len(good),
        "refused": len(examples) - len(good),
        "log_loss": average,
        "normalized_entropy": average / entropy if average is not None and entropy > 0.0 else None,
        "calibration": predicted / clicks if clicks else None,
        "auc": slow_auc(good),
    }


def agree(figures: dict[str, object], expected: dict[str, float | None]) -> None:
    """Figures equal to rounding."""
    for name, value in expected.items():
        assert figures[name] == (value if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)), name


@given(st.lists(seen, max_size=30))
@settings(max_examples=60, deadline=None)
def test_figures_are_the_documented_formulas(examples: list[Seen]) -> None:
    """With soft labels, importances, margins outside the histogram, refused examples, and nothing at all."""
    progress = Progress(LOGISTIC)
    observe(progress, examples)
    agree(progress.summary(), slow_figures(examples))


@given(st.lists(seen, max_size=40), st.lists(st.integers(0, 40), max_size=5))
@settings(max_examples=40, deadline=None)
def test_how_examples_are_cut_changes_no_bit(examples: list[Seen], cuts: list[int]) -> None:
    """The state after any batches is the state after one."""
    whole, parts = Progress(LOGISTIC, slice_ms=700), Progress(LOGISTIC, slice_ms=700)
    observe(whole, examples)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 40], strict=True):
        observe(parts, examples[start:end])
    assert parts.state() == whole.state()


def test_slices_hold_the_figures_of_their_time() -> None:
    """Examples in order of time: every slice that had any, the last few of them kept."""
    rng = random.Random(2)
    examples = [(rng.gauss(-2, 1), float(rng.random() < 0.3), 1.0, 130 * i) for i in range(100)]
    examples = [e for e in examples if not 4000 <= e[3] < 6000]
    progress = Progress(LOGISTIC, slice_ms=1000, slices_kept=6)
    observe(progress, examples)
    slices = progress.slices()
    assert [row["start_ms"] for row in slices] == [3000, 6000, 7000, 8000, 9000, 10_000, 11_000, 12_000]
    for row in slices:
        agree(row, slow_figures([e for e in examples if e[3] // 1000 * 1000 == row["start_ms"]]))


def test_a_late_example_counts_in_the_older_open_slice() -> None:
    """Its own slice may be closed; the total is not affected."""
    progress = Progress(LOGISTIC, slice_ms=1000)
    observe(progress, [(0.0, 1.0, 1.0, time_ms) for time_ms in (5500, 5400, 6500, 5900, 3000, 7100, 200)])
    counts = {row["start_ms"]: row["examples"] for row in progress.slices()}
    assert counts == {5000: 4, 6000: 2, 7000: 1}
    assert progress.summary()["examples"] == 7


def test_the_histogram_moves_the_auc_by_less_than_a_thousandth() -> None:
    """Click-like margins, against the exact AUC by ranks."""
    rng = np.random.default_rng(1)
    p = rng.normal(-4.0, 1.2, 20_000)
    y = (rng.random(20_000) < 1.0 / (1.0 + np.exp(-p))).astype(np.float64)
    progress = Progress(LOGISTIC)
    observe(progress, [(float(a), float(b), 1.0, 0) for a, b in zip(p, y, strict=True)])
    ranks = np.argsort(np.argsort(p)) + 1
    positives = int(y.sum())
    exact = (ranks[y > 0].sum() - positives * (positives + 1) / 2) / (positives * (len(p) - positives))
    assert progress.summary()["auc"] == pytest.approx(exact, abs=1e-3)


def test_the_state_survives_json() -> None:
    """Every bit of it; with another slice length the total goes on and the slices begin again."""
    rng = random.Random(3)
    examples = [(rng.gauss(0, 3), rng.random(), rng.random(), 300 * i) for i in range(60)]
    progress = Progress(LOGISTIC, slice_ms=1000, slices_kept=5)
    observe(progress, examples[:40])
    state = json.loads(json.dumps(progress.state()))
    restored, other = Progress(LOGISTIC, slice_ms=1000, slices_kept=5), Progress(LOGISTIC, slice_ms=500)
    restored.restore(state)
    other.restore(state)
    assert restored.state() == progress.state()
    assert other.summary() == progress.summary()
    assert other.slices() == []
    observe(progress, examples[40:])
    observe(restored, examples[40:])
    assert restored.state() == progress.state()


def test_a_state_with_one_sum_less_is_widened() -> None:
    """As written before there was a sum of log-losses: that one begins at 0, nothing else moves, and it goes on."""
    progress = Progress(LOGISTIC, slice_ms=1000)
    examples = [(0.1 * i - 2.0, float(i % 2), 1.0, 300 * i) for i in range(40)]
    observe(progress, examples)
    state = json.loads(json.dumps(progress.state()))

    def narrowed(text: str, rows: int) -> str:
        numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<f8").reshape(rows, -1)
        return base64.b64encode(zlib.compress(np.delete(numbers, LOG_LOSS, axis=1).tobytes())).decode()

    old = {
        **state,
        "blocks": narrowed(state["blocks"], 3),
        "closed": [[start, narrowed(sums, 1), auc] for start, sums, auc in state["closed"]],
    }
    restored = Progress(LOGISTIC, slice_ms=1000)
    restored.restore(old)
    assert restored.state() == progress.state()
    observe(progress, examples)
    observe(restored, examples)
    assert (restored.summary(), restored.slices()) == (progress.summary(), progress.slices())


def test_squared_loss_has_an_average_and_no_entropy() -> None:
    """What is only defined for probabilities is None."""
    progress = Progress(SQUARED)
    observe(progress, [(2.0, 3.0, 1.0, 0), (1.0, 1.0, 3.0, 0)])
    figures = progress.summary()
    assert figures["average_loss"] == 0.25
    assert [figures[name] for name in ("log_loss", "normalized_entropy", "auc")] == [None, None, None]


def test_slices_must_have_a_length() -> None:
    """A slice has a length above 0, and at least one is kept."""
    with pytest.raises(ValueError, match="positive"):
        Progress(LOGISTIC, slice_ms=0)
    with pytest.raises(ValueError, match="positive"):
        Progress(LOGISTIC, slices_kept=0)
