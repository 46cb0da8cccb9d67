"""Chooses the model that a scorer serves, by name, alias or pin, and exchanges it without a gap.

A model that is served is never left for one that is not complete and fresh.

1. Load the model that is wanted beside the one served, in a replica of its own.
2. When that one is complete and fresh, put it in the place of the other: one reference, so that a call that has begun
   ends with the model it began with.
3. Stop following the old one; its memory goes with the last call that uses it.

Nothing is exchanged while a pin holds: the pin's model is the one that is wanted. The package's docstring has these
steps as a table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.control.records import Pin
from stream_learner.core.control.state import ControlState
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.scorer.replica import ModelReplica

AGAIN_S = 5.0
"""Time between two attempts to load a model that could not be loaded."""
LOADING_S = 60.0
"""A model that loads for longer than this is named in the log."""


class _Loading(NamedTuple):
    """The model that is loaded beside the one served, and since when."""

    replica: ModelReplica
    since_s: float


class _Refusal(NamedTuple):
    """A model that could not be loaded, why, and when it is tried again."""

    model: str
    reason: str
    again_s: float


class ServedModel:
    """The model that is served and the one that is loaded. `current` and `pending` may be read from any thread."""

    def __init__(
        self,
        name: str,
        *,
        is_alias: bool,
        make: Callable[[str], ModelReplica],
        on_served: Callable[[ModelReplica, ModelReplica | None], None],
        log: Logger,
    ) -> None:
        """make: makes a replica of a model, not started; may raise StreamLearnerError. on_served: is called with the
        replica that is served from now on, and the one before."""
        self._name = name
        self._is_alias = is_alias
        self._make = make
        self._on_served = on_served
        self._log = log
        self.current: ModelReplica | None = None
        self.pending = ""
        """The reason why the model that the alias points at is not served, "" if it is."""
        self._loading: _Loading | None = None
        self._refusal: _Refusal | None = None
        self._logged = ""
        self._pinned_by_program = False
        self._closed = False
        self._to_stop: list[ModelReplica] = []
        self._changing = threading.RLock()
        """Held while models are exchanged or pinned, never by a thread that predicts."""

    def begin(self, replica: ModelReplica) -> None:
        """Serve a replica from the start, complete or not."""
        with self._changing:
            self._serve(replica)
        replica.start()

    def obey(self, state: ControlState, *, is_read: bool) -> None:
        """Do what the control topic says, as far as it can be done now. is_read: whether `state` is all it says."""
        with self._changing:
            if not self._closed:
                pin = self._pin_of(state)
                self._excuse(state, pin)
                if self._is_alias and is_read and not self._pinned_by_program:
                    self.pending = self._exchange(state, pin)
                self._apply(pin)
            if self._closed:
                self._stop_all()
            to_stop, self._to_stop = self._to_stop, []
        # Without the lock: `stop` waits for a reader's thread, which may itself wait for the lock.
        for replica in to_stop:
            replica.stop()

    def pin(self, version: int | None) -> None:
        """Hold the model served, as `ModelReplica.pin`; wins over the control topic. Does nothing if none is served."""
        with self._changing:
            if self.current is not None:
                self.current.pin(version)
                self._pinned_by_program = True

    def unpin(self) -> None:
        """Go by the control topic again."""
        with self._changing:
            self._pinned_by_program = False
            current = self.current
            if current is not None and current.pinned is not None:
                current.pin(current.pinned.version)
            elif current is not None:
                current.unpin()

    def close(self) -> None:
        """Stop following. The model served goes on being served."""
        self._closed = True
        for replica in (self._loading.replica if self._loading is not None else None, self.current):
            if replica is not None:
                replica.stop()

    def _stop_all(self) -> None:
        """`close` was called during an exchange: stop what the exchange has begun with, too."""
        self._stop_loading()
        if self.current is not None:
            self._to_stop.append(self.current)

    def _pin_of(self, state: ControlState) -> Pin | None:
        """The pin of this name. If the name is a model's, a pin of an alias of that name does not count."""
        pin = state.pin(self._name)
        return pin if pin is not None and (self._is_alias or pin.model == self._name) else None

    def _exchange(self, state: ControlState, pin: Pin | None) -> str:
        """Take steps 1 to 3 as far as possible; returns why the alias's model is not served, "" if it is."""
        alias, trouble = state.aliases.get(self._name), state.unusable.get(b"alias/" + self._name.encode())
        points_at = alias.model if alias is not None else None
        wanted = pin.model if pin is not None else points_at
        waiting = ""
        if wanted is None or (self.current is not None and self.current.model == wanted):
            self._stop_loading()
        else:
            waiting = self._go_to(wanted, pin)
        if trouble is not None:
            return self._warn(f"the record of alias {self._name} cannot be used: {trouble}")
        if alias is None and pin is None:
            return f"alias {self._name} points at no model; `stream-learner promote` makes it"
        if alias is not None and points_at is None:
            return self._warn(f"alias {self._name} was deleted")
        if not waiting and points_at is not None and wanted != points_at:
            return f"{points_at}: alias {self._name} is pinned to {wanted}"
        self._logged = self._logged if waiting else ""
        return waiting

    def _go_to(self, wanted: str, pin: Pin | None) -> str:
        """Take steps 1 to 3 towards a model; returns what it waits for, "" once the model is served."""
        # Step 1: load it beside the one served.
        if self._loading is None or self._loading.replica.model != wanted:
            self._stop_loading()
            waiting = self._load(wanted, pin)
            if waiting:
                return waiting
        loading, before = self._loading, self.current
        assert loading is not None
        if before is not None and loading.replica.why_not_current:
            return self._wait_for(loading)
        # Step 2: one reference.
        self._loading = None
        self._serve(loading.replica)
        # Step 3: the old one is not followed any more.
        if before is not None:
            version = loading.replica.replica.version
            self._log.info("model_switched", to=wanted, version=version, before=before.model)
            self._to_stop.append(before)
        return ""

    def _load(self, model: str, pin: Pin | None) -> str:
        """Begin to load a model; returns why that cannot be done now, "" if it is done."""
        refusal = self._refusal
        if refusal is not None and refusal.model == model and time.monotonic() < refusal.again_s:
            return refusal.reason
        try:
            replica = self._make(model)
        except StreamLearnerError as error:
            return self._refuse(model, error)
        self._refusal = None
        self._loading = _Loading(replica, time.monotonic())
        self._apply(pin)
        replica.start()
        return ""

    def _wait_for(self, loading: _Loading) -> str:
        replica = loading.replica
        if replica.failure is not None:
            self._stop_loading()
            return self._refuse(replica.model, replica.failure)
        reason = f"{replica.model}: {replica.why_not_current}"
        slow = time.monotonic() - loading.since_s > LOADING_S and not self._logged
        return self._warn(reason) if slow else reason

    def _refuse(self, model: str, error: StreamLearnerError) -> str:
        self._refusal = _Refusal(model, f"{model}: {error}", time.monotonic() + AGAIN_S)
        return self._warn(self._refusal.reason, action=error.action)

    def _warn(self, reason: str, **fields: str) -> str:
        """Log once why the model that is wanted is not served."""
        if reason != self._logged:
            serving = self.current.model if self.current is not None else None
            self._log.warning("switch_pending", reason=reason, serving=serving, **fields)
            self._logged = reason
        return reason

    def _serve(self, replica: ModelReplica) -> None:
        before, self.current = self.current, replica
        self._on_served(replica, before)

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._to_stop.append(self._loading.replica)
            self._loading = None

    def _apply(self, pin: Pin | None) -> None:
        """Pin or unpin the replicas whose pin in the control topic has changed."""
        for replica in (self.current, self._loading.replica if self._loading is not None else None):
            wanted = pin if replica is not None and pin is not None and pin.model == replica.model else None
            if replica is None or replica.pinned == wanted:
                continue
            replica.pinned = wanted
            if self._pinned_by_program and replica is self.current:
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
        if self.current is not None and (pin or self._pinned_by_program or state.paused(self.current.model)):
            self.current.excuse()
