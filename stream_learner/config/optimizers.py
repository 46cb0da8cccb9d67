"""Settings of the optimizer and of the loss.

`learner.optimizer` is one of several sections, one for each optimizer; its `name` says which. The sections are made
from the classes in `core.model.optimizers`: hyper-parameters, ranges and defaults are written there, and must never be
repeated here. They are made when a configuration is first checked: importing the optimizers imports the compiler, and
`--help` must not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from stream_learner.config.section import Section

if TYPE_CHECKING:
    from stream_learner.core.model.optimizers.settings import HyperParameter

FTRL_PROXIMAL: Final = "ftrl_proximal"
_TAG: Final = "optimizer "
"""The prefix of the tags of the union; pydantic puts the tag into the path of a finding."""


class Chosen(Section):
    """A section in which null stands for what `name` decides; it is neither shown nor written."""

    @model_serializer(mode="wrap")
    def _without_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    def given(self) -> dict[str, Any]:
        """The name, and the settings that are not null."""
        return self.model_dump()


class Optimizer(Chosen):
    """The optimizer and its hyper-parameters; null takes the default of the optimizer, which the table below has.

    The settings of one optimizer are a class below this one; `Optimizer.of` chooses.
    """

    name: str = Field(FTRL_PROXIMAL, description="Which optimizer.")

    if TYPE_CHECKING:

        def __getattr__(self, setting: str) -> Any: ...

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Optimizer:
        """The settings of the known optimizer that is named in `written`. Raises ValidationError."""
        name = written.get("name", FTRL_PROXIMAL)
        return _sections()[name].model_validate(dict(written))

    @classmethod
    def settings(cls) -> dict[str, FieldInfo]:
        """The settings of an optimizer; of this class, those of all of them."""
        return _every_setting().settings() if cls is Optimizer else super().settings()

    @model_validator(mode="before")
    @classmethod
    def _of_this_optimizer(cls, written: Any) -> Any:
        """Leave out what is null. Refuse a setting that only other optimizers have, and name those."""
        from stream_learner.core.model.optimizers import no_such_parameter

        if not isinstance(written, dict):
            return written
        given = {name: value for name, value in written.items() if value is not None}
        for name in given:
            if name not in cls.model_fields and name in Optimizer.settings():
                raise ValueError(no_such_parameter(cls.model_fields["name"].default, name))
        return given


class ChosenByName:
    """Makes a setting of type `Optimizer` a union of the sections of all optimizers, tagged by `name`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A union. An unknown name leads to the section of all settings, which refuses it."""
        choices = {_TAG + name: handler.generate_schema(section) for name, section in _sections().items()}
        choices[_TAG] = handler.generate_schema(_every_setting())
        return core_schema.tagged_union_schema(choices, _tag)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """All settings in one object, with those allowed for each name: editors show more of that than of a union."""
        every_setting = cast(core_schema.TaggedUnionSchema, schema)["choices"][_TAG]
        found = handler(core_schema.model_field(every_setting))
        handler.resolve_ref_schema(found)["allOf"] = [
            {
                "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                "then": {
                    "properties": dict.fromkeys(section.settings(), True),
                    "additionalProperties": {"type": "null"},
                },
            }
            for name, section in _sections().items()
        ]
        return found


AnyOptimizer = Annotated[Optimizer, ChosenByName()]


def written_path(found: tuple[Any, ...]) -> tuple[str, ...]:
    """The path of a setting as written in a file, from the path of a finding of pydantic."""
    return tuple(str(part) for part in found if part != "[key]" and not str(part).startswith(_TAG))


def optimizer_in(found: tuple[Any, ...]) -> type[Section] | None:
    """The section of the chosen optimizer, if the path of a finding leads into it; else None."""
    names = [str(part).removeprefix(_TAG) for part in found if str(part).startswith(_TAG)]
    return _sections().get(names[0]) if names else None


def _tag(written: Any) -> str:
    """The tag of the union: `_TAG` and the name of the optimizer; `_TAG` alone if the name is unknown."""
    name = written.get("name") if isinstance(written, Mapping) else getattr(written, "name", "")
    name = FTRL_PROXIMAL if name is None else name
    return _TAG + name if isinstance(name, str) and name in _sections() else _TAG


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
