"""Settings of the optimizer and of the loss: what any optimizer that a learner can run may be given.

In: values as written. Out: those that were given; in place of null comes the default of the optimizer chosen.
This file must never repeat a default of `core.optimizers`, or say which optimizer takes what: the registry does.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from stream_learner.config.section import Section

FTRL_PROXIMAL: Final = "ftrl_proximal"
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Limit = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Chosen(Section):
    """A section in which null stands for what `name` decides; it is neither shown nor written."""

    @model_serializer(mode="wrap")
    def _without_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    def given(self) -> dict[str, Any]:
        """The name, and the settings that are not null."""
        return self.model_dump()


class Optimizer(Chosen):
    """The optimizer and its hyper-parameters; null takes the default of the optimizer, which the table below has."""

    name: Literal[
        "ftrl_proximal",
        "ogd",
        "ogd_global",
        "pc_ogd",
        "adagrad",
        "normalized",
        "invariant",
        "averaged",
        "l1_subgradient",
        "simple_truncation",
        "truncated_gradient",
        "fobos",
        "rda",
        "ftrl_fixed",
        "ftrl_sqrt",
        "ftrl_doubling",
        "entropic",
        "passive_aggressive",
        "confidence_weighted",
        "pistol",
        "coin",
        "vw",
        "ftrl_proximal_growing_l1",
    ] = Field(FTRL_PROXIMAL, description="Which optimizer.")
    alpha: Positive | None = Field(None, description="Scale of the learning rate.")
    beta: NotNegative | None = Field(None, description="Smoothing of the learning rate's start.")
    l1: NotNegative | None = Field(None, description="L1 penalty; more makes more weights exactly zero.")
    l2: NotNegative | None = Field(None, description="L2 penalty.")
    eta: Positive | None = Field(None, description="Learning rate.")
    schedule: Literal["constant", "root", "power"] | None = Field(
        None,
        description=(
            "How the learning rate falls with the number t of examples: constant; root: `eta` / √t; power: "
            "`eta` `decay`^k (`t0` / (`t0` + t))^`power` in pass k; a stream is one pass, k = 0."
        ),
    )
    decay: Positive | None = Field(None, description="Of schedule power: factor of the learning rate at each pass.")
    t0: NotNegative | None = Field(None, description="Of schedule power: examples before the learning rate falls.")
    power: NotNegative | None = Field(None, description="Of schedule power: the exponent.")
    low: Annotated[float, Field(le=0, allow_inf_nan=False)] | None = Field(None, description="Least value of a weight.")
    high: NotNegative | None = Field(None, description="Largest value of a weight.")
    radius: Positive | None = Field(None, description="Largest magnitude of a weight.")
    scale: Positive | None = Field(None, description="Factor of the learning rate that the box gives.")
    diameter: Positive | None = Field(
        None, description="Diameter of the box in the learning rate, in place of that of the features seen."
    )
    two: Positive | None = Field(
        None, description="What the sum of squares is multiplied by under the root of the learning rate: 2 or 1."
    )
    theta: Limit | None = Field(
        None, description="Weights of a larger magnitude are not truncated; `.inf` truncates all."
    )
    every: Count | None = Field(None, description="Truncate after every so many examples.")
    gamma: Positive | None = Field(None, description="Strength of the growing quadratic penalty.")
    strength: Positive | None = Field(None, description="Strength λ of the fixed penalty.")
    c: Positive | None = Field(None, description="Factor of the penalty that grows with √t.")
    first: Count | None = Field(None, description="Examples in the first epoch.")
    keep: bool | None = Field(None, description="Whether the state is kept at the end of an epoch.")
    adaptive: bool | None = Field(None, description="Whether each feature has a learning rate of its own.")
    normalized: bool | None = Field(
        None, description="Whether the learning rate follows the size of a feature's values."
    )
    invariant: bool | None = Field(None, description="Whether updates are importance aware.")
    power_t: NotNegative | None = Field(None, description="Exponent with which the learning rate falls.")
    initial_t: NotNegative | None = Field(None, description="Examples that count as seen before the first.")
    dimension: Count | None = Field(None, description="How many features there are, those not seen yet included.")
    phi: Positive | None = Field(None, description="Confidence φ that an update aims at.")
    a: Positive | None = Field(None, description="Variance of a feature at first sight.")

    @model_validator(mode="before")
    @classmethod
    def _take_defaults(cls, written: Any) -> Any:
        """Put the optimizer's own defaults in place of null."""
        from stream_learner.core.optimizers import OPTIMIZERS

        if not isinstance(written, dict):
            return written
        name = written.get("name")
        kind = OPTIMIZERS.get(str(FTRL_PROXIMAL if name is None else name))
        own = {field.name: field.default for field in fields(kind) if field.default is not MISSING} if kind else {}
        return {**own, **{name: value for name, value in written.items() if value is not None}}


class Loss(Chosen):
    """The loss that is learned. Labels are 1 for a click and 0 without; hinge and exponential read 0 as -1."""

    name: Literal[
        "logistic", "squared", "half_squared", "hinge", "quantile", "exponential", "logarithmic", "hellinger", "poisson"
    ] = Field(
        "logistic",
        description=(
            "Which loss. With logistic, logarithmic and hellinger a prediction is a probability; with poisson it is "
            "e^(w·x), with any other w·x itself."
        ),
    )
    tau: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Of quantile: which quantile is learned; null means 0.5."
    )
    delta: Annotated[float, Field(gt=0, lt=0.5)] | None = Field(
        None,
        description="Of logarithmic and hellinger: predictions are read as in [delta, 1 - delta]; null means 1e-9.",
    )
