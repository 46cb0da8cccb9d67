"""Configurations from the texts of `--learn`: from `fobos eta=0.1,0.2 l1=1e-4 loss=hinge` to optimizers and losses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from stream_learner.core.model.fold import check_loss
from stream_learner.core.model.losses import OPTION_NAMES, Loss, make_loss
from stream_learner.core.model.optimizers import OPTIMIZERS, Optimizer, make_optimizer
from stream_learner.errors import ConfigError

MOST: Final = 256
"""The largest number of configurations of one run: each holds a model in memory."""
LOSS: Final = "loss"
_WORDS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One model to learn. name: its name in results. optimizer, loss: what its `Learner` is made of."""

    name: str
    optimizer: Optimizer
    loss: Loss


def parse_configurations(texts: Sequence[str]) -> list[Configuration]:
    """Parse `--learn` texts. A setting with several values makes a configuration for each; the last one varies fastest.

    A text is the name of an optimizer, then `name=value` of its hyper-parameters, of the loss (`loss=hinge`), and of
    the loss's option (`tau`, `delta`). Raises ConfigError for unknown names, with the nearest known one, for values
    that are not allowed, and for more than `MOST` configurations.
    """
    found: list[Configuration] = []
    for text in texts:
        for settings in _grid(text):
            found.append(_configuration(text, settings))
            if len(found) > MOST:
                raise _error(text, f"more than {MOST} configurations in one run; make the grid smaller")
    return found


def _grid(text: str) -> Iterator[dict[str, str]]:
    """Each point of the grid that a text describes: the optimizer as `name`, and settings as texts."""
    name, *assignments = text.split() or [""]
    choices: dict[str, list[str]] = {}
    for assignment in assignments:
        key, equals, values = assignment.partition("=")
        if not (key and equals and values and all(values.split(","))):
            raise _error(text, f"{assignment!r} is not name=value, or name=value,value for a grid")
        if key in choices or key == "name":
            raise _error(
                text, f"{key} is given twice" if key in choices else "the optimizer comes first, without name="
            )
        choices[key] = values.split(",")
    for point in itertools.product(*choices.values()):
        yield {"name": name, **dict(zip(choices, point, strict=True))}


def _configuration(text: str, settings: dict[str, str]) -> Configuration:
    given = dict(settings)
    name = given.pop("name")
    loss_name = given.pop(LOSS, "logistic")
    known = [field.name for field in fields(OPTIMIZERS[name])] if name in OPTIMIZERS else []
    of_loss = [key for key in given if key in OPTION_NAMES.values() and key not in known]
    options = {key: _number(text, key, given.pop(key)) for key in of_loss}
    for key in given:
        if known and key not in known:
            raise _error(text, f"{name} has no {key!r}{_nearest(key, [*known, LOSS])}")
    try:
        loss = make_loss(loss_name, **options)
        optimizer = make_optimizer({"name": name, **{key: _value(value) for key, value in given.items()}})
        check_loss(optimizer, loss)
    except (ValueError, TypeError) as error:
        raise _error(text, str(error)) from None
    return Configuration(
        " ".join([name, *(f"{key}={value}" for key, value in settings.items() if key != "name")]), optimizer, loss
    )


def _value(text: str) -> Any:
    """A text as int, float or bool if it is one, else as it is."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _number(text: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise _error(text, f"{key} takes a number, not {value!r}") from None


def _nearest(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def _error(text: str, problem: str) -> ConfigError:
    return ConfigError(
        f'--learn "{text}": {problem}',
        action='Write an optimizer and its settings, such as --learn "ftrl_proximal alpha=0.1 l1=1 loss=logistic"; '
        "docs/evaluate.md lists all.",
    )
