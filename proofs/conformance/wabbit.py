"""Vowpal Wabbit as a subject, through its Python package."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import vowpalwabbit

from proofs.conformance.subject import Features, Machine, NotOffered

LOSSES = ("logistic", "hinge", "squared", "quantile", "poisson")
FLAGS = {
    "ftrl_proximal": "--ftrl --ftrl_alpha {alpha} --ftrl_beta {beta} --l1 {l1} --l2 {l2}",
    "ogd": "--sgd --power_t 0 -l {eta}",
    "adagrad": "--adaptive -l {eta}",
    "invariant": "--invariant --power_t 0 -l {eta}",
    "pistol": "--pistol --ftrl_alpha {alpha} --ftrl_beta {beta}",
    "coin": "--coin --ftrl_alpha {alpha} --ftrl_beta {beta}",
    "vw": "",
}


class WabbitMachine:
    """A workspace; the link is the identity, so a prediction is a margin."""

    def __init__(self, flags: str) -> None:
        self._flags = flags
        self._workspace = vowpalwabbit.Workspace(f"{flags} --quiet")

    def margin(self, x: Features) -> float:
        """w.x."""
        return float(self._workspace.predict(_text(x)))

    def learn(self, x: Features, y: float, h: float = 1.0) -> None:
        """Learn one example."""
        self._workspace.learn(f"{y!r} {h!r} {_text(x)}")

    def restored(self) -> Machine:
        """A machine made of a saved model. The flags are given again, since the file does not keep the loss."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self._workspace.save(str(path))
            return WabbitMachine(f"-i {path} {self._flags}")


def _text(x: Features) -> str:
    return "|f " + " ".join(f"{name}:{value!r}" for name, value in x.items())


class Wabbit:
    """The algorithms that its command line offers. Its numbers are float32."""

    name = "Vowpal Wabbit"
    tolerance = 2e-5

    def __init__(self) -> None:
        self.version = version("vowpalwabbit")

    def make(self, algorithm: str, loss: str, **hyper: float) -> Machine:
        """A machine, or NotOffered."""
        if algorithm not in FLAGS:
            raise NotOffered(f"no {algorithm}")
        if loss not in LOSSES:
            raise NotOffered(f"no {loss} loss")
        flags = FLAGS[algorithm].format(**hyper)
        return WabbitMachine(f"{flags} --loss_function {loss} --noconstant --min_prediction -50 --max_prediction 50")
