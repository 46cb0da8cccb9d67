"""Settings of the optimizer.

`learner.optimizer` is one of several sections, one for each optimizer; its `name` says which. The sections are made
from the classes in `core.model.optimizers`: hyper-parameters, ranges and defaults are written there, and must never be
repeated here. They are made when a configuration is first checked: importing the optimizers imports the compiler, and
`--help` must not wait for it.
"""

from __future__ import annotations

from dataclasses import MISSING
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from stream_learner.config.choice import Choice, Chosen

if TYPE_CHECKING:
    from stream_learner.core.model.optimizers.settings import HyperParameter

FTRL_PROXIMAL: Final = "ftrl_proximal"


class Optimizer(Chosen):
    """The optimizer and its hyper-parameters; null takes the default of the optimizer, which the table below has.

    The settings of one optimizer are a class below this one; `CHOICE.of` chooses.
    """

    name: str = Field(FTRL_PROXIMAL, description="Which optimizer.")

    if TYPE_CHECKING:

        def __getattr__(self, setting: str) -> Any: ...

    @classmethod
    def settings(cls) -> dict[str, FieldInfo]:
        """The settings of an optimizer; of this class, those of all of them."""
        return _every_setting().settings() if cls is Optimizer else super().settings()

    @classmethod
    def refusal(cls, setting: str) -> str | None:
        """The message about a setting that only other optimizers have, with their names."""
        from stream_learner.core.model.optimizers import no_such_parameter

        name = cls.model_fields["name"].default
        return no_such_parameter(name, setting) if setting in Optimizer.settings() else None


@cache
def _sections() -> dict[str, type[Optimizer]]:
    """A section for each optimizer, with the defaults of its class."""
    from stream_learner.core.model.optimizers import OPTIMIZERS
    from stream_learner.core.model.optimizers.settings import hyper_parameters

    return {
        name: create_model(
            kind.__name__,
            __base__=Optimizer,
            __doc__=kind.__doc__,
            name=_name(name, default=name),
            **{one.name: _setting(one) for one in hyper_parameters(kind).values()},
        )
        for name, kind in OPTIMIZERS.items()
    }


@cache
def _every_setting() -> type[Chosen]:
    """A section with the settings of all optimizers, each with the widest range it has anywhere."""
    from stream_learner.core.model.optimizers import OPTIMIZERS
    from stream_learner.core.model.optimizers.settings import hyper_parameters

    found: dict[str, HyperParameter] = {}
    for kind in OPTIMIZERS.values():
        for name, one in hyper_parameters(kind).items():
            if name not in found or one.setting.above is None:
                found[name] = one._replace(default=None)
    settings = {name: _setting(one) for name, one in found.items()}
    names = _name(*OPTIMIZERS, default=FTRL_PROXIMAL)
    about = (Optimizer.__doc__ or "").split("\n")[0]
    return create_model("Optimizer", __base__=Chosen, __doc__=about, name=names, **settings)


def _name(*names: str, default: str) -> Any:
    return Literal[names], Field(default, description="Which optimizer.")


def _setting(one: HyperParameter) -> Any:
    """Type and default of a setting. A setting without a default is null; the optimizer reports that it is missing."""
    setting = one.setting
    value: Any
    if setting.choices:
        value = Literal[setting.choices]
    elif one.type is float:
        value = Annotated[
            float, Field(gt=setting.above, ge=setting.at_least, le=setting.at_most, allow_inf_nan=setting.infinite)
        ]
    else:
        value = Annotated[one.type, Field(ge=setting.at_least)]
    default = None if one.default is MISSING else one.default
    return value | None, Field(default, description=setting.text)


CHOICE: Final = Choice("optimizer", FTRL_PROXIMAL, _sections, _every_setting)
AnyOptimizer = Annotated[Optimizer, CHOICE]
