"""Writes into the control topic what the gate of a model says, whenever that changes, for `stream-learner gate status`.

The learner goes on whether it is written or not. Only the learner that leads writes: all that follow hold at the same
tick.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import Appender, KafkaSettings
from stream_learner.core.control.gate_state import GateState, HeldPublication, Holding
from stream_learner.core.control.records import encode
from stream_learner.errors import NotAuthorised, StreamLearnerError
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.topic import PARTITION

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.roles.control.watch import ControlWatch
    from stream_learner.roles.learner.gate import ModelGate
    from stream_learner.roles.learner.publication_gate import ModelPublicationGate

CLOSE_S = 1.0
Content = tuple[str, str, Holding | None, tuple[str, ...], HeldPublication | None]


class GateStateWriter:
    """The record of one model. Used by the learner's thread; no call waits for a broker but `close`."""

    def __init__(
        self,
        settings: KafkaSettings,
        model: str,
        training_log: str,
        gate: ModelGate,
        publications: ModelPublicationGate,
        control: ControlWatch,
        log: Logger,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings, self._model, self._training_log = settings, model, training_log
        self._gate, self._publications = gate, publications
        self._control, self._log, self._clock_ms = control, log, clock_ms
        self._who = f"learner@{socket.gethostname()}"
        self._written: Content | None = None
        self._seen = False
        """Whether the record was found in the topic since it was written."""
        self._appender: Appender | None = None
        self._refused = False

    def turn(self, *, leads: bool) -> None:
        """Write what has changed since the last record, if this learner leads. To be called about once a second."""
        if self._appender is not None:
            self._look_at(self._appender)
        if not leads or self._refused or self._control.problem is not None or not self._control.is_read:
            # Without a topic there is nothing to write to: appending might make one, with the brokers' settings.
            self._written = None
            return
        if self._is_deleted():
            self._written = None
        content = self._content()
        if self._written is None:
            self._written = self._known()
        if content != self._written:
            self._append(content)

    def _is_deleted(self) -> bool:
        """Whether somebody has deleted the record since it was found in the topic."""
        is_there = self._model in self._control.state.gates
        was_there, self._seen = self._seen, is_there
        return was_there and not is_there

    def _content(self) -> Content:
        gate = self._gate
        return self._training_log, gate.policy, gate.holding, gate.late, self._publications.holding

    def _known(self) -> Content:
        """The gate's state in the topic; a model that has no record holds nothing."""
        found = self._control.state.gates.get(self._model)
        if found is None:
            return self._training_log, self._gate.policy, None, (), None
        return found.log, found.policy, found.holding, found.late, found.publication

    def _append(self, content: Content) -> None:
        log, policy, holding, late, publication = content
        note = self._gate.message if holding is not None else ""
        record = GateState(self._model, log, policy, holding, late, self._who, self._clock_ms(), note, publication)
        try:
            self._appender = self._appender or Appender(self._settings, name="gate")
            self._appender.append(self._control.topic, PARTITION, encode(record), key=record.key)
        except StreamLearnerError as error:
            self._failed(error)
            return
        self._written = content

    def _look_at(self, appender: Appender) -> None:
        try:
            for delivery in appender.poll():
                if delivery.error is not None:
                    raise delivery.error
        except StreamLearnerError as error:
            self._failed(error)

    def _failed(self, error: StreamLearnerError) -> None:
        """Begin anew with another producer at the next turn; without the right to write, never again."""
        self._written = None
        self._drop()
        if isinstance(error, NotAuthorised):
            self._refused = True
            self._log.warning("gate_state_not_written", reason=str(error), action=error.action)

    def _drop(self, timeout_s: float = 0.0) -> None:
        appender, self._appender = self._appender, None
        if appender is not None:
            appender.close(timeout_s)

    def close(self) -> None:
        """Let go of the producer; what is on its way has a second."""
        self._drop(CLOSE_S)
