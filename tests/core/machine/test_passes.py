"""A kernel's own steps of compiling: the types are those that numba finds, and so are the results, bit by bit."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import types
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.passes import _Remembering

OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.lt, operator.le, operator.eq, operator.ne, operator.iadd, operator.ilshift),
)
NUMBERS = (
    *(types.int64, types.uint64, types.int32, types.uint8, types.float64, types.float32, types.boolean),
    *(types.literal(3), types.literal(-1), types.literal(0), types.complex128),
)


def found(rules: Any, function: Any, given: tuple[Any, ...]) -> Any:
    """The signature that rules find, or the kind of their refusal."""
    try:
        return rules.resolve_function_type(function, given, {})
    except NumbaError as error:
        return type(error)


@pytest.mark.parametrize("of", OPERATORS, ids=lambda of: of.__name__)
def test_the_types_of_an_operator_are_those_that_numba_finds(of: Callable[..., Any]) -> None:
    """For all pairs of types, when first asked and when asked again."""
    rules = cpu_target.typing_context
    rules.refresh()
    remembering, function = _Remembering(rules), rules.resolve_value_type(of)
    pairs = list(itertools.product(NUMBERS, NUMBERS))
    wanted = [found(rules, function, pair) for pair in pairs]
    assert any(isinstance(one, type) for one in wanted) == (of in REFUSING)
    for _ in range(2):
        assert [found(remembering, function, pair) for pair in pairs] == wanted


REFUSING = {
    *(operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor),
    *(operator.lshift, operator.rshift, operator.lt, operator.le, operator.ilshift),
}
"""Operators that are not defined for all pairs: not for fractions, or not for complex numbers."""


def mixed(number: int, fraction: float, words: np.ndarray, out: np.ndarray) -> tuple[float, int]:
    """Loops, branches, powers, shifts, and numbers of several types in one expression."""
    total, count, sign = 0.0, 0, True
    for i in range(len(words) - 1, -1, -1):
        word = words[i]
        if word % 3 == 0 or (number > 0 and not sign):
            total += fraction**2 / (1 + (word & 7))
            sign = not sign
        elif 1 < word < 1 << 40:
            total -= np.float32(fraction) * (number >> 2)
        out[i] = total + word
        while count < 3 and total > 2 * count:
            count += 1
    number = min(max(number, -5), 1 << 20) if sign else -number
    return total + number // 3, count


mixed_kernel = kernel(mixed)
mixed_by_numba = numba.njit(error_model="numpy")(mixed)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, width=32),
    st.lists(st.integers(0, 2**62), min_size=1, max_size=9),
)
def test_results_are_those_of_all_steps_of_numba(number: int, fraction: float, words: list[int]) -> None:
    given, outs = np.array(words, np.int64), np.zeros((2, len(words)))
    mine, numbas = mixed_kernel(number, fraction, given, outs[0]), mixed_by_numba(number, fraction, given, outs[1])
    assert np.array(mine).tobytes() == np.array(numbas).tobytes()
    assert outs[0].tobytes() == outs[1].tobytes()
