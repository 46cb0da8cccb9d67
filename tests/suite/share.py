"""A test that takes a share of its examples in the newcomer's part, and all of them in the thorough part.

In: both numbers. Out: a decorator; the test takes the number as its argument `examples`:

    @share(200, of=2_000)
    def test_every_law_holds_on_random_histories(examples: int) -> None: ...

It pays where examples take seconds. A property of half a second runs whole, in the newcomer's part.
"""

from __future__ import annotations

import pytest


def share(few: int, *, of: int) -> pytest.MarkDecorator:
    """Run a test with so few examples, and once more, marked `thorough`, with all of them."""
    return pytest.mark.parametrize("examples", [few, pytest.param(of, marks=pytest.mark.thorough)])
