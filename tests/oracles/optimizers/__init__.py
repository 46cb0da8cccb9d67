"""Every online optimizer of the sources, dense, in float64, said slowly and from the papers alone.

Every rule touches every coordinate at every step, as the equations read. This package must never import anything of
`stream_learner`, and takes no short cut: no lazy updates, no sparse state, no own `exp`.

- `losses`: value, slope, label domain and link of each loss
- `base`: what all optimizers share, learning-rate schedules, progressive validation
- `gradient`: gradient descent, global and per coordinate, AdaGrad, normalized, averaged
- `importance`: importance-aware updates in closed form, Lambert's W
- `sparse`: L1 inside the update: subgradient, truncation, truncated gradient, FOBOS, RDA
- `ftrl`: follow the regularized leader: fixed, growing, doubling, entropic, proximal
- `baselines`: Passive-Aggressive, confidence-weighted
- `scale_free`: PiSTOL and coin betting
- `games`: linear games, their regret, the family of problems of Streeter & McMahan 2010, Theorem 1

Conventions, where the papers differ: w_1 = 0; accumulators start at 0 and include the current gradient before it is
used; a coordinate whose gradient is 0 takes no gradient step; clipping comes after the step; sgn(0) = 0. Sources: [L]
McMahan's lecture "Adaptive per-coordinate learning" (2012), [SM] Streeter & McMahan (2010), [F] slides "Online convex
optimization 2", [Z] notes on sparse online optimisation, [VW] Chikkerur (2015), [G] McMahan et al. (2013).
"""

from __future__ import annotations

from typing import Any

from tests.oracles.optimizers.base import Example, Optimizer, Run, progressive
from tests.oracles.optimizers.baselines import ConfidenceWeighted, PassiveAggressive
from tests.oracles.optimizers.ftrl import DoublingFtrl, EntropicFtrl, FixedFtrl, FtrlProximal, RootFtrl
from tests.oracles.optimizers.gradient import (
    AdaGrad,
    AveragedDescent,
    GlobalDescent,
    GradientDescent,
    NormalizedDescent,
    PerCoordinateDescent,
)
from tests.oracles.optimizers.importance import ImportanceAware
from tests.oracles.optimizers.losses import LOSSES, Loss, make_loss
from tests.oracles.optimizers.scale_free import CoinBetting, Pistol
from tests.oracles.optimizers.sparse import Fobos, L1Subgradient, Rda, SimpleTruncation, TruncatedGradient

__all__ = ["LOSSES", "OPTIMIZERS", "Example", "Loss", "Optimizer", "Run", "make", "make_loss", "progressive"]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "ogd": GradientDescent,
    "ogd_global": GlobalDescent,
    "pc_ogd": PerCoordinateDescent,
    "adagrad": AdaGrad,
    "normalized": NormalizedDescent,
    "invariant": ImportanceAware,
    "averaged": AveragedDescent,
    "l1_subgradient": L1Subgradient,
    "simple_truncation": SimpleTruncation,
    "truncated_gradient": TruncatedGradient,
    "fobos": Fobos,
    "rda": Rda,
    "ftrl_fixed": FixedFtrl,
    "ftrl_sqrt": RootFtrl,
    "ftrl_doubling": DoublingFtrl,
    "entropic": EntropicFtrl,
    "ftrl_proximal": FtrlProximal,
    "passive_aggressive": PassiveAggressive,
    "confidence_weighted": ConfidenceWeighted,
    "pistol": Pistol,
    "coin": CoinBetting,
}


def make(name: str, dimension: int, loss: str | Loss = "squared", **hyper: Any) -> Optimizer:
    """A fresh optimizer over `dimension` coordinates. `loss` is a name of `LOSSES` or a `Loss` with options set."""
    return OPTIMIZERS[name](dimension, make_loss(loss) if isinstance(loss, str) else loss, **hyper)
