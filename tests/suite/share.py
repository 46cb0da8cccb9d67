"""Tests of which the newcomer's part runs a share, and the thorough part the rest.

A share of the examples: in, both numbers; out, a decorator; the test takes the number as its argument `examples`:

    @share(200, of=2_000)
    def test_every_law_holds_on_random_histories(examples: int) -> None: ...

It pays where examples take seconds. A property of half a second runs whole, in the newcomer's part. A share of the
cases: `cases` marks the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def share(few: int, *, of: int) -> pytest.MarkDecorator:
    """Run a test with so few examples, and once more, marked `thorough`, with all of them."""
    return pytest.mark.parametrize("examples", [few, pytest.param(of, marks=pytest.mark.thorough)])


def cases(every: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Cases for `parametrize`: all of them, those marked `thorough` that are not quick."""
    found = list(every)
    assert set(quick) <= set(found)
    return [case if case in quick else pytest.param(case, marks=pytest.mark.thorough) for case in found]
