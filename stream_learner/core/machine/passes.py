"""The steps by which a kernel is compiled: numba's, without those that kernels have no use for.

A kernel has no closure, no comprehension, no `with` and no expression of whole arrays, and raises nothing. Looking for
them would take more than a tenth of the time of compiling. As much would be spent on the types of `a + b` and its like,
which numba finds each time by asking all its rules, those of arrays too. Here they are found once for numbers of the
same types. What a kernel computes is the same.

This is made of what is inside numba, as `parts` is.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)

_SIGNATURES: dict[tuple[Any, ...], Any] = {}
"""By a function and the types of its arguments, the signature that fits."""
_NUMBERS = (types.Number, types.Boolean)


class _Remembering:
    """Numba's rules of types. What a function of numbers makes of certain types is looked up once."""

    def __init__(self, rules: Any) -> None:
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rules, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """The signature of a function for these types, as numba's rules find it."""
        if kws or not isinstance(function, types.Function) or not all(isinstance(arg, _NUMBERS) for arg in args):
            return self._rules.resolve_function_type(function, args, kws)
        key = (function, *args)
        found = _SIGNATURES.get(key)
        if found is None:
            found = _SIGNATURES[key] = self._rules.resolve_function_type(function, args, kws)
        return found


@register_pass(mutates_CFG=True, analysis_only=False)
class _TypeInference(NopythonTypeInference):
    """Numba's, with `_Remembering`."""

    _name = "kernel_type_inference"

    def run_pass(self, state: Any) -> Any:
        rules = state.typingctx
        state.typingctx = _Remembering(rules)
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = rules


_PASSES = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    RewriteSemanticConstants,
    DeadBranchPrune,
    GenericRewrites,
    ReconstructSSA,
    DeadBranchPrune,
    _TypeInference,
    PreLowerStripPhis,
    IRLegalization,
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
)


def kernel_passes() -> PassManager:
    """The steps, in their order."""
    manager = PassManager("kernel")
    for step in _PASSES:
        manager.add_pass(step, step.name())
    manager.finalize()
    return manager
