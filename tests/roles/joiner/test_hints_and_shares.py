"""Hints in committed offsets, and the share of bad records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core.events.reasons import Reason
from stream_learner.core.log.marks import GENESIS, MarkId
from stream_learner.errors import TooManyBadRecords
from stream_learner.roles.joiner.bad_records import BadShare
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.progress import Kept
from stream_learner.roles.joiner.stream_clock import Remembered

I64 = st.integers(0, 2**63 - 1)


@given(I64, st.integers(0, 2**64 - 1), st.integers(-1, 2**63 - 1))
def test_a_hint_survives_as_text(read_from: int, attempt: int, tick: int) -> None:
    """A hint becomes text and is read again; the text is no longer than brokers take as metadata."""
    hint = Hint(read_from, MarkId(attempt, tick))
    assert Hint.from_text(hint.to_text()) == hint
    assert len(hint.to_text()) < 100
    assert Hint.from_text(Hint(0, GENESIS).to_text()) == Hint(0, GENESIS)


@pytest.mark.parametrize("log_id", ["", "00ff" * 8])
def test_what_is_kept_names_its_log(log_id: str) -> None:
    """The id stands behind what earlier versions read, and is "" in what they wrote."""
    kept = Kept(Hint(5, MarkId(7, 3), log_id), "1,2,3", "4,5,6", Remembered(1, -2, 3, 2))
    found = Kept.from_text(kept.to_text())
    assert (found, found.hint and found.hint.log_id) == (kept, log_id)
    before = Kept.from_text(kept.to_text().rpartition(":")[0])
    assert (before, before.hint and before.hint.log_id) == (kept, "")


@given(st.text())
def test_no_text_breaks_the_reading_of_hints(text: str) -> None:
    """Other text is no hint; a hint names an offset that is possible."""
    hint = Hint.from_text(text)
    assert hint is None or hint.read_from >= 0


@pytest.mark.parametrize("text", ["", "x", "1:2", "1:xyz:3", "-1:2:3", "::", "1.5:2:3", "1:2:"])
def test_what_is_no_hint_is_none(text: str) -> None:
    """Metadata of another program is not taken for a hint."""
    assert Hint.from_text(text) is None


def noted(share: BadShare, topic: str, *status: int, first: int = 0) -> None:
    """Count records with these outcomes, in partition 3, from an offset on."""
    share.note(topic, 3, np.arange(first, first + len(status)), np.array(status, np.uint8), "what it holds")


def test_few_records_say_nothing_about_their_share() -> None:
    """Fewer than a hundred may all be bad; then the share counts."""
    share = BadShare(0.5, 60_000)
    noted(share, "t", *[Reason.NOT_JSON] * 99)
    assert share.share_of("t") == 1.0
    with pytest.raises(TooManyBadRecords, match=r"100 of 100 records of t .*join\.max_bad_share allows 50%"):
        noted(share, "t", Reason.NOT_JSON)


def test_the_error_names_the_reasons_and_a_record_to_look_at() -> None:
    """The error says what is wrong, how often, and where one such record lies."""
    share = BadShare(0.1, 60_000)
    noted(share, "clicks", *[Reason.OK] * 900)
    with pytest.raises(TooManyBadRecords) as raised:
        noted(share, "clicks", *[Reason.NO_ID] * 80, *[Reason.BAD_TIME] * 30, Reason.OK, first=900)
    assert str(raised.value) == (
        "110 of 1,011 records of clicks read in the last 60 s are bad (80 times the id field is missing or null; 30 "
        "times the time is missing, unreadable, negative or beyond the year 9999), the latest in partition 3 at offset "
        "1009 (what it holds); join.max_bad_share allows 10%"
    )


def test_a_share_up_to_the_limit_is_let_through() -> None:
    """Exactly the limit is allowed; one more is not. A batch without a bad record never stops anything."""
    share = BadShare(0.1, 60_000)
    noted(share, "t", *[Reason.OK] * 900)
    noted(share, "t", *[Reason.NOT_JSON] * 100)
    assert share.share_of("t") == pytest.approx(0.1)
    with pytest.raises(TooManyBadRecords):
        noted(share, "t", Reason.NOT_JSON)
    noted(share, "t", *[Reason.OK] * 900)


def test_clicks_that_are_all_bad_are_noticed_among_many_more_impressions() -> None:
    """The bad records are 2 % of both topics together, and all of the clicks."""
    share = BadShare(0.1, 60_000)
    noted(share, "impressions", *[Reason.OK] * 5_000)
    with pytest.raises(TooManyBadRecords, match="100 of 100 records of clicks"):
        noted(share, "clicks", *[Reason.NOT_JSON] * 100)
    assert (share.share_of("impressions"), share.share_of("clicks")) == (0.0, 1.0)


def test_a_new_period_begins_anew() -> None:
    """What was bad in the last period is forgotten."""
    now_s = 10.0
    share = BadShare(0.5, 50_000, clock_s=lambda: now_s)
    noted(share, "t", *[Reason.NOT_JSON] * 99)
    now_s = 60.1
    noted(share, "t", *[Reason.OK] * 900)
    assert share.share_of("t") == 0.0


def test_a_limit_of_one_never_stops() -> None:
    """`join.max_bad_share: 1` dead-letters everything."""
    noted(BadShare(1.0, 60_000), "t", *[Reason.NOT_JSON] * 1_000)


def test_what_is_excused_does_not_count() -> None:
    """Bad records before the offsets given count no more, those after them do; another partition's are its own."""
    share = BadShare(0.1, 60_000)
    with pytest.raises(TooManyBadRecords):
        noted(share, "t", *[Reason.NOT_JSON] * 100)
    share.excuse("t", {3: 300})
    noted(share, "t", *[Reason.NOT_JSON] * 200, first=100)
    assert share.share_of("t") == 0.0
    noted(share, "t", *[Reason.NOT_JSON] * 50, *[Reason.OK] * 150, first=250)
    assert share.share_of("t") == 0.0
    with pytest.raises(TooManyBadRecords, match="100 of 250 records of t"):
        share.note("t", 4, np.arange(100), np.full(100, Reason.NOT_JSON, np.uint8), "")


def test_whether_the_newest_records_are_right_takes_enough_of_them() -> None:
    """It takes as many records as a stop does; exactly the limit is allowed."""
    share = BadShare(0.1, 60_000)
    assert [share.allows(0, 99), share.allows(10, 100), share.allows(11, 100)] == [False, True, False]
