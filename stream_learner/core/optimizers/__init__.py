"""Optimizers by name.

In: a name and hyper-parameters. Out: an `Optimizer`.
This file must never hold an update rule; each has its own file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from stream_learner.core.optimizers.averaged import AveragedDescent
from stream_learner.core.optimizers.base import Optimizer
from stream_learner.core.optimizers.baselines import ConfidenceWeighted, PassiveAggressive
from stream_learner.core.optimizers.entropic import EntropicLeader
from stream_learner.core.optimizers.ftrl import FtrlProximal
from stream_learner.core.optimizers.gradient import (
    AdaGrad,
    GlobalDescent,
    GradientDescent,
    Normalized,
    PerCoordinateDescent,
)
from stream_learner.core.optimizers.invariant import Invariant
from stream_learner.core.optimizers.leader import DoublingLeader, FixedLeader, GrowingL1Leader, RootLeader
from stream_learner.core.optimizers.scale_free import CoinBetting, Pistol
from stream_learner.core.optimizers.sparse import (
    DualAveraging,
    Fobos,
    L1Subgradient,
    SimpleTruncation,
    TruncatedGradient,
)
from stream_learner.core.optimizers.vw import VwDescent

__all__ = ["OPTIMIZERS", "FtrlProximal", "Optimizer", "make_optimizer", "sample_optimizer"]

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


def make_optimizer(settings: Mapping[str, Any]) -> Optimizer:
    """The optimizer that `Optimizer.to_dict` described: `name`, and any of its hyper-parameters.

    Raises ValueError for unknown names, with the nearest known one, for a hyper-parameter that is missing or not a
    number, and for values it does not allow.
    """
    given = dict(settings)
    name = given.pop("name", None)
    kind = OPTIMIZERS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"unknown optimizer {name!r}{_nearest(str(name), OPTIMIZERS)}")
    known = [field.name for field in fields(kind)]
    for key in given:
        if key not in known:
            raise ValueError(f"{name} has no hyper-parameter {key!r}{_nearest(key, known)}")
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in given]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None


def sample_optimizer(name: str) -> Optimizer:
    """An optimizer of the registry with its default hyper-parameters; with some value for those that have none."""
    needed = (field.name for field in fields(OPTIMIZERS[name]) if field.default is MISSING)
    return make_optimizer({"name": name, **{one: -1.0 if one == "low" else 1.0 for one in needed}})


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
