"""The switch of the general fold: at each step, the kernel of whichever rule is folded with.

The kernels are written from the registered rules, so that no rule is named here:

    def scale(rule, loss, option, p, y, h, d, size, sc, pa):
        if (rule == 2) | (rule == 3):
            return gradient_scale(h, d)
        if rule == 1:
            ...
        return scheduled_scale(h, d, sc, pa)

A code is a rule's place in the registry. It is never stored, and only the switch reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.model.optimizers.registry import OPTIMIZERS
from stream_learner.core.model.optimizers.rules import Rule, RuleOptimizer, formula_read

_ARGUMENTS: Final = {
    "read": "row, x, sc, pa",
    "predict": "dot, size, h, sc, pa",
    "scale": "loss, option, p, y, h, d, size, sc, pa",
    "step": "row, x, u, sc, pa",
    "weight": "columns, sc, pa",
}
_RULES: Final = tuple(kind.rule for kind in OPTIMIZERS.values() if issubclass(kind, RuleOptimizer))
_CODES: Final = {rule: code for code, rule in enumerate(_RULES)}


def code_of(optimizer: RuleOptimizer) -> int:
    """The code by which the switch knows the rule of an optimizer."""
    return _CODES[optimizer.rule]


def _call(own: Any, known: dict[str, Any]) -> str:
    """A call of a kernel with the arguments it declares; `known` then has the kernel by its name."""
    name, code = own.py_func.__name__, own.py_func.__code__
    if known.setdefault(name, own) is not own:
        raise ValueError(f"two kernels of rules are called {name}")
    return f"{name}({', '.join(code.co_varnames[: code.co_argcount])})"


def _answer(step: str, rule: Rule, known: dict[str, Any]) -> str:
    """Call the kernel of a rule at a step.

    Rules whose weight is a formula share one branch, which calls `weight`: with their formulas one by one the kernel
    is too large for LLVM to inline, and coin betting a quarter slower.
    """
    if step == "read" and rule.weight_is_formula:
        return "formula_read(row, x, weight(rule, row + 8, sc, pa))"
    return _call(getattr(rule, step), known)


def _switch(name: str, **used: Any) -> Callable[..., Any]:
    """The kernel of a step by its name, with others that it calls. Rules that answer alike share a branch; the answer
    of the first rule has no condition.
    """
    known: dict[str, Any] = {"__name__": __name__, **used}
    codes: dict[str, list[int]] = {}
    for code, rule in enumerate(_RULES):
        codes.setdefault(_answer(name, rule, known), []).append(code)
    lines = [f"def {name}(rule, {_ARGUMENTS[name]}):"]
    (usual, _), *branches = codes.items()
    for answer, own in branches:
        condition = " | ".join(f"(rule == {code})" for code in own)
        lines += [f"    if {condition}:", f"        return {answer}"]
    lines.append(f"    return {usual}")
    # The text names only kernels of this package, and compiles to the same machine code as if it were written here.
    exec(compile("\n".join(lines), __file__, "exec"), known)
    return kernel(known[name])


weight = _switch("weight")
read = _switch("read", weight=weight, formula_read=formula_read)
predict = _switch("predict")
scale = _switch("scale")
step = _switch("step")
