"""Settings of the loss: `learner.loss` is one of several sections, one for each loss; its `name` says which."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from stream_learner.config.choice import Choice, Chosen

LOGISTIC: Final = "logistic"
_NAME_TEXT: Final = (
    "Which loss. With logistic, logarithmic and hellinger a prediction is a probability; with poisson it is "
    "e^(w·x), with any other w·x itself."
)
_TAU: Final[Any] = (
    Annotated[float, Field(gt=0, lt=1)] | None,
    Field(None, description="Of quantile: which quantile is learned; null means 0.5."),
)
_DELTA: Final[Any] = (
    Annotated[float, Field(gt=0, lt=0.5)] | None,
    Field(
        None,
        description="Of logarithmic and hellinger: predictions are read as in [delta, 1 - delta]; null means 1e-9.",
    ),
)
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    LOGISTIC: {},
    "squared": {},
    "half_squared": {},
    "hinge": {},
    "quantile": {"tau": _TAU},
    "exponential": {},
    "logarithmic": {"delta": _DELTA},
    "hellinger": {"delta": _DELTA},
    "poisson": {},
}
"""The losses that a learner may have, with the settings of each."""


class Loss(Chosen):
    """The loss that is learned. Labels are 1 for a click and 0 without; hinge and exponential read 0 as -1.

    The settings of one loss are a class below this one; `CHOICE.of` chooses.
    """

    name: str = Field(LOGISTIC, description=_NAME_TEXT)

    @classmethod
    def settings(cls) -> dict[str, FieldInfo]:
        """The settings of a loss; of this class, those of all of them."""
        return _every_setting().settings() if cls is Loss else super().settings()

    @classmethod
    def refusal(cls, setting: str) -> str | None:
        """The message about an option that only other losses have, with their names."""
        if setting not in Loss.settings():
            return None
        name = cls.model_fields["name"].default
        own = ", ".join(repr(option) for option in OPTIONS[name])
        owners = ", ".join(other for other, options in OPTIONS.items() if setting in options)
        known = f"its option is {own}" if own else "it has none"
        return f"the loss {name} has no option {setting!r}; {known} ({setting} belongs to {owners})"


@cache
def _sections() -> dict[str, type[Loss]]:
    """A section for each loss."""
    return {
        name: create_model("Loss", __base__=Loss, __doc__=Loss.__doc__, name=_name(name, default=name), **options)
        for name, options in OPTIONS.items()
    }


@cache
def _every_setting() -> type[Chosen]:
    """A section with the settings of all losses."""
    about = (Loss.__doc__ or "").split("\n")[0]
    names = _name(*OPTIONS, default=LOGISTIC)
    return create_model("Loss", __base__=Chosen, __doc__=about, name=names, tau=_TAU, delta=_DELTA)


def _name(*names: str, default: str) -> Any:
    return Literal[names], Field(default, description=_NAME_TEXT)


CHOICE: Final = Choice("loss", LOGISTIC, _sections, _every_setting)
AnyLoss = Annotated[Loss, CHOICE]
