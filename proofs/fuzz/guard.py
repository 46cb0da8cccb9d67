"""Memory beside an inaccessible page: one byte read or written beyond the end, or before the beginning, kills the
process.

Only a process that may be killed uses it: `worker`.
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
"""The side of the memory that the inaccessible page is on."""
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
    """Guarded memory for inputs, one after another: each `put` overwrites the one before."""

    def __init__(self, side: Side, room: int = 1 << 20) -> None:
        self._side = side
        self._memory = fenced(room, side)

    def put(self, *parts: bytes, align: int = 1) -> NDArray[np.uint8]:
        """Store the parts back to back, beside the inaccessible page; with `align`, at an address that is a multiple
        of it."""
        data = b"".join(parts)
        if len(data) > len(self._memory):
            self._memory = fenced(2 * len(data), self._side)
        at = 0 if self._side == "begin" else (len(self._memory) - len(data)) // align * align
        place = self._memory[at : at + len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        return place


class _FencedNumpy:
    """NumPy, except that `empty`, `zeros`, `full` and `concatenate` make fenced arrays."""

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
    """While the `with` block runs, the arrays that these modules make are fenced. None of them may define a kernel."""
    numpy = _FencedNumpy(side)
    for module in modules:
        module.np = numpy  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module.np = np  # type: ignore[attr-defined]
