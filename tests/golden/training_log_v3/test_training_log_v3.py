"""Version 3 in the training log, which has skips: these bytes are read for ever, and written as long as it is written.

The file beside this one holds a record. A change that makes this test fail needs a new version of the layout, with
golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_learner.core.errors import DamagedRecord
from stream_learner.core.log.examples import decode
from stream_learner.core.log.skips import Skip, encode_skip

SKIP = Skip(5, 5_000_000_001, 0xFEDCBA98, 1_700_000_007_123, "jane@ops", "a disk at näher Stelle was damaged")
GOLDEN = (Path(__file__).parent / "skip.bin").read_bytes()


def test_a_skip_is_read_from_these_bytes_and_written_as_them() -> None:
    assert decode(GOLDEN) == SKIP
    assert encode_skip(SKIP) == GOLDEN


def test_a_skip_that_was_cut_is_damaged() -> None:
    for size in range(40, len(GOLDEN)):
        with pytest.raises(DamagedRecord):
            decode(GOLDEN[:size])


def test_what_does_not_fit_a_skip_is_not_written() -> None:
    for wrong in (Skip(0, -1, 0, 0, "a", "b"), Skip(0, 1, 0, 0, "a", "b" * 5000)):
        with pytest.raises(ValueError, match=r"offset -1|more than"):
            encode_skip(wrong)
