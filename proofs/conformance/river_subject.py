"""River as a subject, over its linear models."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from river import linear_model, optim

from proofs.conformance.subject import Features, Machine, NotOffered

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "ftrl_proximal": lambda alpha, beta, l1, l2: optim.FTRLProximal(alpha=alpha, beta=beta, l1=l1, l2=l2),
    "adagrad": lambda eta: optim.AdaGrad(lr=eta),
    "ogd": lambda eta: optim.SGD(lr=eta),
    "averaged": lambda eta: optim.Averager(optim.SGD(lr=eta)),
}
LOSSES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "logistic": (linear_model.LogisticRegression, optim.losses.Log),
    "hinge": (linear_model.LogisticRegression, optim.losses.Hinge),
    "squared": (linear_model.LinearRegression, optim.losses.Squared),
    "poisson": (linear_model.LinearRegression, optim.losses.Poisson),
}


class RiverMachine:
    """A linear model without an intercept."""

    def __init__(self, model: Any, binary: bool) -> None:
        self._model, self._binary = model, binary

    def margin(self, x: Features) -> float:
        """w.x."""
        return float(self._model._raw_dot_one(dict(x)))

    def learn(self, x: Features, y: float, h: float = 1.0) -> None:
        """Learn one example."""
        self._model.learn_one(dict(x), y > 0.0 if self._binary else y, w=h)

    def restored(self) -> Machine:
        """River has no file format but Python's pickle."""
        raise NotOffered("no file format of its own")


class River:
    """The optimizers and losses of its linear models."""

    name = "River"
    tolerance = 1e-6

    def __init__(self) -> None:
        self.version = version("river")

    def make(self, algorithm: str, loss: str, **hyper: float) -> Machine:
        """A machine, or NotOffered."""
        if loss not in LOSSES:
            raise NotOffered(f"no {loss} loss")
        kind, loss_of = LOSSES[loss]
        if algorithm not in OPTIMIZERS:
            raise NotOffered(f"no {algorithm}")
        optimizer = OPTIMIZERS[algorithm](**hyper)
        model = kind(optimizer=optimizer, loss=loss_of(), l2=0.0, intercept_lr=0.0)
        return RiverMachine(model, binary=loss in ("logistic", "hinge"))
