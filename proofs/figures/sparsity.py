"""Sparsity against loss on click-like data: FTRL-Proximal beside truncated gradient, FOBOS and RDA, all tuned.

The data are generated clicks on categorical features; the figure is the best progressive log-loss at each share of
non-zero weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from proofs.figures.page import Claim, Figure, Plot, table
from proofs.figures.play import Player, SparseExamples, Vector, records

EXAMPLES, QUICK_EXAMPLES = 100_000, 10_000
FIELDS, VALUES, ZIPF = 12, 20_000, 1.2
LEVELS = (0.01, 0.03, 0.1, 0.3, 1.0)
AHEAD = 0.01
RATES = tuple(float(2.0**k) for k in range(-7, 3))
PENALTIES = (0.0, *(float(10.0**k) for k in np.arange(-7.0, -1.9, 0.5)))
FTRL_PENALTIES = (0.0, *(float(2.0**k) for k in range(-4, 7)))


def clicks(count: int, seed: int) -> tuple[SparseExamples, Vector]:
    """Impressions of a bias and one value in each of `FIELDS` fields, Zipf within a field; labels 0 or 1.

    The log-odds are a bias, and a normal effect of a third of the values.
    """
    rng = np.random.default_rng(seed)
    chances = np.cumsum(1.0 / np.arange(1, VALUES + 1) ** ZIPF)
    values = np.searchsorted(chances / chances[-1], rng.random((count, FIELDS)))
    effects = np.where(rng.random((FIELDS, VALUES)) < 1 / 3, rng.normal(scale=0.8, size=(FIELDS, VALUES)), 0.0)
    margins = -3.0 + effects[np.arange(FIELDS), values].sum(axis=1)
    columns = np.hstack([np.zeros((count, 1), np.int64), 1 + values + VALUES * np.arange(FIELDS)])
    width = FIELDS + 1
    rows = SparseExamples(np.arange(0, width * count + 1, width), columns.ravel(), np.ones(width * count))
    return rows, (rng.random(count) < 1.0 / (1.0 + np.exp(-margins))).astype(np.float64)


def grid(quick: bool) -> dict[str, list[Mapping[str, Any]]]:
    """The settings of each algorithm that are tried."""
    step = 3 if quick else 1
    rates, penalties, ours = RATES[::step], PENALTIES[::step], FTRL_PENALTIES[::step]
    return {
        "FTRL-Proximal": [
            {"name": "ftrl_proximal", "alpha": a, "beta": 1.0, "l1": l1, "l2": 0.0} for a, l1 in product(rates, ours)
        ],
        "truncated gradient": [
            {"name": "truncated_gradient", "eta": eta, "schedule": schedule, "l1": l1, "every": 10}
            for schedule, eta, l1 in product(("constant", "root"), rates, penalties)
        ],
        "FOBOS": [
            {"name": "fobos", "eta": eta, "schedule": schedule, "l1": l1}
            for schedule, eta, l1 in product(("constant", "root"), rates, penalties)
        ],
        "RDA": [{"name": "rda", "gamma": 1.0 / eta, "l1": l1} for eta, l1 in product(rates, penalties)],
    }


def frontier(
    settings: Sequence[Mapping[str, Any]], rows: SparseExamples, labels: Vector, seen: int
) -> list[tuple[float, float, Mapping[str, Any]]]:
    """For each setting: the share of the `seen` features with a weight in the end, its log-loss, the setting."""
    made = records(rows, labels)
    found = []
    for one in settings:
        player = Player(one, "logistic")
        margins = player.learn(made)
        loss = float(np.mean(np.logaddexp(0.0, margins) - labels * margins))
        found.append((np.count_nonzero(player.weights(1 + FIELDS * VALUES)) / seen, loss, one))
    return found


def best_at(level: float, found: Sequence[tuple[float, float, Mapping[str, Any]]]) -> float:
    """The least loss with at most this share of non-zeros."""
    return min((loss for share, loss, _ in found if share <= level), default=math.inf)


def run(quick: bool) -> Figure:
    """Tune all algorithms on one log."""
    rows, labels = clicks(QUICK_EXAMPLES if quick else EXAMPLES, seed=6)
    seen = len(np.unique(rows.columns))
    found = {name: frontier(settings, rows, labels, seen) for name, settings in grid(quick).items()}
    best = {name: [best_at(level, one) for level in LEVELS] for name, one in found.items()}
    rivals = [name for name in found if name != "FTRL-Proximal"]
    ahead = {
        level: min(best[name][i] for name in rivals) / best["FTRL-Proximal"][i] - 1.0 for i, level in enumerate(LEVELS)
    }

    def draw(axes: Axes) -> None:
        for name, one in found.items():
            shares = sorted(share for share, _, _ in one)
            axes.semilogx(shares, [best_at(share, one) for share in shares], drawstyle="steps-post", label=name)
        top = best["RDA"][0]
        axes.set(xlabel="share of features with a weight", ylabel="progressive log-loss", ylim=(None, 1.05 * top))
        axes.legend()

    return Figure(
        name="sparsity",
        title="Sparsity against loss",
        source="[G], [Z]",
        text=(
            f"{len(rows):,} impressions of {FIELDS} categorical fields (Zipf {ZIPF} over {VALUES:,} values each), "
            f"{seen:,} features seen, {labels.mean():.1%} clicks, one pass. Every algorithm over a grid of rates, "
            "schedules and penalties; at each share the best setting that is at most as dense."
        ),
        claims=[
            Claim(
                f"at most {level:.0%} non-zero: FTRL-Proximal ahead by at least {AHEAD:.0%}",
                f"{ahead[level]:+.1%} against the best of the others",
                ahead[level] >= AHEAD,
            )
            for level in LEVELS[1:]
        ],
        tables=[
            table(
                ("at most non-zero", *found),
                [(f"{level:.0%}", *(f"{best[name][i]:.5f}" for name in found)) for i, level in enumerate(LEVELS)],
            )
        ],
        plots=[Plot("sparsity", "Best log-loss at each share of non-zero weights", draw)],
        notes=f"At {LEVELS[0]:.0%} the best of the others is {-ahead[LEVELS[0]]:+.1%} against FTRL-Proximal.",
    )
