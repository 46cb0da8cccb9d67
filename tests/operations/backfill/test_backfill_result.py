"""The result of a backfill from a log in which damaged records are passed over: it adds up, and says what is lost."""

from __future__ import annotations

import pytest

from stream_learner.core.log.balance import Balance
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, TickCounts
from stream_learner.errors import BrokenInvariant
from stream_learner.operations.backfill.result import METRICS, PASSED_OVER, Learned, Result, as_object, as_text, check

MODEL = {"name": "new", "version": 7, "features": 3, "nonzero": 2, "digest": "0" * 16}


def result_of(learned: int, lost: int) -> Result:
    """A log that counts 10 examples, so many of which were learned and are lost."""
    balance = Balance()
    counts = TickCounts(ImpressionCounts(read=12, examples=10, dead=2), ClickCounts(read=1, orphans=1))
    balance.add(Mark(0, 5, 0, 7, 12, 1, 1, 1, 0, -1, counts))
    found = balance.to_dict() | ({PASSED_OVER: {"examples": lost}} if lost else {})
    return Result(found, [Learned(MODEL, dict.fromkeys(METRICS, None), learned)], 1.0)


@pytest.mark.parametrize(("learned", "lost", "holds"), [(10, 0, True), (9, 0, False), (7, 3, True), (10, 3, False)])
def test_what_is_learned_and_what_is_lost_are_the_examples_of_the_log(learned: int, lost: int, holds: bool) -> None:
    result = result_of(learned, lost)
    if holds:
        check(result, "new.examples")
    else:
        with pytest.raises(BrokenInvariant, match="examples up to tick 7"):
            check(result, "new.examples")


def test_the_summary_says_what_is_lost() -> None:
    assert "passed over, in damaged records: 3 examples" in as_text(result_of(7, 3))
    assert as_object(result_of(7, 3))[PASSED_OVER] == {"examples": 3}
    assert "passed over" not in as_text(result_of(10, 0))
    assert PASSED_OVER not in as_object(result_of(10, 0))
