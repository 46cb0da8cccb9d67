"""Which model a scorer serves: the one named, or the one that an alias or a pin says; exchanged without a gap.

In: the control topic's state, a pin from the program. Out: the replica that is served.
This file must never leave a model that is served for one that is not complete and fresh.

1. Load the model that is wanted beside the one served, in a replica of its own.
2. When that one is complete and fresh, put it in the place of the other: one reference, so that a call that has begun
   ends with the model it began with.
3. Stop following the old one; its memory goes with the last call that uses it.

Nothing is exchanged while a pin holds: the pin's model is the one that is wanted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.control.records import Pin
from stream_learner.core.control.state import ControlState
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.scorer.replica import ModelReplica

AGAIN_S = 5.0
"""How long it waits before it tries again to load a model that could not be begun with."""
LOADING_S = 60.0
"""A model that takes longer to become ready is a matter for the log."""


class ServedModel:
    """What is served, and what is to be. `current` and `pending` may be read from any thread, and never wait."""

    def __init__(
        self,
        name: str,
        *,
        is_alias: bool,
        make: Callable[[str], ModelReplica],
        on_served: Callable[[ModelReplica, ModelReplica | None], None],
        log: Logger,
    ) -> None:
        """make: a replica of a model, not started; may raise StreamLearnerError. on_served: called with the replica
        that is served from now on, and the one before."""
        self._name = name
        self._is_alias = is_alias
        self._make = make
        self._on_served = on_served
        self._log = log
        self.current: ModelReplica | None = None
        self.pending = ""
        """Why what the alias points at is not served, "" if it is."""
        self._next: ModelReplica | None = None
        self._next_since_s = 0.0
        self._again_s = 0.0
        self._refused = ("", "")
        self._said = ""
        self._pinned_here = False
        self._closed = False
        self._left: list[ModelReplica] = []
        self._changing = threading.RLock()
        """Held while models are exchanged or pinned; never where it is predicted."""

    def begin(self, replica: ModelReplica) -> None:
        """Serve a model from the start, whatever becomes of it."""
        with self._changing:
            self._serve(replica)
        replica.start()

    def obey(self, state: ControlState, *, is_read: bool) -> None:
        """Do what the control topic says, as far as it can be done now. is_read: whether `state` is all it says."""
        with self._changing:
            if not self._closed:
                pin = self._pin_of(state)
                self._excuse(state, pin)
                if self._is_alias and is_read and not self._pinned_here:
                    self.pending = self._exchange(state, pin)
                self._apply(pin)
            if self._closed:
                self._leave_all()
            left, self._left = self._left, []
        # Outside, since a reader's thread that is waited for may itself be waiting to change something.
        for replica in left:
            replica.stop()

    def pin(self, version: int | None) -> None:
        """Hold what is served, as `ModelReplica.pin`; wins over the control topic. Nothing where nothing is served."""
        with self._changing:
            if self.current is not None:
                self.current.pin(version)
                self._pinned_here = True

    def unpin(self) -> None:
        """Go by the control topic again."""
        with self._changing:
            self._pinned_here = False
            current = self.current
            if current is not None and current.pinned is not None:
                current.pin(current.pinned.version)
            elif current is not None:
                current.unpin()

    def close(self) -> None:
        """Stop following; what is served goes on being served."""
        self._closed = True
        for replica in (self._next, self.current):
            if replica is not None:
                replica.stop()

    def _leave_all(self) -> None:
        """Closed in the middle of an exchange: what it has begun with is not followed either."""
        self._drop_next()
        if self.current is not None:
            self._left.append(self.current)

    def _pin_of(self, state: ControlState) -> Pin | None:
        """The pin that is meant for us. One of an alias of the same name as a model is not meant for the model."""
        pin = state.pin(self._name)
        return pin if pin is not None and (self._is_alias or pin.model == self._name) else None

    def _exchange(self, state: ControlState, pin: Pin | None) -> str:
        """Steps 1 to 3, as far as they can be taken now; why what the alias points at is not served, "" if it is."""
        alias, trouble = state.aliases.get(self._name), state.unusable.get(b"alias/" + self._name.encode())
        points_at = alias.model if alias is not None else None
        wanted = pin.model if pin is not None else points_at
        waiting = ""
        if wanted is None or (self.current is not None and self.current.model == wanted):
            self._drop_next()
        else:
            waiting = self._go_to(wanted, pin)
        if trouble is not None:
            return self._say(f"the record of alias {self._name} cannot be used: {trouble}")
        if alias is None and pin is None:
            return f"alias {self._name} points at no model; `stream-learner promote` makes it"
        if alias is not None and points_at is None:
            return self._say(f"alias {self._name} was deleted")
        if not waiting and points_at is not None and wanted != points_at:
            return f"{points_at}: alias {self._name} is pinned to {wanted}"
        self._said = self._said if waiting else ""
        return waiting

    def _go_to(self, wanted: str, pin: Pin | None) -> str:
        """Steps 1 to 3 towards a model; what it waits for, "" once that is served."""
        # Step 1: load it beside the one served.
        if self._next is None or self._next.model != wanted:
            self._drop_next()
            waiting = self._load(wanted, pin)
            if waiting:
                return waiting
        following, before = self._next, self.current
        assert following is not None
        if before is not None and following.why_not_current:
            return self._wait_for(following)
        # Step 2: one reference.
        self._next = None
        self._serve(following)
        # Step 3: the old one is not followed any more.
        if before is not None:
            self._log.info("model_switched", to=wanted, version=following.replica.version, before=before.model)
            self._left.append(before)
        return ""

    def _load(self, model: str, pin: Pin | None) -> str:
        """Begin to load a model; why that cannot be done now, "" if it is done."""
        refused, reason = self._refused
        if refused == model and time.monotonic() < self._again_s:
            return reason
        try:
            replica = self._make(model)
        except StreamLearnerError as error:
            return self._refuse(model, error)
        self._refused = ("", "")
        self._next, self._next_since_s = replica, time.monotonic()
        self._apply(pin)
        replica.start()
        return ""

    def _wait_for(self, following: ModelReplica) -> str:
        if following.failure is not None:
            self._drop_next()
            return self._refuse(following.model, following.failure)
        reason = f"{following.model}: {following.why_not_current}"
        slow = time.monotonic() - self._next_since_s > LOADING_S and not self._said
        return self._say(reason) if slow else reason

    def _refuse(self, model: str, error: StreamLearnerError) -> str:
        self._again_s = time.monotonic() + AGAIN_S
        reason = f"{model}: {error}"
        self._refused = (model, reason)
        return self._say(reason, action=error.action)

    def _say(self, reason: str, **fields: str) -> str:
        """Log once why what is wanted is not served."""
        if reason != self._said:
            serving = self.current.model if self.current is not None else None
            self._log.warning("switch_pending", reason=reason, serving=serving, **fields)
            self._said = reason
        return reason

    def _serve(self, replica: ModelReplica) -> None:
        before, self.current = self.current, replica
        self._on_served(replica, before)

    def _drop_next(self) -> None:
        if self._next is not None:
            self._left.append(self._next)
            self._next = None

    def _apply(self, pin: Pin | None) -> None:
        """Pin or unpin the replicas, where the control topic says otherwise than before."""
        for replica in (self.current, self._next):
            wanted = pin if replica is not None and pin is not None and pin.model == replica.model else None
            if replica is None or replica.pinned == wanted:
                continue
            replica.pinned = wanted
            if self._pinned_here and replica is self.current:
                continue
            if wanted is None:
                replica.unpin()
                self._log.info("unpinned", served_model=replica.model)
                continue
            replica.pin(wanted.version)
            served = replica.replica.version
            say = self._log.warning if wanted.version is not None and served > wanted.version else self._log.info
            say("pinned", served_model=replica.model, version=wanted.version, served=served, who=wanted.who)

    def _excuse(self, state: ControlState, pin: Pin | None) -> None:
        """A model that is paused or pinned is not stale."""
        if self.current is not None and (pin or self._pinned_here or state.paused(self.current.model)):
            self.current.excuse()
