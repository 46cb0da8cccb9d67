"""The stream's own clock in short worlds: the joiner on a model of Kafka, in virtual time, with windows of a minute."""

from __future__ import annotations

import pytest

from proofs.simulation.mutations_streams import NOTICED_BY, noticed
from proofs.simulation.stream_bounds import SHORT
from tests.suite.share import cases

QUICK = {
    "live",
    "a batch every 5 min",
    "stall of 5 min, stays behind",
    "clicks alone 5 min late",
    "restart in a stall of 2 h",
    "down for 15 min, slow reader, clicks 5 min late, nothing remembered",
    "wall clock 24 h ahead for 2 s",
    "5 % of devices 2 h wrong",
    "clicks dead after 2 min",
    "a full buffer",
}
"""The short worlds of the newcomer's part; each takes a second."""
QUICK_MUTATIONS = {
    "no hold: windows close while nothing comes",
    "wall clock: in place of the monotonic one",
    "clicks that stop are not waited for",
}


@pytest.mark.parametrize("name", cases(SHORT, QUICK))
def test_a_short_world_loses_nothing_in_silence(name: str) -> None:
    """No positive is lost and not counted; live streams are fresh; nobody waits for a partition that is behind.

    What is unusual is said when it begins and when it is over, and nothing else is.
    """
    assert SHORT[name].broken(lines=True) == []


@pytest.mark.parametrize("mutation", cases(NOTICED_BY, QUICK_MUTATIONS))
def test_no_piece_of_the_rule_can_be_left_out(mutation: str) -> None:
    """A short world that keeps its bounds passes one without it."""
    assert noticed(mutation)
