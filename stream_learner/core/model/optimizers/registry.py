"""Every optimizer there is: a new one is imported and named here, and nowhere else."""

from __future__ import annotations

from typing import Final

from stream_learner.core.model.optimizers.averaged import AveragedDescent
from stream_learner.core.model.optimizers.base import Optimizer
from stream_learner.core.model.optimizers.baselines import ConfidenceWeighted, PassiveAggressive
from stream_learner.core.model.optimizers.entropic import EntropicLeader
from stream_learner.core.model.optimizers.ftrl import FtrlProximal
from stream_learner.core.model.optimizers.gradient import (
    AdaGrad,
    GlobalDescent,
    GradientDescent,
    Normalized,
    PerCoordinateDescent,
)
from stream_learner.core.model.optimizers.invariant import Invariant
from stream_learner.core.model.optimizers.leader import DoublingLeader, FixedLeader, GrowingL1Leader, RootLeader
from stream_learner.core.model.optimizers.scale_free import CoinBetting, Pistol
from stream_learner.core.model.optimizers.sparse import (
    DualAveraging,
    Fobos,
    L1Subgradient,
    SimpleTruncation,
    TruncatedGradient,
)
from stream_learner.core.model.optimizers.vw import VwDescent

OPTIMIZERS: Final[dict[str, type[Optimizer]]] = {
    kind.name: kind
    for kind in (
        FtrlProximal,
        GradientDescent,
        GlobalDescent,
        PerCoordinateDescent,
        AdaGrad,
        Normalized,
        Invariant,
        AveragedDescent,
        L1Subgradient,
        SimpleTruncation,
        TruncatedGradient,
        Fobos,
        DualAveraging,
        FixedLeader,
        RootLeader,
        DoublingLeader,
        EntropicLeader,
        GrowingL1Leader,
        PassiveAggressive,
        ConfidenceWeighted,
        Pistol,
        CoinBetting,
        VwDescent,
    )
}
"""Every optimizer that a configuration or a checkpoint may name."""
