"""Decisions of operators mean the same in whatever order they come."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from stream_learner.core.gate.decisions import Decision, Decisions, decisions_digest


def decision(what: str, first: int, last: int, who: str = "ada") -> Decision:
    return Decision.make(what, first, last, who=who, when_ms=1_700, why="because")  # type: ignore[arg-type]


ALL = [decision("accept", 3, 9), decision("skip", 5, 6), decision("skip", 6, 12, "bob"), decision("accept", 20, 20)]


def test_a_skip_counts_before_an_accept_and_the_order_of_arrival_does_not_count() -> None:
    """Of two skips the one with the smallest id counts."""
    expected = {
        4: ALL[0],
        5: ALL[1],
        6: min(ALL[1:3], key=lambda one: one.id),
        7: ALL[2],
        12: ALL[2],
        13: None,
        20: ALL[3],
    }
    for order in permutations(ALL):
        found = Decisions([*order, order[0]])
        assert {tick: found.at(tick) for tick in expected} == expected
        assert (len(found), found) == (4, Decisions(ALL))
        assert decisions_digest(order) == decisions_digest(ALL)


def test_the_digest_is_0_without_decisions_and_another_for_each_set_of_them() -> None:
    """One that comes twice counts once."""
    sets = [[], ALL[:1], ALL[1:2], ALL[:2], ALL]
    assert len({decisions_digest(some) for some in sets}) == len(sets)
    assert decisions_digest([]) == 0
    assert decisions_digest([ALL[0], ALL[0]]) == decisions_digest([ALL[0]])


def test_the_id_is_a_function_of_the_content() -> None:
    """The same decision written twice is one; a record that was changed is refused."""
    assert decision("skip", 5, 6) == ALL[1]
    assert len({one.id for one in ALL}) == 4 and all(len(one.id) == 16 for one in ALL)
    with pytest.raises(ValueError, match="does not have the id of its content"):
        replace(ALL[0], to_tick=11)
    for what, first, last in (("learn", 1, 2), ("skip", 3, 2), ("skip", -1, 2)):
        with pytest.raises(ValueError, match="a decision"):
            decision(what, first, last)
