"""Version 4 of the marks in the training log: these bytes are read for ever. Marks are written in a newer version
(`marks_v5`), which differs in the rules of the join alone.

The files beside this one hold a record each. A change that makes this test fail needs a new version of the layout, with
golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stream_learner.core.log.examples import decode
from tests.golden.marks_v5.test_marks_v5 import MARKS

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", MARKS)
def test_golden_marks_are_read(name: str) -> None:
    """A mark whose stream time is behind its ticks, one with a resume point, one with its codes ahead, one anew."""
    mark = MARKS[name]
    resume = None if mark.resume is None else replace(mark.resume, rules=4)
    assert decode((FOLDER / name).read_bytes()) == replace(mark, resume=resume, rules=4)
