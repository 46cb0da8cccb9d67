"""Whole worlds of streams, hours of each: a file of its own, so that they run beside the short ones.

A world that has a short form (`test_stream_worlds.py`) runs as that.
"""

from __future__ import annotations

import pytest

from proofs.simulation.stream_bounds import SHORT, WHOLE, broken_in_whole
from proofs.simulation.stream_worlds import worlds

BETWEEN = {
    "mirror 12 min behind, a click in 40 s",
    "lag grows to 35 min in an hour",
    "stall of 30 s, stays behind",
    "stall of 20 min, catches up",
    "one of 4 partitions 35 min behind",
    "one partition each process, one slow",
    "wall clock 1 h back for ever",
    "32 in a row 2 h behind",
    "month-old at 1000x, then live",
    "restarts, live, nothing remembered",
    "restarts, mirror 35 min behind, nothing remembered",
    "restarts, wall 24 h ahead since, nothing remembered",
    "restart in a stall of 20 min, nothing remembered",
    "down for 1 h, live, nothing remembered",
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
