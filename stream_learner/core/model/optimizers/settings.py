"""Declarations of hyper-parameters in an optimizer's dataclass: the meaning of each, and the values it may take.

A hyper-parameter is a field whose type carries a `Setting`:

    alpha: Annotated[float, Setting("Scale of the learning rate.", above=0)] = 0.1

This declaration is the only one: the constructor checks it, and the configuration, its JSON schema and its page are
made from it. A hyper-parameter that several optimizers share has its type here, under a name of its own. The same name
means the same in every optimizer.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

SCHEDULES: Final = ("constant", "root", "power")


@dataclass(frozen=True, slots=True)
class Setting:
    """Meaning and range of a hyper-parameter. With neither bounds nor choices any value of its type will do.

    infinite: whether a configuration may say `.inf`. checked: whether the constructor checks the range as it stands
    here; where it does not, the optimizer's class has a wider rule of its own.
    """

    text: str
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    infinite: bool = False
    checked: bool = True


Alpha = Annotated[float, Setting("Scale of the learning rate.", above=0)]
Beta = Annotated[float, Setting("Smoothing of the learning rate's start.", at_least=0)]
BetaAboveZero = Annotated[float, Setting("Smoothing of the learning rate's start.", above=0)]
L1 = Annotated[float, Setting("L1 penalty; more makes more weights exactly zero.", at_least=0)]
L2 = Annotated[float, Setting("L2 penalty.", at_least=0)]
Eta = Annotated[float, Setting("Learning rate.", above=0)]
Schedule = Annotated[
    str,
    Setting(
        "How the learning rate falls with the number t of examples: constant; root: `eta` / √t; power: "
        "`eta` `decay`^k (`t0` / (`t0` + t))^`power` in pass k; a stream is one pass, k = 0.",
        choices=SCHEDULES,
    ),
]
Decay = Annotated[float, Setting("Of schedule power: factor of the learning rate at each pass.", above=0)]
T0 = Annotated[float, Setting("Of schedule power: examples before the learning rate falls.", above=0)]
Power = Annotated[float, Setting("Of schedule power: the exponent.", at_least=0)]
Low = Annotated[float, Setting("Least value of a weight.", at_most=0, checked=False)]
High = Annotated[float, Setting("Largest value of a weight.", at_least=0, checked=False)]
Scale = Annotated[float, Setting("Factor of the learning rate that the box gives.", above=0)]
Theta = Annotated[
    float,
    Setting(
        "Weights of a larger magnitude are not truncated; `.inf` truncates all.", above=0, infinite=True, checked=False
    ),
]
Every = Annotated[int, Setting("Truncate after every so many examples.", at_least=1)]
Strength = Annotated[float, Setting("Strength λ of the fixed penalty.", above=0)]
RootFactor = Annotated[float, Setting("Factor of the penalty that grows with √t.", above=0)]


class HyperParameter(NamedTuple):
    """A field of an optimizer. default: `dataclasses.MISSING` where a value must be given."""

    name: str
    type: type
    optional: bool
    default: Any
    setting: Setting


_KNOWN: Final[dict[Any, Mapping[str, HyperParameter]]] = {}


def hyper_parameters(kind: type) -> Mapping[str, HyperParameter]:
    """The hyper-parameters of an optimizer's class by name, in the order of its fields."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = {field.name: _declared(field.name, hints[field.name], field.default) for field in fields(kind)}
    return _KNOWN[kind]


def _declared(name: str, hint: Any, default: Any) -> HyperParameter:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    annotated = next(part for part in parts if get_origin(part) is Annotated)
    value_type, setting = get_args(annotated)
    return HyperParameter(name, value_type, type(None) in parts, default, setting)


def check(optimizer: Any) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that its setting does not allow."""
    for name, parameter in hyper_parameters(type(optimizer)).items():
        value = getattr(optimizer, name)
        if parameter.setting.checked and not (value is None and parameter.optional):
            _check(name, value, parameter)


def _check(name: str, value: Any, parameter: HyperParameter) -> None:
    setting = parameter.setting
    if setting.choices:
        if value not in setting.choices:
            raise ValueError(f"{name} must be one of {', '.join(setting.choices)}, not {value!r}")
    elif parameter.type is int:
        check_whole(**{name: value})
    elif setting.above is not None:
        check_above(setting.above, **{name: value})
    elif setting.at_least is not None:
        check_at_least(setting.at_least, **{name: value})


def sample(parameter: HyperParameter) -> float:
    """Some value that a hyper-parameter without a default allows."""
    return 1.0 if parameter.setting.at_most is None else -1.0


def check_at_least(low: float, **values: float) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that is not a finite number >= `low`."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= low):
            raise ValueError(f"{name} must be a finite number >= {low:g}, not {value!r}")


def check_whole(**values: int) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that is not a whole number >= 1, exact as a float64."""
    for name, value in values.items():
        if not (1 <= value <= 2**53 and value == int(value)):
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")


def check_above(low: float, **values: float) -> None:
    """Raise ValueError, with the name, for a hyper-parameter that is not a finite number > `low`."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > low):
            raise ValueError(f"{name} must be a finite number > {low:g}, not {value!r}")
