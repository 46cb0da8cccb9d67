"""The state that the records of the control topic add up to: aliases, pauses, pins, decisions, gates, rewinds.

Of publications, pins, gates and rewinds the last record counts; a decision has one record. Two writers may each add a
change to an alias without knowing of the other's, and none may undo the other's. So records of an alias are merged: the
history has every change that any record names, and the alias points where the change points that came last into the
log. A writer reads on after it has written; if the last record is not what all of them add up to, it writes that
(`roles/control/topic.py`). So the topic says the same after compaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stream_learner.core.control.gate_state import GateState
from stream_learner.core.control.records import HISTORY, Accepted, Alias, LogDecision, Pin, Publication, Record, decode
from stream_learner.core.control.rewinds import Rewinds
from stream_learner.core.errors import NOWHERE, RecordError, Where
from stream_learner.core.gate.decisions import Decision, Decisions


def merged(before: Alias | None, record: Alias) -> Alias:
    """An alias after one more record of it was read. `before`: the alias before it, None if it is new."""
    if before is None:
        return record
    known, named = ({change.id for change in alias.history} for alias in (before, record))
    is_next = record.last.id not in known and before.last.id in named
    is_repair = record.last.id == before.last.id and known <= named
    if is_next or is_repair:
        return record
    last = before.last if record.last.id in known else record.last
    every = {change.id: change for change in (*record.history, *before.history) if change.id != last.id}
    ordered = sorted(every.values(), key=lambda change: (change.when_ms, change.id))
    return Alias(record.name, (*ordered, last)[-HISTORY:])


NO_DECISIONS: Final = Decisions()


@dataclass
class ControlState:
    """The state by the records read so far. One thread takes records in; any thread may read.

    unusable: by key, why the last record cannot be used; the record before it still counts, if there was one.
    """

    aliases: dict[str, Alias] = field(default_factory=dict)
    publications: dict[str, Publication] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    rewinds: dict[str, Rewinds] = field(default_factory=dict)
    accepted: dict[str, Accepted] = field(default_factory=dict)
    gates: dict[str, GateState] = field(default_factory=dict)
    decisions: dict[str, Decisions] = field(default_factory=dict)
    """By training log."""
    unusable: dict[bytes, RecordError] = field(default_factory=dict)
    latest: dict[bytes, Record] = field(default_factory=dict)
    """The last record of each key as it was written."""

    def take(self, key: bytes | None, value: bytes | None, where: Where = NOWHERE) -> Record | None:
        """Take in the next record; returns it, None for a deletion. Raises what `decode` raises, and remembers it."""
        found = key or b""
        if value is None:
            self._forget(found)
            return None
        try:
            record = decode(found, value, where)
        except RecordError as error:
            self.unusable[found] = error
            raise
        self.unusable.pop(found, None)
        self.latest[found] = record
        if isinstance(record, Alias):
            self.aliases[record.name] = merged(self.aliases.get(record.name), record)
        elif isinstance(record, Publication):
            self.publications[record.model] = record
        elif isinstance(record, Rewinds):
            self.rewinds[record.model] = record
        elif isinstance(record, Accepted):
            self.accepted[record.model] = record
        elif isinstance(record, Pin):
            self.pins[record.name] = record
        elif isinstance(record, GateState):
            self.gates[record.model] = record
        else:
            self._decide(record.log, [record.decision], without=record.decision.id)
        return record

    def _decide(self, log: str, more: list[Decision], *, without: str) -> None:
        """Change the decisions of a log: all but one, and more. Readers in other threads see those before or after."""
        others = [decision for decision in self.decisions_of(log) if decision.id != without]
        self.decisions[log] = Decisions([*others, *more])

    def _forget(self, key: bytes) -> None:
        self.unusable.pop(key, None)
        record = self.latest.pop(key, None)
        if isinstance(record, Alias):
            del self.aliases[record.name]
        elif isinstance(record, Publication):
            del self.publications[record.model]
        elif isinstance(record, Rewinds):
            del self.rewinds[record.model]
        elif isinstance(record, Accepted):
            del self.accepted[record.model]
        elif isinstance(record, Pin):
            del self.pins[record.name]
        elif isinstance(record, GateState):
            del self.gates[record.model]
        elif isinstance(record, LogDecision):
            self._decide(record.log, [], without=record.decision.id)

    def paused(self, model: str) -> bool:
        """Whether a model's publication is paused."""
        found = self.publications.get(model)
        return found is not None and found.paused

    def pin(self, name: str) -> Pin | None:
        """The pin on an alias or a model, None if it has none."""
        found = self.pins.get(name)
        return found if found is not None and found.pinned else None

    def decisions_of(self, log: str) -> Decisions:
        """The decisions on a training log."""
        return self.decisions.get(log, NO_DECISIONS)

    def late_on(self, log: str, model: str) -> frozenset[str]:
        """The decisions on a training log that are too late for a model that is learned from it, by id.

        They are those that its own learner has found so, and those that the learner of the model which the log is named
        after has: another fold of the log may begin after such a decision, and must come to the same model.
        """
        said = [self.gates[name] for name in {model, log.removesuffix(".examples")} if name in self.gates]
        return frozenset(late for gate in said if gate.log == log for late in gate.late)

    def current(self, key: bytes) -> Record | None:
        """The record that all records of a key add up to, None if it has none."""
        record = self.latest.get(key)
        return self.aliases[record.name] if isinstance(record, Alias) else record
