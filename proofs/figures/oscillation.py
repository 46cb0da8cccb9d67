"""The lecture's oscillation: gradients 0.5, -1, +1, -1, …; with some optimizers the weight comes to rest at 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from proofs.figures.page import Claim, Figure, Plot
from proofs.figures.play import Vector, play

ROUNDS = 400
SHOWN = 40
SMALL, LARGE = (0.05, 0.1, 0.3), (0.6, 0.9)
RATE = 0.07


def path(optimizer: Mapping[str, Any]) -> Vector:
    """The weight before each round from the second on."""
    gradients = [np.array([0.5])] + [np.array([-1.0 if t % 2 == 0 else 1.0]) for t in range(ROUNDS)]
    return play(optimizer, gradients, 1).plays[1:, 0]


def paths(name: str, sizes: tuple[float, ...], **hyper: float | bool) -> dict[float, Vector]:
    """The paths of the weight, by the strength of the L1 penalty."""
    return {l1: path({"name": name, "l1": l1, **hyper}) for l1 in sizes}


def _drawing(found: Mapping[str, Mapping[float, Vector]]) -> Callable[[Axes], None]:
    """The first weights of each optimizer, for one strength of the penalty."""

    def draw(axes: Axes) -> None:
        for label, by_strength in found.items():
            axes.plot(by_strength[0.3][:SHOWN], label=label)
        axes.set(xlabel="round", ylabel="weight (λ1 = 0.3)")
        axes.legend()

    return draw


def run(quick: bool) -> Figure:
    """Play all of it. It takes seconds, so `quick` changes nothing."""
    every = SMALL + LARGE
    subgradient = paths("l1_subgradient", every, eta=RATE)
    fobos = paths("fobos", every, eta=RATE)
    rda = paths("rda", every, gamma=1.0)
    fixed = paths("ftrl_proximal", every, alpha=1.0, beta=1.0, l2=0.0)
    growing = paths("ftrl_proximal_growing_l1", every, alpha=1.0, beta=1.0, l2=0.0)
    left = {l1: int(np.count_nonzero(w[-100:])) for l1, w in fobos.items()}
    late = ROUNDS // 8
    shown = {
        "L1 subgradient": subgradient,
        "FOBOS": fobos,
        "RDA": rda,
        "FTRL-Proximal, fixed λ1": fixed,
        "FTRL-Proximal, tλ1": growing,
    }

    return Figure(
        name="oscillation",
        title="Oscillating gradients: who stays at zero",
        source="[L]",
        text=(
            f"Gradients 0.5, −1, +1, −1, … for {ROUNDS + 1} rounds; the best fixed weight is 0. "
            f"λ1 = {', '.join(map(str, every))}; η = {RATE} for the first two, γ = α = β = 1 for the others."
        ),
        claims=[
            Claim(
                "the L1 subgradient never reaches 0",
                f"{sum(int((w == 0.0).sum()) for w in subgradient.values())} of {len(every) * ROUNDS} weights are 0",
                all(w.all() for w in subgradient.values()),
            ),
            Claim(
                "FOBOS keeps leaving it",
                f"at least {min(left.values())} of the last 100 weights are not 0",
                all(count > 0 for count in left.values()),
            ),
            Claim(
                "RDA stays exactly 0 for λ1 ≥ 0.6",
                f"{sum(int(np.count_nonzero(rda[l1])) for l1 in LARGE)} weights are not 0",
                not any(rda[l1].any() for l1 in LARGE),
            ),
            Claim(
                f"with a smaller λ1 RDA leaves 0 at first, and not after {late} rounds",
                f"{sum(int(np.count_nonzero(rda[l1][late:])) for l1 in SMALL)} later weights are not 0",
                not any(rda[l1][late:].any() for l1 in SMALL),
            ),
            Claim(
                "FTRL-Proximal with a fixed λ1 ≥ 0.6 stays exactly 0",
                f"{sum(int(np.count_nonzero(fixed[l1])) for l1 in LARGE)} weights are not 0",
                not any(fixed[l1].any() for l1 in LARGE),
            ),
            Claim(
                f"with the lecture's tλ1 it is at rest with every λ1 after {late} rounds",
                f"{sum(int(np.count_nonzero(w[late:])) for w in growing.values())} later weights are not 0",
                not any(w[late:].any() for w in growing.values()),
            ),
        ],
        plots=[Plot("oscillation", "The weight over the first rounds", _drawing(shown))],
    )
