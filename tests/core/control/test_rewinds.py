"""Which states of a model a rewind has left behind."""

from __future__ import annotations

import random

import pytest

from stream_learner.core.control.records import decode, encode
from stream_learner.core.control.rewinds import Rewind, Rewinds, Span, missed_by
from stream_learner.core.control.state import ControlState
from stream_learner.core.errors import DamagedRecord


def test_a_state_was_left_behind_if_it_holds_a_tick_that_a_rewind_took_back() -> None:
    """Histories of rewinds and learning, each tick marked with the course on which it was learned: a state is left
    behind exactly if it holds a tick of a course that the model has left."""
    rng = random.Random(3)
    for _ in range(300):
        spans: list[Span] = []
        course: list[int] = []
        states: list[tuple[int, list[int]]] = [(0, [])]
        for number in range(rng.randrange(1, 8)):
            course += [number] * rng.randrange(1, 9)
            states += [(len(spans), course[: rng.randrange(len(course) + 1)]) for _ in range(3)]
            if rng.random() < 0.7:
                to_tick = rng.randrange(-1, len(course))
                spans.append((to_tick, len(course) - 1))
                course = course[: to_tick + 1]
        for known, held in states:
            was_left = held != course[: len(held)] and any(to < len(held) - 1 for to, _ in spans[known:])
            missed = missed_by(spans, known=known, tick=len(held) - 1)
            assert (missed is not None) >= was_left
            if missed is None:
                assert held == course[: len(held)], "a state that counts as sound is on the course of the model"


def test_the_rewind_that_goes_back_furthest_is_named() -> None:
    spans = ((50, 90), (20, 70), (60, 100))
    assert missed_by(spans, known=0, tick=80) == (20, 70)
    assert missed_by(spans, known=2, tick=80) == (60, 100)
    assert missed_by(spans, known=2, tick=60) is None
    assert missed_by(spans, known=3, tick=80) is None
    assert missed_by((), known=0, tick=80) is None
    assert missed_by(spans, known=9, tick=80) is None


def test_the_last_record_of_a_model_counts_and_a_deletion_takes_it_back() -> None:
    state, first = ControlState(), Rewind(1, 2, "ann", 3, "why")
    both = Rewinds("ctr", (first, Rewind(0, 5, "bob", 4)))
    for record in (Rewinds("ctr", (first,)), both, Rewinds("other", (first,))):
        state.take(record.key, encode(record))
    assert state.rewinds == {"ctr": both, "other": Rewinds("other", (first,))}
    assert both.spans == ((1, 2), (0, 5))
    state.take(both.key, None)
    assert set(state.rewinds) == {"other"}


@pytest.mark.parametrize(
    "history",
    [b"[]", b"{}", b'[{"to_tick":5,"from_tick":4,"who":"a","when_ms":1,"note":""}]', b'[{"to_tick":-2}]', b"[3]"],
)
def test_a_record_that_makes_no_sense_is_damaged(history: bytes) -> None:
    with pytest.raises(DamagedRecord):
        decode(b"rewind/ctr", b'{"format":1,"model":"ctr","history":' + history + b"}")
