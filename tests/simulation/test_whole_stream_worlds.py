"""Whole worlds of streams, hours of each: a file of its own, so that they run beside the short ones.

A world that has a short form (`test_stream_worlds.py`) runs as that.
"""

from __future__ import annotations

import pytest

from proofs.simulation.stream_bounds import SHORT, WHOLE, broken_in_whole
from proofs.simulation.stream_worlds import MAIN, MINUTE, worlds
from tests.suite.share import cases

TELLING = {
    "a partition added after 1 h",
    "live, heavy tail",
    "mirror 10 s behind, a click in 40 s",
    "mirror 35 min behind, 5 % of devices 2 h wrong",
    "mirror 6 h behind, a click in 40 s",
    "night of 3 h",
}
"""Worlds that differ most from the short ones, and from each other; the nightly tests have all."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", cases([name for name in worlds() if name not in SHORT], TELLING, "nightly"))
def test_a_whole_world_loses_nothing_in_silence(name: str) -> None:
    """The bounds are those of the model that the rule was made with."""
    assert broken_in_whole(name) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", MAIN)
def test_a_window_of_half_an_hour_loses_no_more(name: str) -> None:
    """The default window: the main worlds keep the same bounds."""
    assert broken_in_whole(name, 30 * MINUTE) == []


def test_bounds_are_of_worlds_that_there_are() -> None:
    """A name that has changed would have the bounds of any other."""
    assert set(WHOLE) <= set(worlds())
