"""A learner of Vowpal Wabbit 9.11 in its own float32.

Its input is VW text parsed with VW's hashing and numbers, repeats kept. Its state is float32 rows in a flat array of
2^bits slots, and `layout.SCALARS` numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.machine.entries import F32, F64, I64, U64, Flags, Matrix, entry
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.vw.float32 import descent, layout, single, sums
from stream_learner.evaluate.vw.float32.settings import KINDS, LOSSES, VwSettings

_WIDTH: Final = {"descent": 4, "ftrl": 4, "pistol": 4, "coin": 8}
_KIND, _FIRST_SUM = layout.KIND, layout.LOSS_SUM


@entry
def _run(
    keys: U64,
    values: F64,
    row_start: I64,
    ends: I64,
    labels: F64,
    weights: F64,
    learned: Flags,
    labelled: Flags,
    state: Matrix[np.float32],
    numbers: F32,
    switches: I64,
    scalars: F64,
    margins: F64,
) -> None:
    """Predict and learn all examples in order. `ends` rise: the ends of the namespaces of all examples, one after
    another."""
    is_descent = switches[_KIND] == 0
    end_at = 0
    for e in range(len(labels)):
        first, last = row_start[e], row_start[e + 1]
        k, v = keys[first:last], values[first:last]
        while end_at < len(ends) and ends[end_at] <= first:
            end_at += 1
        y, h = np.float32(labels[e]), np.float32(weights[e])
        if labelled[e]:
            layout.see_label(y, switches, scalars)
        learn = learned[e] and labelled[e]
        if is_descent:
            p = descent.predict(k, v, state, switches, scalars)
            if learn:
                descent.learn(k, v, first, ends, end_at, p, y, h, state, numbers, switches, scalars)
        elif learn:
            p = sums.fresh(k, v, h, state, numbers, switches, scalars)
            sums.learn(k, v, p, y, h, state, numbers, switches, scalars)
        else:
            p = sums.stored(k, v, state, switches, scalars)
        if labelled[e]:
            layout.measure(p, y, h, learn, switches, numbers, scalars)
        margins[e] = np.float64(p)


class VwEngine:
    """One learner. One thread at a time.

    Its whole state is state f32[2^bits, width], the weight first, and scalars f64[layout.SCALARS].
    """

    def __init__(self, settings: VwSettings) -> None:
        s = self.settings = settings
        plain = s.kind == "descent" and s.plain
        self._numbers = np.array([s.power_t, s.l1, s.l2, s.alpha, s.beta, s.tau], np.float32)
        self._switches = np.array(
            [KINDS.index(s.kind), LOSSES.index(s.loss), s.adaptive, s.normalized, s.invariant, s.bounded, 0], np.int64
        )
        self._switches[layout.MASK] = (1 << s.bits) - 1
        self.state = np.zeros((1 << s.bits, _WIDTH[s.kind]), np.float32)
        self.scalars = np.zeros(layout.SCALARS)
        self.scalars[[layout.CONTRACTION, layout.MULTIPLIER]] = 1.0
        self.scalars[[layout.LOW, layout.HIGH]] = np.array(s.first_range(), np.float32)
        if s.kind == "descent":
            self.state[:, 1] = s.initial_t
            self.scalars[[layout.T, layout.N, layout.TOTAL]] = s.initial_t
            self.scalars[layout.ETA] = np.float32(s.eta)
            if plain:
                self.scalars[layout.ETA] = np.float32(s.eta) * _power(np.float32(s.initial_t), np.float32(s.power_t))

    def learn(self, parsed: Parsed, learned: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Predict each example, then learn from it where `learned` bool[n] says so and it has a label.

        Returns the predictions f64[n], clipped as the tool does it. Raises ValueError for text that was not parsed with
        VW's hashing and repeats.
        """
        if parsed.namespace_end is None:
            raise ValueError("the float32 arithmetic needs VW's hashing, and repeated features kept")
        batch = parsed.batch
        every = np.ones(len(batch), np.bool_) if learned is None else np.ascontiguousarray(learned, np.bool_)
        if len(every) != len(batch):
            raise ValueError(f"learned marks {len(every)} examples of {len(batch)}")
        margins = np.empty(len(batch))
        with_label = np.ascontiguousarray(parsed.labelled, np.bool_)
        columns = batch.keys, batch.values, batch.row_start, parsed.namespace_end, batch.label, batch.weight
        _run(*columns, every, with_label, self.state, self._numbers, self._switches, self.scalars, margins)
        return margins

    def end_pass(self) -> None:
        """End a pass: the learning rate decays."""
        self.scalars[layout.ETA] = np.float32(self.scalars[layout.ETA]) * np.float32(self.settings.decay)

    def take_held_out(self) -> float:
        """The mean loss of the examples that were only predicted, since the last call; NaN if there were none."""
        loss, importance = self.scalars[[layout.HELD_LOSS_SUM, layout.HELD_IMPORTANCE_SUM]]
        self.scalars[[layout.HELD_LOSS_SUM, layout.HELD_IMPORTANCE_SUM]] = 0.0
        return float(loss / importance) if importance else float("nan")

    @property
    def average_loss(self) -> float:
        """The mean loss of all examples learned from, each measured before it; NaN if there were none."""
        loss, importance = self.scalars[_FIRST_SUM : _FIRST_SUM + 2]
        return float(loss / importance) if importance else float("nan")

    def nonzero(self) -> int:
        """The number of weights that are not 0 in a prediction made now."""
        w = self.state[:, 0]
        if self.settings.kind == "descent":
            return int(np.count_nonzero(np.abs(w) > max(0.0, float(self.scalars[layout.GRAVITY]))))
        return int(np.count_nonzero(w))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state, for `restore`; views, not copies."""
        return {"state": self.state, "scalars": self.scalars}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over the `arrays` of an engine with the same settings. Raises ValueError if shapes differ."""
        for name, mine in self.arrays().items():
            if arrays[name].shape != mine.shape or arrays[name].dtype != mine.dtype:
                raise ValueError(f"{name} has shape {arrays[name].shape}, this learner has {mine.shape}")
            mine[:] = arrays[name]


@entry
def _power(x: np.float32, y: np.float32) -> np.float32:
    return single.powf(x, y)
