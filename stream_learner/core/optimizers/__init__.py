"""Optimizers by name.

In: a name and hyper-parameters. Out: an `Optimizer`.
This file must never hold an update rule; each has its own file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from stream_learner.core.optimizers.base import Optimizer
from stream_learner.core.optimizers.ftrl import FtrlProximal

__all__ = ["OPTIMIZERS", "FtrlProximal", "Optimizer", "make_optimizer"]

OPTIMIZERS: Final[dict[str, type[Optimizer]]] = {FtrlProximal.name: FtrlProximal}
"""Every optimizer that a configuration or a checkpoint may name."""


def make_optimizer(settings: Mapping[str, Any]) -> Optimizer:
    """The optimizer that `Optimizer.to_dict` described: `name`, and any of its hyper-parameters.

    Raises ValueError for unknown names, with the nearest known one, and for values it does not allow.
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
    return kind(**given)


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
