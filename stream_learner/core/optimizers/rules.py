"""The switch over the rules of the general fold: what each optimizer does at each step of an example.

In: the code of a rule (`codes`), the address of a local row, of the optimizer's own scalars `sc` and of its
hyper-parameters `pa`; x is never 0. Out: numbers; rows and scalars changed.
This file must never hold an equation: they stand in the files of the families.

`h` is the importance, `d` = dl/dp the slope of the loss at the margin p of the gradient, so g = h d x. `size` is the
sum of what `read` said of the features. A rule with nothing special at a step has no line there:

    read     the weight is column 0, the size x^2
    predict  the margin is the sum
    weight   the weight is column 0
"""

from __future__ import annotations

from stream_learner.core.kernels import kernel
from stream_learner.core.memory import load_f64, store_f64
from stream_learner.core.optimizers import (
    averaged,
    baselines,
    codes,
    entropic,
    gradient,
    invariant,
    leader,
    scale_free,
    sparse,
)


@kernel
def read(rule: int, row: int, x: float, sc: int, pa: int) -> tuple[float, float, float]:
    """Bring a row up to the last step; returns the weight for the prediction, for the gradient, and a part of the size.

    May change the row, and the scalars.
    """
    if rule == codes.OGD_GLOBAL:
        return gradient.ogd_global_read(row, x, sc)
    if rule == codes.NORMALIZED:
        return gradient.normalized_read(row, x)
    if rule == codes.AVERAGED:
        return averaged.averaged_read(row, x, sc)
    if (rule >= codes.L1_SUBGRADIENT) & (rule <= codes.FTRL_GROWING):
        # The sparse family and the leaders, which stand together in `codes`: the weight is a formula in the scalars.
        w = weight(rule, row + 8, sc, pa)
        store_f64(row, w)
        return w, w, x * x
    if rule == codes.CONFIDENCE_WEIGHTED:
        return baselines.confidence_weighted_read(row, x, pa)
    if rule == codes.PISTOL:
        return scale_free.pistol_read(row, x, pa)
    if rule == codes.COIN:
        return scale_free.coin_read(row, x, pa)
    return gradient.weight_read(row, x)


@kernel
def predict(rule: int, dot: float, size: float, h: float, sc: int, pa: int) -> float:
    """The margin that a sum of w x stands for. Changes nothing."""
    if rule == codes.COIN:
        return scale_free.coin_predict(dot, size, h, sc)
    return dot


@kernel
def scale(
    rule: int,
    loss: int,
    option: float,
    p: float,
    y: float,
    h: float,
    d: float,
    size: float,
    sc: int,
    pa: int,
) -> float:
    """Advance the scalars by one example; returns the factor u of the step. One that is not finite refuses the example.

    Called once an example, also for one without features.
    """
    if rule == codes.OGD_GLOBAL:
        return gradient.ogd_global_scale(h, d, size, sc, pa)
    if (rule == codes.PC_OGD) | (rule == codes.ADAGRAD):
        return gradient.gradient_scale(h, d)
    if rule == codes.NORMALIZED:
        return gradient.normalized_scale(h, d, size, sc, pa)
    if rule == codes.INVARIANT:
        return invariant.invariant_u(loss, option, p, y, h, size, pa)
    if rule == codes.L1_SUBGRADIENT:
        return sparse.l1_subgradient_scale(h, d, sc, pa)
    if (rule == codes.TRUNCATED_GRADIENT) | (rule == codes.FOBOS):
        return sparse.shrinkage_scale(h, d, sc, pa)
    if (rule == codes.RDA) | (rule == codes.FTRL_SQRT) | (rule == codes.FTRL_GROWING):
        return leader.counted_scale(h, d, sc)
    if (rule == codes.FTRL_FIXED) | (rule == codes.ENTROPIC) | (rule == codes.PISTOL):
        return gradient.gradient_scale(h, d)
    if rule == codes.FTRL_DOUBLING:
        return leader.ftrl_doubling_scale(h, d, sc, pa)
    if rule == codes.PASSIVE_AGGRESSIVE:
        return baselines.passive_aggressive_scale(p, y, h, size)
    if rule == codes.CONFIDENCE_WEIGHTED:
        return baselines.confidence_weighted_scale(p, y, h, size, pa)
    if rule == codes.COIN:
        return scale_free.coin_scale(h, d, size, sc)
    return gradient.ogd_scale(h, d, sc, pa)


@kernel
def step(rule: int, row: int, x: float, u: float, d: float, h: float, sc: int, pa: int) -> bool:
    """Change a row's columns, and its weight to what `weight` then says; False if one of them is not finite."""
    if rule == codes.OGD_GLOBAL:
        return gradient.ogd_global_step(row, x, u, pa)
    if (rule == codes.PC_OGD) | (rule == codes.ADAGRAD):
        return gradient.adagrad_step(row, x, u, pa)
    if rule == codes.NORMALIZED:
        return gradient.normalized_step(row, x, u)
    if (rule == codes.INVARIANT) | (rule == codes.PASSIVE_AGGRESSIVE):
        return gradient.weight_step(row, x, u)
    if rule == codes.L1_SUBGRADIENT:
        return sparse.l1_subgradient_step(row, x, u, sc, pa)
    if rule == codes.SIMPLE_TRUNCATION:
        return sparse.simple_truncation_step(row, x, u, sc, pa)
    if (rule == codes.TRUNCATED_GRADIENT) | (rule == codes.FOBOS):
        return sparse.shrinkage_step(row, x, u, sc, pa)
    if rule == codes.RDA:
        return sparse.rda_step(row, x, u, sc, pa)
    if rule == codes.FTRL_FIXED:
        return leader.ftrl_fixed_step(row, x, u, pa)
    if rule == codes.FTRL_SQRT:
        return leader.ftrl_sqrt_step(row, x, u, sc, pa)
    if rule == codes.FTRL_DOUBLING:
        return leader.ftrl_doubling_step(row, x, u, sc, pa)
    if rule == codes.ENTROPIC:
        return entropic.entropic_step(row, x, u, sc, pa)
    if rule == codes.FTRL_GROWING:
        return leader.ftrl_growing_step(row, x, u, sc, pa)
    if rule == codes.CONFIDENCE_WEIGHTED:
        return baselines.confidence_weighted_step(row, x, u, pa)
    if rule == codes.PISTOL:
        return scale_free.pistol_step(row, x, u, pa)
    if rule == codes.COIN:
        return scale_free.coin_step(row, x, u, sc, pa)
    if rule == codes.AVERAGED:
        return averaged.averaged_step(row, x, u, sc, pa)
    return gradient.ogd_step(row, x, u, pa)


@kernel
def weight(rule: int, columns: int, sc: int, pa: int) -> float:
    """The weight of a row whose columns are at this address, as the next example would read it. Changes nothing."""
    if rule == codes.AVERAGED:
        return averaged.averaged_weight(columns, sc)
    if rule == codes.L1_SUBGRADIENT:
        return sparse.l1_subgradient_weight(columns, sc, pa)
    if rule == codes.SIMPLE_TRUNCATION:
        return sparse.simple_truncation_weight(columns, sc, pa)
    if (rule == codes.TRUNCATED_GRADIENT) | (rule == codes.FOBOS):
        return sparse.shrinkage_weight(columns, sc, pa)
    if rule == codes.RDA:
        return sparse.rda_weight(columns, sc, pa)
    if rule == codes.FTRL_FIXED:
        return leader.ftrl_fixed_weight(columns, pa)
    if rule == codes.FTRL_SQRT:
        return leader.ftrl_sqrt_weight(columns, sc, pa)
    if rule == codes.FTRL_DOUBLING:
        return leader.ftrl_doubling_weight(columns, sc, pa)
    if rule == codes.ENTROPIC:
        return entropic.entropic_weight(columns, sc, pa)
    if rule == codes.FTRL_GROWING:
        return leader.ftrl_growing_weight(columns, sc, pa)
    if rule == codes.PISTOL:
        return scale_free.pistol_weight(columns, pa)
    if rule == codes.COIN:
        return scale_free.coin_weight(columns, sc, pa)
    return load_f64(columns)
