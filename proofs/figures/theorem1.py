"""Streeter & McMahan 2010, Theorem 1: a problem on which every global learning rate pays T^(2/3), rates per coordinate
T^(1/2).

Each coordinate has rounds of its own, and weights begin at 0 in F = [0, 1]: coordinate 1 sees |x - eps| for T0 = m^3
rounds, then each of m others sees -x for m rounds. The source's index of the later rounds needs t - T0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from proofs.figures.page import Claim, Figure, Plot, table
from proofs.figures.play import Player, SparseExamples, Vector, records

SIZES = (10, 13, 16, 22, 28, 36, 46, 60, 77, 100, 129, 167, 215)
QUICK_SIZES = SIZES[:5]
BATCH = 65_536
STEPS = np.arange(-4.0, 4.25, 0.25)
BEYOND = 2.0
"""A label above all of F: on F the slope of |x - label| is then -1, as that of -x."""


def _margins(optimizer: Mapping[str, Any], rounds: int, label: float) -> Vector:
    """The plays of one coordinate over `rounds` rounds of |x - label|: twice the quantile loss for the median."""
    player, plays, left = Player(optimizer, "quantile"), [], rounds
    while left:
        n = min(left, BATCH)
        rows = SparseExamples(np.arange(n + 1), np.zeros(n, np.int64), np.ones(n))
        plays.append(player.learn(records(rows, np.full(n, label), np.full(n, 2.0))))
        left -= n
    return np.concatenate(plays)


def regret(optimizer: Mapping[str, Any], m: int) -> float:
    """The loss of the plays beyond that of the best fixed point (eps, 1, ..., 1)."""
    eps = 1e-3 / m
    first = np.abs(_margins(optimizer, m**3, eps) - eps).sum()
    other = (1.0 - _margins(optimizer, m, BEYOND)).sum()
    return float(first + m * other)


def exponent(rounds: Sequence[float], regrets: Sequence[float]) -> float:
    """The slope of log(regret) over log(rounds), by least squares."""
    return float(np.polyfit(np.log(rounds), np.log(regrets), 1)[0])


def run(quick: bool) -> Figure:
    """Play all sizes, or with `quick` the small ones."""
    sizes = QUICK_SIZES if quick else SIZES
    box = {"low": 0.0, "high": 1.0}
    per_coordinate = [regret({"name": "pc_ogd", **box}, m) for m in sizes]
    globals_ = []
    for m in sizes:
        rates = [float(2.0**step / m) for step in STEPS]
        globals_.append(min((regret({"name": "ogd", "eta": eta, **box}, m), eta * m) for eta in rates))
    best = [value for value, _ in globals_]
    rounds = [float(m**3 + m**2) for m in sizes]
    a, b = exponent(rounds, best), exponent(rounds, per_coordinate)
    rows = [
        (m, int(t), f"{g:.2f}", f"{rate:.3f}/m", f"{p:.2f}")
        for m, t, (g, rate), p in zip(sizes, rounds, globals_, per_coordinate, strict=True)
    ]

    def draw(axes: Axes) -> None:
        axes.loglog(rounds, best, "o-", label=f"best global rate: $T^{{{a:.3f}}}$")
        axes.loglog(rounds, per_coordinate, "s-", label=f"per coordinate: $T^{{{b:.3f}}}$")
        axes.set(xlabel="rounds T", ylabel="regret")
        axes.legend()

    return Figure(
        name="theorem1",
        title="A global rate pays the two-thirds power",
        source="[SM] Theorem 1",
        text=(
            f"m = {', '.join(map(str, sizes))}; T = m³ + m²; ε = 10⁻³/m; the global rate is the best of "
            f"{len(STEPS)} rates 2^j/m, j from −4 to 4 by quarters, chosen with hindsight for each m."
        ),
        claims=[
            Claim("the best global rate's regret grows with exponent 2/3 (± 0.02)", f"{a:.3f}", abs(a - 2 / 3) <= 0.02),
            Claim("per coordinate with exponent 0.45 to 0.52", f"{b:.3f}", 0.45 <= b <= 0.52),
            Claim(
                "per coordinate has the smaller regret at every size",
                f"at worst {max(p / g for p, g in zip(per_coordinate, best, strict=True)):.2f} of it",
                all(p < g for p, g in zip(per_coordinate, best, strict=True)),
            ),
        ],
        tables=[table(("m", "T", "best global regret", "its rate", "per-coordinate regret"), rows)],
        plots=[Plot("theorem1", "Regret over rounds, both axes logarithmic", draw)],
    )
