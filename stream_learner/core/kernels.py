"""How hot loops are compiled.

In: a Python function over integers, floats, addresses and arrays. Out: machine code without the GIL.
This file must never switch on fast-math or fused multiply-add: the bits of the fold depend on it.

Machine code is kept on disk. Numba takes it to be current while the file of the function itself is unchanged; but a
kernel contains what it calls from other files of this package. So here it counts as current only while every file of
`core` is unchanged.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def _sources_stamp() -> tuple[int, int]:
    """Checksum and number of names, sizes and times of change of this package's source files."""
    root = Path(__file__).parent
    files = sorted(root.rglob("*.py"))
    text = "\n".join(f"{f.relative_to(root)} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files)
    return zlib.crc32(text.encode()), len(files)


_STAMP = _sources_stamp()


def kernel(function: F) -> F:
    """Compile a function on first use, keep the machine code on disk, release the GIL while it runs.

    Division by zero gives IEEE infinities and NaN, as in NumPy, and never raises.
    """
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    compiled._cache._cache_file._source_stamp = _STAMP
    result: F = compiled
    return result
