"""Loads and stores of a rule's kernels: columns of a local row, scalars, hyper-parameters, each by its place.

A local row is float64[8]: weight, column 0, column 1, and so on. Places are not checked: rules are written with
constants.
"""

from __future__ import annotations

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_f64_at, store_f64_at


@kernel
def column(row: int, place: int) -> float:
    """State column of a local row."""
    return load_f64_at(row, 8 + 8 * place)


@kernel
def set_column(row: int, place: int, value: float) -> None:
    """Change a state column of a local row."""
    store_f64_at(row, 8 + 8 * place, value)


@kernel
def set_weight(row: int, value: float) -> None:
    """Change the weight of a local row. It must be what the rule's `weight` now says of the columns."""
    store_f64_at(row, 0, value)


@kernel
def number(numbers: int, place: int) -> float:
    """A scalar, or a hyper-parameter."""
    return load_f64_at(numbers, 8 * place)


@kernel
def set_number(numbers: int, place: int, value: float) -> None:
    """Change a scalar."""
    store_f64_at(numbers, 8 * place, value)
