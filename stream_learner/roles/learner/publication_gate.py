"""Holds back the publications of one model that are out of bounds, while it learns on: `core/gate/publication.py`.

A model that was never published is held until it has shown that it understands its topics (`first_version.py` there).

A learner that follows judges as if it published, so that it holds too when it takes over. What is held is let through
when it is within bounds again, or by an operator's word (`stream-learner gate accept --publication`), which names the
version that scorers have: a word about another version says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.core.control.gate_state import HeldPublication
from stream_learner.core.gate.first_version import FirstVersion, Unearned
from stream_learner.core.gate.publication import SAMPLE, Held, PublicationGate, Sums
from stream_learner.core.gate.sample import cut_rows, sampled
from stream_learner.core.log.examples import ExampleRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.core.control.state import ControlState
    from stream_learner.core.log.marks import Mark
    from stream_learner.core.model.fold import Learner

OFF, HOLD = "off", "hold"
ACTION = (
    "Look at the inputs and at what changed. If the model is right, `stream-learner gate accept --publication`; if "
    "not, `stream-learner rewind`. Scorers keep the last version."
)
FIRST_ACTION = (
    "Ask `stream-learner doctor` what does not fit: ids, keys, clocks, numbers without a scale. The model is published "
    "by itself when it fits. Where doctor finds nothing, the fields may say little of clicks. If it is right as it is, "
    "`stream-learner gate accept --publication`."
)
TOPICS_ACTION = (
    "Make the change that the reason names. The model is published by itself when the topics fit. If it is right as it "
    "is, `stream-learner gate accept --publication`."
)
LEAST_S = 1.0
"""A model is judged once a second at most, and so that it takes less than one part in `SHARE` of the time."""
SHARE = 50.0
TOLD_EVERY_S = 10.0
"""Other figures of a bound that was told are told so often, since each time is a record in the control topic."""

Predictions = list["NDArray[np.float64]"]


class Look(Protocol):
    """What a look at the input topics found, None for nothing. earned: whether nothing else is missing."""

    def __call__(self, *, earned: bool) -> Unearned | None:
        """May be asked often."""


class ModelPublicationGate:
    """The gate before the publications of one model. Used by the learner's thread; the texts may be asked from any."""

    def __init__(
        self,
        policy: str,
        model: str,
        tick_ms: int,
        control: Callable[[], ControlState],
        metrics: Metrics,
        log: Logger,
        first: FirstVersion,
        *,
        look: Look | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """policy: `snapshots.gate`. control: what the control topic says now. first: what a first version must show.
        look: what a look at the input topics found that does not fit, None for nothing; asked before
        the first version, and when a model has lost what it had shown.
        """
        self._policy, self._model, self._control = policy, model, control
        self._metrics, self._log, self._clock_s = metrics, log, clock_s
        self._tick_ms = tick_ms
        self._gate = PublicationGate(tick_ms=tick_ms)
        self._first, self._look = first, look
        self._again_at_s = self._tell_at_s = float("-inf")
        self._said: Held | Unearned | None = None
        self._since_tick, self._lacks = -1, False
        self._judged: tuple[int, Sums, Predictions] | None = None
        self._predicted: tuple[int, list[ExampleRecord], Predictions] | None = None
        """What was predicted last of the reservoir: by the model of which digest, and of which examples."""
        self.trouble = ""
        """Why the model is not published, where that does not go away by more examples; "" if this does not hold it."""
        self.waits = ""
        """What a first version waits for, where more examples are all that it needs; "" for nothing."""
        self.holding: HeldPublication | None = None
        """The same with the bound and the tick since when, in figures of `TOLD_EVERY_S` ago at most."""

    def count(self, mark: Mark) -> None:
        """Take in the counts of the next accepted mark of its partition."""
        self._first.count(mark)

    def admit(self, tick: int, records: Sequence[ExampleRecord], learner: Learner) -> None:
        """Look at the model, where it is not judged, and at the examples of the next tick, before it is folded."""
        if self._policy == OFF or not records:
            return
        self._first.learn(records)
        if self._gate.wants_sums(tick - 1):
            self._gate.learn(tick - 1, Sums.of(learner.progress.summary()))
        if self._gate.wants(tick):
            parts = [cut_rows(record, rows) for record, rows in sampled(records, SAMPLE)]
            self._gate.admit(tick, [(part, learner.predict(part)) for part in parts])

    def lets(self, tick: int, learner: Learner, version: int, *, ends: bool) -> bool:
        """Whether the model as of a tick may be published now; `published` follows if it is.

        version: the last one that was published, -1 for none. ends: whether no more examples will come.
        """
        if self._policy == OFF:
            return True
        found = self._missing(tick, learner, version, ends=ends) or self._judge(tick, learner)
        if found is not None and self._is_accepted(version):
            self._accept(tick, version)
            return True
        return found is None or self._policy != HOLD

    def lacks(self, tick: int, learner: Learner) -> None:
        """Say what a model without an example lacks; nobody publishes it, whatever it lacks. tick: -1 for none."""
        if self._policy != OFF:
            self._missing(tick, learner, -1, ends=False)

    def _missing(self, tick: int, learner: Learner, version: int, *, ends: bool) -> Unearned | None:
        """What the model lacks to be published for the first time, or has lost since."""
        if version < 0:
            summary = learner.progress.summary()
            self._first.note(summary["examples"], Sums.of(summary))
            found = self._first.missing(summary, learner.table.count, ends=ends)
        else:
            found = self._first.lost()
        if self._look is not None and self._first.asks and (version < 0 or found is not None):
            seen = self._look(earned=found is None)  # it names the cause of what a figure shows
            found = seen if found is None or (seen is not None and seen.is_wrong) else found
        if found is not None or self._lacks:
            self._say(tick, found)
        self._lacks = found is not None
        return found

    def published(self) -> None:
        """Note that the model is published as it was judged last."""
        self._first.published()
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

    def _say(self, tick: int, found: Held | Unearned | None) -> None:
        """Log that it is out of bounds, or no longer."""
        before, self._said = self._said, found
        is_wrong = _is_wrong(found)
        self._metrics.set(names.LEARNER_PUBLICATION_HELD, float(is_wrong))
        if found is not None and before is None:
            self._since_tick = self._gate.since_tick if isinstance(found, Held) else tick
        if found is not None and is_wrong and not _is_wrong(before):
            event = "publication_held" if self._policy == HOLD else "publication_out_of_bounds"
            of_first = TOPICS_ACTION if found.bound == "topics" else FIRST_ACTION
            action = ACTION if isinstance(found, Held) else of_first
            self._log.error(event, tick=tick, reason=found.message, **found.figures(), action=action)
        elif found is not None and before is None:
            self._log.info("first_version_waits", tick=tick, reason=found.message)
        elif found is None and before is not None:
            event = "first_version_earned" if isinstance(before, Unearned) else "publication_within_bounds"
            self._log.info(event, tick=tick, since_tick=self._since_tick)
        self.trouble = self.waits = ""
        if found is None or self._policy != HOLD:
            self.holding = None
        else:
            since = f"tick {self._since_tick}" if self._since_tick >= 0 else "the start"
            trouble = f"publication held since {since}: {found.message}"
            self.trouble, self.waits = (trouble, "") if is_wrong else ("", f"the first version waits: {found.message}")
            if (
                self.holding is None
                or before is None
                or (found.bound, is_wrong) != (before.bound, _is_wrong(before))
                or self._clock_s() >= self._tell_at_s
            ):
                self.holding = HeldPublication(self._since_tick, found.bound, found.message)
                self._tell_at_s = self._clock_s() + TOLD_EVERY_S

    def _is_accepted(self, version: int) -> bool:
        accepted = self._control().accepted.get(self._model)
        return accepted is not None and accepted.version == version

    def _accept(self, tick: int, version: int) -> None:
        accepted = self._control().accepted[self._model]
        predictions = [] if self._judged is None else self._judged[2]
        self._gate.accept(tick, predictions)
        self._first.accept()
        self._judged = None
        self._say(tick, None)
        self._log.info("publication_accepted", tick=tick, version=version, who=accepted.who, why=accepted.note)

    def state(self) -> dict[str, Any] | None:
        """All state, exact, in JSON's types; None where nothing is judged."""
        return None if self._policy == OFF else {**self._gate.state(), "first": self._first.state()}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state in a checkpoint. A gate that held holds."""
        if state is None or self._policy == OFF:
            return
        try:
            self._gate.restore(state)
            if "first" in state:  # not in checkpoints of earlier versions
                self._first.restore(state["first"])
        except (ValueError, KeyError, TypeError) as error:
            self._gate = PublicationGate(tick_ms=self._tick_ms)
            self._log.warning("publication_gate_begins_anew", reason=str(error))
        self._say(self._gate.since_tick, self._gate.held)


def _is_wrong(found: Held | Unearned | None) -> bool:
    """Whether it is no mere lack of examples."""
    return isinstance(found, Held) or (found is not None and found.is_wrong)
