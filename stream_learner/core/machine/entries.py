"""Kernels that Python calls. An entry says its types once, in its annotations, and is compiled for just these.

    @entry
    def find_runs(errors: I32, partitions: I32, n: int, starts: I64) -> int:

| annotation | argument |
|---|---|
| `int`, `float`, `bool`, `np.uint64` | a number of 64 bits, a truth value, a scalar of NumPy |
| `I64`, `Matrix[np.int64]` | a contiguous array of one dimension, of two, that can be written |
| `ReadOnly[np.int64]` | one of one dimension that cannot |
| `tuple[int, bool]`, `tuple[int, ...]` | a plain tuple; the number of its elements is that of a row's columns |
| `Annotated[X, Fields]` | a plain tuple of the fields of the NamedTuple `Fields` |
| `Annotated[X, value]` | what has the type of this value |
| `X \\| Y` | either; the kernel is compiled for both |

A kernel that only kernels call is no entry: numba compiles it with its callers, for the types that they give it. A call
from Python of a kernel that is no entry, or with other types, would compile it between two ticks, and so is an error,
which the tests look for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import product
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numba import typeof
from numpy.typing import NDArray

from stream_learner.core.machine.kernels import F, kernel

Scalar = TypeVar("Scalar", bound=np.generic)
_READ_ONLY, _MATRIX = object(), object()
ReadOnly: TypeAlias = Annotated[NDArray[Scalar], _READ_ONLY]
"""A contiguous array that cannot be written: a column of a record as it is read from a log."""
Matrix: TypeAlias = Annotated[NDArray[Scalar], _MATRIX]
"""A contiguous array of two dimensions."""
Flags: TypeAlias = NDArray[np.bool_]
U8: TypeAlias = NDArray[np.uint8]
U16: TypeAlias = NDArray[np.uint16]
U32: TypeAlias = NDArray[np.uint32]
U64: TypeAlias = NDArray[np.uint64]
I16: TypeAlias = NDArray[np.int16]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]

ENTRIES: Final[dict[str, list[Any]]] = {}
"""The entries of each module that has been imported."""


def entry(function: F) -> F:
    """A `kernel` that Python calls, with arguments of the types that it is annotated with."""
    compiled = kernel(function)
    ENTRIES.setdefault(function.__module__, []).append(compiled)
    return compiled


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that cannot be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def compile_entries(modules: Iterable[str], columns: int) -> None:
    """Load the entries of these modules from the cache, or compile them, for all their types."""
    for name in modules:
        import_module(name)
        for compiled in ENTRIES[name]:
            for types in signatures(compiled.py_func, columns):
                compiled.compile(types)


def signatures(function: Callable[..., Any], columns: int) -> Iterator[tuple[Any, ...]]:
    """Numba's types of the arguments of a function, by its annotations; a tuple for each choice of a union.

    columns: how many elements `tuple[int, ...]` has.
    """
    hints = get_type_hints(function, include_extras=True)
    del hints["return"]
    choices = [get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,) for hint in hints.values()]
    for chosen in product(*choices):
        yield tuple(typeof(_example(hint, columns)) for hint in chosen)


def _example(hint: Any, columns: int) -> Any:
    """A value that an argument with this annotation can have."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is np.ndarray:
        return np.empty(0, get_args(arguments[1])[0])
    if kind is tuple:
        many = (arguments[0],) * columns if arguments[1] is ... else arguments
        return tuple(_example(one, columns) for one in many)
    if kind is not Annotated:
        return hint(0)
    hint, own = arguments
    if own is _READ_ONLY:
        return read_only(_example(hint, columns))
    if own is _MATRIX:
        return _example(hint, columns).reshape(0, 0)
    if isinstance(own, type):
        return tuple(_example(one, columns) for one in get_type_hints(own, include_extras=True).values())
    return own
