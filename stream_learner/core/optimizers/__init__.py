"""Optimizers by name.

In: a name and hyper-parameters. Out: an `Optimizer`.
This file must never hold an update rule; each has its own file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from typing import Any

from stream_learner.core.optimizers.base import Fold, Optimizer
from stream_learner.core.optimizers.ftrl import FtrlProximal
from stream_learner.core.optimizers.general import GeneralFold
from stream_learner.core.optimizers.registry import OPTIMIZERS
from stream_learner.core.optimizers.rules import RuleOptimizer
from stream_learner.core.optimizers.settings import hyper_parameters, sample

__all__ = [
    "OPTIMIZERS",
    "Fold",
    "FtrlProximal",
    "Optimizer",
    "fold_of",
    "make_optimizer",
    "no_such_parameter",
    "sample_optimizer",
]


def fold_of(optimizer: Optimizer) -> Fold:
    """What folds with an optimizer: the general fold for a rule, else the optimizer itself."""
    if isinstance(optimizer, RuleOptimizer):
        return GeneralFold(optimizer)
    if isinstance(optimizer, Fold):
        return optimizer
    raise TypeError(f"{optimizer.name} is neither a rule nor has a fold of its own")


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
    known = hyper_parameters(kind)
    for key in given:
        if key not in known:
            raise ValueError(no_such_parameter(kind.name, key))
    missing = [one.name for one in known.values() if one.default is MISSING and one.name not in given]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None


def sample_optimizer(name: str) -> Optimizer:
    """An optimizer of the registry with its default hyper-parameters; with some value for those that have none."""
    needed = (one for one in hyper_parameters(OPTIMIZERS[name]).values() if one.default is MISSING)
    return make_optimizer({"name": name, **{one.name: sample(one) for one in needed}})


def no_such_parameter(name: str, key: str) -> str:
    """What to say of a hyper-parameter that an optimizer does not have: the nearest one that it has, and which
    optimizers have this one.
    """
    nearest = _nearest(key, hyper_parameters(OPTIMIZERS[name]))
    owners = [other for other, kind in OPTIMIZERS.items() if key in hyper_parameters(kind)]
    elsewhere = f" ({key} belongs to {', '.join(owners)})" if owners else ""
    return f"{name} has no hyper-parameter {key!r}{nearest}{elsewhere}"


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
