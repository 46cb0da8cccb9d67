"""A number left to kind `auto` is worth its place: no more loss than without its field."""

from __future__ import annotations

import pytest

from benchmarks.bench_numbers import generated, measured

EXAMPLES = 10_000


@pytest.mark.parametrize("name", ["screen width: 360, 768, 1440", "counts up to 1,000,000, rate by their logarithm"])
def test_a_number_left_to_auto_is_no_worse_than_none(name: str) -> None:
    """On numbers whose plain value is worse than none by far."""
    table = list(generated(name, EXAMPLES))
    loss = {rule: measured(table, rule, ["ftrl_proximal"])[0] for rule in ("auto", "left out", "number")}
    assert loss["auto"] <= loss["left out"] < loss["number"]


def test_a_number_without_effect_costs_what_learning_it_costs() -> None:
    """As any feature does: about a thousandth."""
    table = list(generated("the same counts, rate without them", EXAMPLES))
    auto, left_out = (measured(table, rule, ["ftrl_proximal"])[0] for rule in ("auto", "left out"))
    assert auto <= left_out + 0.003
