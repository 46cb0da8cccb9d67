"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import stream_learner

PACKAGE = Path(stream_learner.__file__).resolve().parent
EXAMPLES = sorted(
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_of_a_module_give_what_they_say(module: str) -> None:
    """Each line behind `>>>` is run, and its answer compared."""
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
