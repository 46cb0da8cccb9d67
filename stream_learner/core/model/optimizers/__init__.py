"""Optimizers: what they keep, how a fold calls them, and where their formulas come from.

Each family of update rules has a file of its own.

**State.** A model is a table of rows, one for each feature, and a few scalars. An optimizer says which columns a row
has (`columns`; for FTRL-Proximal z and n) and which scalars it needs (`scalars`, such as the number t of examples).
Columns and scalars are float64 and 0 at the start. A weight is not stored: it is a function of a row's columns, the
scalars and the hyper-parameters. An optimizer `moves` if its weights depend on scalars that change with every example,
so that rows which no example touches change their weight too.

**The learner's calls.** The learner copies the columns of a record's features into local rows, then calls

    prepare   computes the weight of each local row
    fold      goes through the record's examples in order: predicts each one, then learns from it
    weights   computes weights from columns, for snapshots and for `inspect`

and writes the columns that changed back to the table. FTRL-Proximal (`ftrl`) and Vowpal Wabbit's default update (`vw`)
bring these three with them. All others are a rule in the general fold.

**A rule** is five small kernels. For each example the general fold calls

    read      on every feature: brings the row up to date; returns w
    predict   once: makes the margin p of the sum of w x
              (the loss then gives the slope d = dl/dp, so that the gradient of a weight is g = h d x, importance h)
    scale     once: advances the scalars; returns the factor u of the step
    step      on every feature: changes the columns, for gradient descent w -= u x
    weight    outside of examples, for `prepare` and `weights`: the weight of a row

`rules` has their arguments, `general` the loop, and `switch` the way from one to the other: rules are told apart by a
code while the kernels run, so that one fold is compiled and not twenty. If a number is not finite after a step, rows
and scalars are put back, and the example is refused.

**A new optimizer** is a dataclass with its hyper-parameters (`settings`), its columns and scalars, and a `Rule`, in
the file of its family or a new one, and its name in `registry`. Configuration, its schema and its page follow.

Bibliography, for all of `core`:

    [F]   "Online convex optimization 2", slides on follow-the-regularized-leader
    [G]   McMahan et al., "Ad click prediction: a view from the trenches" (2013)
    [L]   McMahan, "Adaptive per-coordinate learning", lecture (2012)
    [SM]  Streeter and McMahan, "Less regret via online conditioning" (2010)
    [T]   what Vowpal Wabbit 9.11 computes, read off the behaviour of the installed package
    [VW]  Chikkerur (2015), on the updates of Vowpal Wabbit
    [Z]   notes on sparse online optimisation
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from typing import Any

from stream_learner.core.model.optimizers.base import Fold, Optimizer
from stream_learner.core.model.optimizers.ftrl import FtrlProximal
from stream_learner.core.model.optimizers.general import GeneralFold
from stream_learner.core.model.optimizers.registry import OPTIMIZERS
from stream_learner.core.model.optimizers.rules import RuleOptimizer
from stream_learner.core.model.optimizers.settings import hyper_parameters, sample

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
    """The `Fold` of an optimizer: the general fold for a rule, else the optimizer itself."""
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
    """The message about a hyper-parameter that an optimizer does not have: the nearest one that it has, and the
    optimizers that have this one.
    """
    nearest = _nearest(key, hyper_parameters(OPTIMIZERS[name]))
    owners = [other for other, kind in OPTIMIZERS.items() if key in hyper_parameters(kind)]
    elsewhere = f" ({key} belongs to {', '.join(owners)})" if owners else ""
    return f"{name} has no hyper-parameter {key!r}{nearest}{elsewhere}"


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names) or 'none'}"
