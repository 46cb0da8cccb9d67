"""Judges one tick after the other, and remembers what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.rule_r import AcceptedTick

Predict = Callable[[ExampleRecord], NDArray[np.float64]]
"""Predictions f64[n] in [0, 1] of a record's examples, by the model as it is before the tick; it must change nothing."""


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """How the gate judges; `config.gate` has the meaning of each.

    ignore: names of bounds that are not judged.
    """

    false_alarms: float = 0.01
    warm_up_ms: int = 3_600_000
    sample: int = 256
    ignore: frozenset[str] = frozenset()


class Verdict(NamedTuple):
    """Why a tick is not learned.

    bound: its name. slice: the name of the slice, "" for all examples. found, expected: what was counted since
    `since_tick`, and what was usual; found is beyond low..high.
    """

    bound: str
    slice: str
    found: float
    expected: float
    low: float
    high: float
    since_tick: int

    @property
    def message(self) -> str:
        """In plain words."""
        where = f" in {self.slice}" if self.slice else ""
        return f"{self.bound}{where}: {self.found:g} since tick {self.since_tick}, expected {self.expected:g}"


class Gate:
    """The gate of one model. Used by one thread."""

    def __init__(self, policy: GatePolicy, *, tick_ms: int, slices: Sequence[tuple[str, int]] = ()) -> None:
        """slices: the name to show and the feature key (u64) of each."""
        self._policy, self._tick_ms, self._slices = policy, tick_ms, tuple(slices)

    def count(self, mark: Mark) -> None:
        """Count an accepted mark that is passed without any example of its tick, in any partition, being handed out."""

    def judge(self, tick: int, accepted: Sequence[AcceptedTick], predict: Predict | None = None) -> Verdict | None:
        """Why a tick with examples must not be learned, None if it may.

        accepted: what `LogFollower` hands out for the tick, of every partition. Changes nothing that `state` shows: the
        same tick may be judged again. `take`, `accept` or `skip` ends it.
        """
        return None

    def take(self) -> None:
        """The tick judged last is learned: it enters the estimates."""

    def accept(self) -> None:
        """The tick judged last is learned by decision: what it was out of bounds of is learned anew from it on."""

    def skip(self) -> None:
        """The tick judged last is left out: nothing of it enters the estimates."""

    def state(self) -> dict[str, Any]:
        """Everything, exact, in JSON's types; `restore` takes it."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises ValueError for one of other settings."""
