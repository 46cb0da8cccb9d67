"""Sections that are written by hand say what the code that they are for says."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from stream_learner.config import Config
from stream_learner.config.losses import OPTIONS, Loss
from stream_learner.core.model.losses import DEFAULT_OPTIONS, LOSSES, OPTION_NAMES
from stream_learner.errors import ConfigError
from tests.config.test_config import load


def test_the_section_of_the_loss_says_what_the_losses_are() -> None:
    """Every loss but `linear`, which is for games and not for clicks, with the default and the range of its option."""
    assert set(OPTIONS) == set(LOSSES) - {"linear"}
    assert set(Loss.settings()) == {"name", *OPTION_NAMES.values()}
    for name, options in OPTIONS.items():
        assert [*options] == ([OPTION_NAMES[name]] if name in OPTION_NAMES else [])
        option = OPTION_NAMES.get(name)
        assert load(f"learner.loss.name={name}").loss().option == DEFAULT_OPTIONS.get(name, 0.0)
        for value in ("0", "1") if option else ():
            with pytest.raises(ConfigError, match=f"learner.loss.{option}"):
                load(f"learner.loss.name={name}", f"learner.loss.{option}={value}")


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        ("{name: quantile, taw: 0.3}", "learner.loss.taw", "did you mean learner.loss.tau?"),
        (
            "{name: quantile, delta: 0.3}",
            "learner.loss",
            "its option is 'tau' (delta belongs to logarithmic, hellinger)",
        ),
        ("{name: hinge, tau: 0.3}", "learner.loss", "it has none (tau belongs to quantile)"),
        ("{name: hinge, margin: 1}", "learner.loss.margin", "unknown setting; known here: name"),
        ("{name: [hinge]}", "learner.loss.name", "must be 'logistic'"),
    ],
)
def test_an_option_that_the_loss_does_not_have_is_refused(given: str, path: str, words: str) -> None:
    """A misspelt one with the nearest, one of other losses with their names."""
    with pytest.raises(ConfigError) as caught:
        load(f"learner.loss={given}")
    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}: ")
    assert words in problem


def test_another_loss_keeps_no_option_of_the_first() -> None:
    """By an override and by a variant; the same name again keeps them."""
    first = load("learner.loss={name: quantile, tau: 0.3}")
    assert load("learner.loss={name: quantile, tau: 0.3}", "learner.loss.name=hellinger").loss().name == "hellinger"
    assert first.with_values({("learner", "loss", "name"): "hinge"}).shown()["learner"]["loss"] == {"name": "hinge"}
    assert first.with_values({("learner", "loss", "name"): "quantile"}).loss().option == 0.3


@pytest.mark.parametrize(
    ("loss", "fits"),
    [
        ({"tau": 0.2}, True),
        ({"name": "quantile", "tau": 0.2, "delta": None}, True),
        ({"name": "hinge", "tau": 0.2}, False),
        ({"name": "linear"}, False),
    ],
)
def test_the_schema_knows_which_options_a_loss_has(loss: dict[str, object], fits: bool) -> None:
    """By the name, where it is given: a part of a file, as the chart takes it, need not name the loss."""
    schema = Config.model_json_schema()
    validator = Draft202012Validator({"$ref": "#/$defs/Loss", "$defs": schema["$defs"]})
    assert validator.is_valid(loss) is fits
