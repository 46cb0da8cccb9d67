"""Whole worlds of streams, hours of each: a file of its own, so that they run beside the short ones.

A world that has a short form (`test_stream_worlds.py`) runs as that.
"""

from __future__ import annotations

import pytest

from proofs.simulation.stream_bounds import SHORT, WHOLE, broken_in_whole
from proofs.simulation.stream_worlds import worlds

BETWEEN = {
    "mirror 2 min behind, a click in 40 s",
    "mirror 6 min behind, a click in 40 s",
    "stall of 30 s, catches up",
    "stall of 5 min, catches up",
    "stall of 20 min, stays behind",
    "wall clock 1 h ahead for 5 s",
    "clicks dead after 2 min",
    "clicks dead after 20 min",
}
"""Worlds that lie between two others which are run. `python -m proofs.simulation.streams` runs them, too."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in worlds() if name not in SHORT and name not in BETWEEN])
def test_a_whole_world_loses_nothing_in_silence(name: str) -> None:
    """The bounds are those of the model that the rule was made with."""
    assert broken_in_whole(name) == []


def test_bounds_are_of_worlds_that_there_are() -> None:
    """A name that has changed would have the bounds of any other."""
    assert set(WHOLE) | BETWEEN <= set(worlds())
