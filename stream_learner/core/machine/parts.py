"""Kernels that other kernels call. The code of the caller contains theirs, so they get no machine code of their own.

Numba makes every function ready to be called from Python, and so goes through the code of an inner kernel once for each
level of callers above it. Here a kernel that is compiled on behalf of another one, a part, is only made fit for linking
into its caller. A kernel that Python calls too is compiled again, whole, at its first call.

This is made of what is inside numba, and was tried with one minor version; `pyproject.toml` allows no other.
"""

from __future__ import annotations

from typing import Any

from numba.core import sigutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.registry import CPUDispatcher
from numba.core.targetconfig import ConfigStack

from stream_learner.core.machine.passes import kernel_passes


def inside_a_kernel() -> bool:
    """Whether this thread is compiling a kernel, so that what it compiles now is a part."""
    return len(ConfigStack()) > 0


class PartLibrary(JITCodeLibrary):
    """The code of a part, which its callers link into theirs. The passes over a whole module run there."""

    def _optimize_final_module(self) -> None:
        """Leave the code as it is."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """0: there is no machine code."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> PartLibrary:
        """Where numba sets the environment of a function that it is going to call: here, to no effect."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: a part is not called by Python."""


class KernelCompiler(CompilerBase):
    """Compiles by the steps of `passes`: a part into a `PartLibrary`, and without a wrapper for Python."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, return_type: Any, flags: Any, hints: Any
    ) -> None:
        if library is None and inside_a_kernel():
            library = PartLibrary(target.codegen(), "part")
            flags.no_cpython_wrapper = True
        super().__init__(typing, target, library, args, return_type, flags, hints)

    def define_pipelines(self) -> list[PassManager]:
        """The steps of compiling a kernel."""
        return [kernel_passes()]


class Kernel(CPUDispatcher):
    """A compiled function, with a version for each combination of types. Python is never given a part."""

    def add_overload(self, compiled: Any) -> None:
        """Keep a version; as a part, only for other kernels."""
        if is_part(compiled):
            self.overloads[tuple(compiled.signature.args)] = compiled
        else:
            super().add_overload(compiled)

    def compile(self, signature: Any) -> Any:
        """Compile a version, if it is missing or if Python wants to call what has only been a part so far."""
        args, _ = sigutils.normalize_signature(signature)
        known = self.overloads.get(tuple(args))
        if known is not None and is_part(known) and not inside_a_kernel():
            del self.overloads[tuple(args)]
        return super().compile(signature)


def is_part(compiled: Any) -> bool:
    """Whether a version of a kernel serves other kernels only."""
    return isinstance(compiled.library, PartLibrary)
