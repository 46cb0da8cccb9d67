"""The options of one learner of Vowpal Wabbit, checked, with the tool's defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("descent", "ftrl", "pistol", "coin")
LOSSES: Final = ("squared", "logistic", "hinge", "quantile", "poisson")
FIRST_RANGE: Final = {"logistic": (-50.0, 50.0), "poisson": (-50.0, 50.0)}
"""The label range before the first label; [0, 0] for the other losses."""
MAX_BITS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class VwSettings:
    """One learner of the tool.

    kind: of `KINDS`; loss: of `LOSSES`, with tau for quantile. adaptive, normalized, invariant, eta (learning rate),
    power_t, initial_t, decay (of eta, after each pass): descent only. alpha, beta: the other kinds. l1, l2: descent
    and ftrl. bits: 2^bits weights. Raises ValueError for values that are not allowed.
    """

    kind: str = "descent"
    loss: str = "squared"
    tau: float = 0.5
    adaptive: bool = True
    normalized: bool = True
    invariant: bool = True
    eta: float = 0.5
    power_t: float = 0.5
    initial_t: float = 0.0
    decay: float = 1.0
    alpha: float = 0.5
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0
    bits: int = 18

    def __post_init__(self) -> None:
        """Raises ValueError for values that are not allowed."""
        for name, value, known in (("kind", self.kind, KINDS), ("loss", self.loss, LOSSES)):
            if value not in known:
                raise ValueError(f"{name} is {value!r}, must be one of {', '.join(known)}")
        if not 1 <= self.bits <= MAX_BITS:
            raise ValueError(f"bits is {self.bits}, must be from 1 to {MAX_BITS}")
        if self.l1 < 0.0 or self.l2 < 0.0:
            raise ValueError(f"l1 ({self.l1}) and l2 ({self.l2}) must not be negative")
        for name in ("tau", "eta", "power_t", "initial_t", "decay", "alpha", "beta", "l1", "l2"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}, must be a finite number")

    def first_range(self) -> tuple[float, float]:
        """The range that predictions are clipped to before the first label."""
        return FIRST_RANGE.get(self.loss, (0.0, 0.0))
