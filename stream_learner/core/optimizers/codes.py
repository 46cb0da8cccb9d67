"""The codes by which kernels know the optimizers of the general fold.

In: nothing. Out: small numbers.
This file must never hold anything else: the files of the rules and the switch over them both import it.
"""

from __future__ import annotations

(
    OGD,
    OGD_GLOBAL,
    PC_OGD,
    ADAGRAD,
    NORMALIZED,
    INVARIANT,
    AVERAGED,
    L1_SUBGRADIENT,
    SIMPLE_TRUNCATION,
    TRUNCATED_GRADIENT,
    FOBOS,
    RDA,
    FTRL_FIXED,
    FTRL_SQRT,
    FTRL_DOUBLING,
    ENTROPIC,
    FTRL_GROWING,
    PASSIVE_AGGRESSIVE,
    CONFIDENCE_WEIGHTED,
    PISTOL,
    COIN,
) = range(21)
