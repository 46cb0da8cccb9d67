"""How hot loops are compiled.

In: a Python function over integers, floats, addresses and arrays. Out: machine code without the GIL.
This file must never switch on fast-math or fused multiply-add: the bits of the fold depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function on first use, keep the machine code on disk, release the GIL while it runs.

    Division by zero gives IEEE infinities and NaN, as in NumPy, and never raises.
    """
    compiled: F = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return compiled
