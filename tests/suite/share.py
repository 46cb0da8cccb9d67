"""Tests of which the newcomer's part runs a share, and a longer part the rest.

A share of the examples: in, both numbers; out, a decorator; the test takes the number as its argument `examples`:

    @share(200, thorough=600, nightly=2_000)
    def test_every_law_holds_on_random_histories(examples: int) -> None: ...

It pays where examples take seconds. A property of half a second runs whole, in the newcomer's part. Where an example
is a function of its seed, `seeds` gives each part those that no part before it has. A share of the cases: `cases` marks
the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def share(few: int, **more: int) -> pytest.MarkDecorator:
    """Run a test with so few examples; and once more with each of the other numbers, marked with its name."""
    longer = [pytest.param(examples, marks=getattr(pytest.mark, part)) for part, examples in more.items()]
    return pytest.mark.parametrize("examples", [few, *longer])


def seeds(few: int, **more: int) -> pytest.MarkDecorator:
    """Run a test with the seeds below `few`, its argument `seeds`; and once more with those from there up to each of
    the other numbers, marked with its name."""
    starts = [few, *more.values()]
    longer = [
        pytest.param(range(start, end), marks=getattr(pytest.mark, part), id=f"{start}-{end}")
        for start, (part, end) in zip(starts, more.items(), strict=False)
    ]
    return pytest.mark.parametrize("seeds", [pytest.param(range(few), id=f"0-{few}"), *longer])


def cases(every: Iterable[Any], quick: Collection[Any], others: str = "thorough") -> list[Any]:
    """Cases for `parametrize`, tuples where it has several names: those that are not quick have their part's mark."""
    found = list(every)
    assert set(quick) <= set(found)
    mark = getattr(pytest.mark, others)
    return [
        case if case in quick else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
        for case in found
    ]
