"""Whole worlds of streams, hours of each: a file of its own, so that they run beside the short ones."""

from __future__ import annotations

import pytest

from proofs.simulation.stream_bounds import WHOLE, broken_in_whole
from proofs.simulation.stream_worlds import worlds


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(worlds()))
def test_a_whole_world_loses_nothing_in_silence(name: str) -> None:
    """The bounds are those of the model that the rule was made with."""
    assert broken_in_whole(name) == []


def test_bounds_are_of_worlds_that_there_are() -> None:
    """A name that has changed would have the bounds of any other."""
    assert set(WHOLE) <= set(worlds())
