"""Hints in committed offsets, and the share of bad records."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core.marks import GENESIS, MarkId
from stream_learner.errors import TooManyBadRecords
from stream_learner.roles.accepted import Hint
from stream_learner.roles.inputs import BadShare

I64 = st.integers(0, 2**63 - 1)
GOOD, BAD = np.zeros(90, np.uint8), np.ones(10, np.uint8)


@given(I64, st.integers(0, 2**64 - 1), st.integers(-1, 2**63 - 1))
def test_a_hint_survives_as_text(read_from: int, attempt: int, tick: int) -> None:
    """Text and back, within the length that brokers take as metadata."""
    hint = Hint(read_from, MarkId(attempt, tick))
    assert Hint.from_text(hint.to_text()) == hint
    assert len(hint.to_text()) < 100
    assert Hint.from_text(Hint(0, GENESIS).to_text()) == Hint(0, GENESIS)


@given(st.text())
def test_no_text_breaks_the_reading_of_hints(text: str) -> None:
    """Other metadata is no hint; what is one leads to an offset that can be."""
    hint = Hint.from_text(text)
    assert hint is None or hint.read_from >= 0


@pytest.mark.parametrize("text", ["", "x", "1:2", "1:xyz:3", "-1:2:3", "::", "1.5:2:3", "1:2:"])
def test_what_is_no_hint_is_none(text: str) -> None:
    """Metadata of another program is not taken for a hint."""
    assert Hint.from_text(text) is None


def test_few_records_say_nothing_about_their_share() -> None:
    """Fewer than a hundred may all be bad; then the share counts."""
    share = BadShare(0.5, 60_000)
    share.note("t", np.ones(99, np.uint8))
    assert share.share == 1.0
    with pytest.raises(TooManyBadRecords, match=r"100 of 100 records.*from t; join\.max_bad_share allows 50%"):
        share.note("t", np.ones(1, np.uint8))


def test_a_share_up_to_the_limit_is_let_through() -> None:
    """Exactly the limit is allowed; one more is not. A batch without a bad record never stops anything."""
    share = BadShare(0.1, 60_000)
    share.note("t", GOOD)
    share.note("t", BAD)
    assert share.share == pytest.approx(0.1)
    with pytest.raises(TooManyBadRecords):
        share.note("t", np.ones(1, np.uint8))
    share.note("t", GOOD)


def test_a_new_period_begins_anew() -> None:
    """What was bad in the last period is forgotten."""
    share = BadShare(0.5, 50)
    share.note("t", np.ones(99, np.uint8))
    time.sleep(0.06)
    share.note("t", GOOD)
    assert share.share == 0.0


def test_a_limit_of_one_never_stops() -> None:
    """`join.max_bad_share: 1` dead-letters everything."""
    BadShare(1.0, 60_000).note("t", np.ones(1_000, np.uint8))
