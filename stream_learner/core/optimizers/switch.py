"""The switch of the general fold: at each step, the kernel of whichever rule is folded with.

In: the code of a rule, and a step's arguments. Out: what that rule's kernel returns.

The kernels are written from the registered rules, so that no rule is named here:

    def scale(rule, loss, option, p, y, h, d, size, sc, pa):
        if (rule == 0) | (rule == 6):
            return scheduled_scale(h, d, sc, pa)
        if rule == 1:
            ...

A code is a rule's place in the registry. It is never stored, and only the switch reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stream_learner.core.kernels import kernel
from stream_learner.core.optimizers.registry import OPTIMIZERS
from stream_learner.core.optimizers.rules import Rule, RuleOptimizer, formula_read

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


def _call(own: Any, known: dict[str, Any], **instead: str) -> str:
    """A call of a kernel with the arguments it declares, by their names or by what stands for them."""
    name, code = own.py_func.__name__, own.py_func.__code__
    if known.setdefault(name, own) is not own:
        raise ValueError(f"two kernels of rules are called {name}")
    arguments = code.co_varnames[: code.co_argcount]
    return f"{name}({', '.join(instead.get(argument, argument) for argument in arguments)})"


def _answer(step: str, rule: Rule, known: dict[str, Any]) -> str:
    """What a rule returns at a step."""
    if step == "read" and rule.weight_is_formula:
        return _call(formula_read, known, w=_call(rule.weight, known, columns="row + 8"))
    return _call(getattr(rule, step), known)


def _switch(name: str) -> Callable[..., Any]:
    """The kernel of a step by its name. Rules that answer alike share a branch; the last branch has no condition."""
    known: dict[str, Any] = {"__name__": __name__}
    codes: dict[str, list[int]] = {}
    for code, rule in enumerate(_RULES):
        codes.setdefault(_answer(name, rule, known), []).append(code)
    lines = [f"def {name}(rule, {_ARGUMENTS[name]}):"]
    *branches, (last, _) = codes.items()
    for answer, own in branches:
        condition = " | ".join(f"(rule == {code})" for code in own)
        lines += [f"    if {condition}:", f"        return {answer}"]
    lines.append(f"    return {last}")
    # The text names only kernels of this package, and compiles to the same machine code as if it were written here.
    exec(compile("\n".join(lines), __file__, "exec"), known)
    return kernel(known[name])


read = _switch("read")
predict = _switch("predict")
scale = _switch("scale")
step = _switch("step")
weight = _switch("weight")
