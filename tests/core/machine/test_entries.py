"""Kernels that Python calls say their types, and none is called that does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba import boolean, float64, int32, int64, typeof, types, uint64
from numpy.typing import NDArray

import stream_learner
from stream_learner.core.machine.entries import Matrix, ReadOnly, signatures
from stream_learner.core.parts import every_part

PACKAGE = Path(stream_learner.__file__).parent
MAKERS = {"kernel", "inlined", "copied"}
PARSERS = {f"evaluate.formats.{name}" for name in ("libsvm", "vw.kernel")}
"""Modules with entries that no part names: an evaluation parses an empty block before its clock starts."""
RULES = "core.model.optimizers."
RECORD = np.zeros(1, np.dtype((np.record, [("a", np.int64), ("b", np.float64)])))[0]


class Pair(NamedTuple):
    """Two columns."""

    flags: NDArray[np.bool_]
    sums: ReadOnly[np.float64]


def numbers(a: int, b: float, c: bool, d: np.uint64) -> None:
    """Scalars."""


def arrays(a: NDArray[np.int32], b: ReadOnly[np.uint64], c: Matrix[np.int64]) -> int:
    """Arrays of each kind."""
    return len(a) + len(b) + len(c)


def tuples(a: tuple[int, ...], b: tuple[int, bool], c: Annotated[tuple[Any, ...], Pair]) -> None:
    """Tuples of each kind."""


def records(a: Annotated[Any, RECORD]) -> None:
    """A record."""


def choices(a: NDArray[np.int64] | ReadOnly[np.int64], b: int | float) -> None:
    """Two choices."""


def array(dtype: Any, ndim: int = 1, readonly: bool = False) -> Any:
    """Numba's type of an array."""
    return types.Array(dtype, ndim, "C", readonly=readonly)


def test_the_types_of_an_entry_are_those_of_its_annotations() -> None:
    """Each row of the table on the page of `entries`, and a tuple of three columns."""
    assert [*signatures(numbers, 3)] == [(int64, float64, boolean, uint64)]
    assert [*signatures(arrays, 3)] == [(array(int32), array(uint64, readonly=True), array(int64, 2))]
    pair = types.Tuple([array(boolean), array(float64, readonly=True)])
    assert [*signatures(tuples, 3)] == [(types.UniTuple(int64, 3), types.Tuple([int64, boolean]), pair)]
    assert [*signatures(records, 3)] == [(typeof(RECORD),)]
    either = array(int64), array(int64, readonly=True)
    assert [*signatures(choices, 3)] == [(first, second) for first in either for second in (int64, float64)]


class Source:
    """A file of the package: its kernels, what its Python calls, and where the names of these calls come from."""

    def __init__(self, file: Path) -> None:
        self.module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        tree = ast.parse(file.read_text(encoding="utf-8"))
        self.entries, self.inner = set[str](), set[str]()
        self._origins: dict[str, str] = {}
        handed_over = set[str]()
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                made_by = {ast.unparse(one).split("(")[0] for one in node.decorator_list}
                self.entries |= {node.name} if "entry" in made_by else set()
                self.inner |= {node.name} if made_by & MAKERS else set()
            made = node.value if isinstance(node, ast.Assign) else None
            if isinstance(made, ast.Call) and ast.unparse(made.func) in MAKERS:
                self.inner |= {ast.unparse(target) for target in node.targets}
                handed_over |= {ast.unparse(argument) for argument in made.args}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                origin = node.module.removeprefix("stream_learner").lstrip(".")
                for name in node.names:
                    self._origins[name.asname or name.name] = f"{origin}.{name.name}"
        self._in_python = [
            node for node in tree.body if getattr(node, "name", "") not in self.entries | self.inner | handed_over
        ]

    def calls(self) -> Iterator[str]:
        """Everything that Python code of this file calls, or hands to what it calls, by module and name.

        What rules of optimizers hand over is called by the switch alone, a kernel.
        """
        for node in self._in_python:
            for call in ast.walk(node):
                if isinstance(call, ast.Call):
                    handed_over = [*call.args, *(keyword.value for keyword in call.keywords)]
                    for used in [call.func, *([] if self.module.startswith(RULES) else handed_over)]:
                        name, *attributes = ast.unparse(used).split(".")
                        yield ".".join([self._origins.get(name, f"{self.module}.{name}"), *attributes])


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """Every file of the package."""
    return [Source(file) for file in sorted(PACKAGE.rglob("*.py"))]


def test_python_calls_no_kernel_that_is_no_entry(sources: list[Source]) -> None:
    """Such a kernel has no types of its own, so nothing would compile it before the call; and every entry is called."""
    inner = {f"{source.module}.{name}" for source in sources for name in source.inner}
    entries = {f"{source.module}.{name}" for source in sources for name in source.entries}
    called = {name for source in sources for name in source.calls()}
    assert len(inner) > 300 and len(entries) > 100
    assert called & inner == set()
    assert entries - called == set()


def test_every_module_with_entries_is_in_a_part(sources: list[Source]) -> None:
    """So a role that has its parts has no kernel left to compile: `test_kernels_of_roles.py` shows that it has them."""
    named = {f"core.{module}" for part in every_part() for module in part.modules}
    assert {source.module for source in sources if source.entries} == named | PARSERS
