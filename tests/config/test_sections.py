"""Sections that are written by hand say what the code that they are for says."""

from __future__ import annotations

from typing import get_args

import pytest

from stream_learner.config.optimizers import Loss
from stream_learner.core.model.losses import DEFAULT_OPTIONS, LOSSES, OPTION_NAMES
from stream_learner.errors import ConfigError
from tests.config.test_config import load


def test_the_section_of_the_loss_says_what_the_losses_are() -> None:
    """Every loss but `linear`, which is for games and not for clicks, with the default and the range of its option."""
    names = get_args(Loss.model_fields["name"].annotation)
    assert set(names) == set(LOSSES) - {"linear"}
    assert set(Loss.model_fields) == {"name", *OPTION_NAMES.values()}
    for name in names:
        option = OPTION_NAMES.get(name)
        assert load(f"learner.loss.name={name}").loss().option == DEFAULT_OPTIONS.get(name, 0.0)
        for value in ("0", "1") if option else ():
            with pytest.raises(ConfigError, match=f"learner.loss.{option}"):
                load(f"learner.loss.name={name}", f"learner.loss.{option}={value}")
