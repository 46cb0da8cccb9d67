"""Holds back the publications of one model that are out of bounds, while it learns on: `core/gate/publication.py`.

A learner that follows judges as if it published, so that it holds too when it takes over. What is held is let through
when it is within bounds again, or by an operator's word (`stream-learner gate accept --publication`), which names the
version that scorers have: a word about another version says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.core.control.gate_state import HeldPublication
from stream_learner.core.gate.publication import SAMPLE, Held, PublicationGate, Sums
from stream_learner.core.gate.sample import cut_rows, sampled
from stream_learner.core.log.examples import ExampleRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.core.control.state import ControlState
    from stream_learner.core.model.fold import Learner

OFF, HOLD = "off", "hold"
ACTION = (
    "Look at the inputs and at what changed. If the model is right, `stream-learner gate accept --publication`; if "
    "not, `stream-learner rewind`. Scorers keep the last version."
)
LEAST_S = 1.0
"""A model is judged once a second at most, and so that it takes less than one part in `SHARE` of the time."""
SHARE = 50.0

Predictions = list["NDArray[np.float64]"]


class ModelPublicationGate:
    """The gate before the publications of one model. Used by the learner's thread; `trouble` may be asked from any."""

    def __init__(
        self,
        policy: str,
        model: str,
        tick_ms: int,
        control: Callable[[], ControlState],
        metrics: Metrics,
        log: Logger,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """policy: `snapshots.gate`. control: what the control topic says now."""
        self._policy, self._model, self._control = policy, model, control
        self._metrics, self._log, self._clock_s = metrics, log, clock_s
        self._tick_ms = tick_ms
        self._gate = PublicationGate(tick_ms=tick_ms)
        self._again_at_s = float("-inf")
        self._said = ""
        self._judged: tuple[int, Sums, Predictions] | None = None
        self._predicted: tuple[int, list[ExampleRecord], Predictions] | None = None
        """What was predicted last of the reservoir: by the model of which digest, and of which examples."""
        self.trouble = ""
        """Why the model is not published, "" if this does not hold it."""
        self.holding: HeldPublication | None = None
        """The same with the bound and the tick since when, in the figures as of when that bound was found first."""

    def admit(self, tick: int, records: Sequence[ExampleRecord], learner: Learner) -> None:
        """Look at the model, where it is not judged, and at the examples of the next tick, before it is folded."""
        if self._policy == OFF or not records:
            return
        if self._gate.wants_sums(tick - 1):
            self._gate.learn(tick - 1, Sums.of(learner.progress.summary()))
        if self._gate.wants(tick):
            parts = [cut_rows(record, rows) for record, rows in sampled(records, SAMPLE)]
            self._gate.admit(tick, [(part, learner.predict(part)) for part in parts])

    def lets(self, tick: int, learner: Learner, version: int) -> bool:
        """Whether the model as of a tick may be published now; `published` follows if it is.

        version: the last one that was published.
        """
        if self._policy == OFF:
            return True
        found = self._judge(tick, learner)
        if found is not None and self._is_accepted(version):
            self._accept(tick, version)
            return True
        return found is None or self._policy != HOLD

    def published(self) -> None:
        """Note that the model is published as it was judged last."""
        if self._judged is not None and self._gate.held is None:
            self._gate.passed(*self._judged)
        self._judged = None

    def follow(self, tick: int, learner: Learner) -> None:
        """Judge as if this learner published."""
        if self._policy != OFF:
            self._judge(tick, learner)
            self.published()

    def _judge(self, tick: int, learner: Learner) -> Held | None:
        """The verdict on the model as of a tick; the last one, where it is too soon for another."""
        now_s = self._clock_s()
        if now_s < self._again_at_s:
            return self._gate.held
        sums = Sums.of(learner.progress.summary())
        predictions = self._predict(learner)
        self._judged = tick, sums, predictions
        found = self._gate.judge(tick, sums, predictions)
        self._again_at_s = now_s + max(LEAST_S, SHARE * (self._clock_s() - now_s))
        self._say(tick, found)
        return found

    def _predict(self, learner: Learner) -> Predictions:
        """The predictions of the reservoir. Those of the last time, if the model and the examples are still the same:
        a learner without new examples publishes ticks all the same.
        """
        digest, records = learner.digest(), self._gate.reservoir
        if self._predicted is not None:
            their_digest, theirs, predictions = self._predicted
            if digest == their_digest and len(records) == len(theirs) and all(map(is_, records, theirs)):
                return predictions
        predictions = [learner.predict(record) for record in records]
        self._predicted = digest, records, predictions
        return predictions

    def _say(self, tick: int, found: Held | None) -> None:
        """Log that it is out of bounds, or no longer."""
        self._metrics.set(names.LEARNER_PUBLICATION_HELD, float(found is not None))
        bound = "" if found is None else found.bound
        if found is not None and not self._said:
            event = "publication_held" if self._policy == HOLD else "publication_out_of_bounds"
            figures = {"bound": found.bound, "found": found.found, "usual": found.usual, "limit": found.limit}
            self._log.error(event, tick=tick, reason=found.message, **figures, action=ACTION)
        elif self._said and found is None:
            self._log.info("publication_within_bounds", tick=tick, since_tick=self._gate.since_tick)
        since_tick = self._gate.since_tick
        if found is None or self._policy != HOLD:
            self.trouble, self.holding = "", None
        else:
            self.trouble = f"publication held since tick {since_tick}: {found.message}"
            if self.holding is None or bound != self._said:
                self.holding = HeldPublication(since_tick, bound, found.message)
        self._said = bound

    def _is_accepted(self, version: int) -> bool:
        accepted = self._control().accepted.get(self._model)
        return accepted is not None and accepted.version == version

    def _accept(self, tick: int, version: int) -> None:
        accepted = self._control().accepted[self._model]
        predictions = [] if self._judged is None else self._judged[2]
        self._gate.accept(tick, predictions)
        self._judged = None
        self._say(tick, None)
        self._log.info("publication_accepted", tick=tick, version=version, who=accepted.who, why=accepted.note)

    def state(self) -> dict[str, Any] | None:
        """All state, exact, in JSON's types; None where nothing is judged."""
        return None if self._policy == OFF else self._gate.state()

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state in a checkpoint. A gate that held holds."""
        if state is None or self._policy == OFF:
            return
        try:
            self._gate.restore(state)
        except (ValueError, KeyError, TypeError) as error:
            self._gate = PublicationGate(tick_ms=self._tick_ms)
            self._log.warning("publication_gate_begins_anew", reason=str(error))
        self._say(self._gate.since_tick, self._gate.held)
