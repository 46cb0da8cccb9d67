"""Memory that ends right before, or begins right after, a page that must not be touched.

In: bytes or sizes. Out: arrays in such memory; one byte read or written beyond them kills the process.
This file must never be used in a process that is not meant to be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

Side = Literal["end", "begin"]
"""Whether memory touches the inaccessible page with its end or with its beginning."""
SIDES: tuple[Side, Side] = ("end", "begin")

_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0
_FILLED_BELOW = 1 << 16
_UNUSED = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)


def fenced(size: int, side: Side) -> NDArray[np.uint8]:
    """New zeroed memory u8[size] between two inaccessible pages, touching one of them."""
    inner = max(_PAGE, -(-size // _PAGE) * _PAGE)
    memory = mmap.mmap(-1, inner + 2 * _PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + _PAGE + inner):
        if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect refused to close a page")
    at = _PAGE if side == "begin" else _PAGE + inner - size
    return np.frombuffer(memory, np.uint8, size, at)


class GuardedBuffer:
    """A place for inputs, one after the other: each `put` overwrites the one before."""

    def __init__(self, side: Side, room: int = 1 << 20) -> None:
        self._side = side
        self._memory = fenced(room, side)

    def put(self, *parts: bytes, align: int = 1) -> NDArray[np.uint8]:
        """The parts back to back, touching the inaccessible page; `align` moves them away from it, down to an address
        that is a multiple of it."""
        data = b"".join(parts)
        if len(data) > len(self._memory):
            self._memory = fenced(2 * len(data), self._side)
        at = 0 if self._side == "begin" else (len(self._memory) - len(data)) // align * align
        place = self._memory[at : at + len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        return place


class _FencedNumpy:
    """NumPy, but arrays that are made by `empty`, `zeros`, `full` and `concatenate` are fenced."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, shape: Any, dtype: DTypeLike = float) -> NDArray[Any]:
        kind = np.dtype(dtype)
        memory = fenced(int(np.prod(shape, dtype=np.int64)) * kind.itemsize, self._side)
        return memory.view(kind).reshape(shape)

    def empty(self, shape: Any, dtype: DTypeLike = float) -> NDArray[Any]:
        array = self.zeros(shape, dtype)
        if array.nbytes < _FILLED_BELOW:
            array.view(np.uint8).fill(_UNUSED)
        return array

    def full(self, shape: Any, value: Any, dtype: DTypeLike = float) -> NDArray[Any]:
        array = self.zeros(shape, dtype)
        array.fill(value)
        return array

    def concatenate(self, arrays: Any) -> NDArray[Any]:
        whole = np.concatenate(arrays)
        array = self.zeros(whole.shape, whole.dtype)
        array[:] = whole
        return array


@contextlib.contextmanager
def fenced_arrays(side: Side, *modules: ModuleType) -> Iterator[None]:
    """While it is open, the arrays that these modules make are fenced. None of them may hold a kernel."""
    numpy = _FencedNumpy(side)
    for module in modules:
        module.np = numpy  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module.np = np  # type: ignore[attr-defined]
