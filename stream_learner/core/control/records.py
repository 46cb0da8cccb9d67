"""The records of the control topic: aliases, pauses, pins, decisions on logs, what learners hold, rewinds.

A record that cannot be read is an error, never taken for one that says nothing.

The topic is compacted and has one partition. Keys are text, values are JSON objects in UTF-8; a null value deletes.

    key                  value, besides `format` (1), `who` (text), `when_ms` (epoch ms) and `note` (text)
    alias/<alias>        alias; model: what it points at, null once deleted; previous: what a rollback would point it
                         at, or null; from: the model before; forced; history: the last 20 changes, oldest first;
                         who, when_ms, from, forced and note are those of the last change
    publication/<model>  model; paused: whether its learner must not publish
    pin/<name>           name: an alias or a model; model: the one that is pinned; pinned; version: the last version
                         to be served, null for the one served when the pin arrives
    decision/<log>/<id>  log: the training log; id: 16 hexadecimal digits; what: accept or skip; from_tick, to_tick: the
                         ticks it is about; note: why. Written by an operator, once, and never changed
    gate/<model>         model; log; policy: hold or warn; holding: null, or an object with tick (the one that is held),
                         since_tick, bound, slice, found, expected, low and high; late: the ids of decisions that came
                         when their first tick was folded already; publication, where a model is held before it: tick
                         (since when; -1 from the start), bound and reason. Written by the learner that leads; who is
                         its host
    rewind/<model>       model; history: all rewinds, oldest first, each with to_tick, from_tick, who, when_ms, note
    publish/<model>      model; version: the one that scorers have, beyond which the learner may publish what it holds

A change in a history has id (16 hexadecimal digits, another for each change), what (promote, rollback or delete),
who, when_ms, from, to, forced and note.

Compaction keeps the last record of a key, so an alias's record holds its history. `core/control/state.py` says what
several records of a key add up to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import orjson

from stream_learner.core.control.gate_state import GateState, HeldPublication, Holding
from stream_learner.core.control.rewinds import Rewind, Rewinds
from stream_learner.core.errors import NOWHERE, DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where
from stream_learner.core.gate.decisions import Decision

FORMAT: Final = 1
HISTORY: Final = 20
"""So many changes are kept in the record of an alias, the last ones."""
PROMOTE, ROLLBACK, DELETE = "promote", "rollback", "delete"

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}\Z")
_LOG = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_ID = re.compile(r"[0-9a-f]{16}\Z")
_NUMBERS = ("found", "expected", "low", "high")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an alias, from a model (None: it was new, or deleted) to another (None: it is deleted).

    id: 16 hexadecimal digits that no other change has. what: PROMOTE, ROLLBACK or DELETE.
    """

    id: str
    what: str
    who: str
    when_ms: int
    from_model: str | None
    to_model: str | None
    forced: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias with its last changes, oldest first; there is at least one."""

    name: str
    history: tuple[Change, ...]

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return b"alias/" + self.name.encode()

    @property
    def last(self) -> Change:
        """The last change: it says what the alias points at."""
        return self.history[-1]

    @property
    def model(self) -> str | None:
        """The model that it points at, None once it is deleted."""
        return self.last.to_model

    @property
    def previous(self) -> str | None:
        """The model before this one, leaving out rollbacks and what they undid; None if not known."""
        models = _without_rollbacks(self.history)
        return models[-2] if len(models) > 1 else None

    def changed(self, change: Change) -> Alias:
        """The alias after one more change."""
        return Alias(self.name, (*self.history, change)[-HISTORY:])


@dataclass(frozen=True, slots=True)
class Publication:
    """A pause of a model's publications, or its end."""

    model: str
    paused: bool
    who: str
    when_ms: int
    note: str = ""

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return b"publication/" + self.model.encode()


@dataclass(frozen=True, slots=True)
class Pin:
    """The last version of `model` that scorers serve which follow `name`, an alias or a model.

    version: a tick; None for the version that each scorer serves when the pin reaches it.
    """

    name: str
    model: str
    pinned: bool
    version: int | None
    who: str
    when_ms: int
    note: str = ""

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return b"pin/" + self.name.encode()


@dataclass(frozen=True, slots=True)
class LogDecision:
    """An operator's decision on a span of ticks of a training log."""

    log: str
    decision: Decision

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"decision/{self.log}/{self.decision.id}".encode()


@dataclass(frozen=True, slots=True)
class Accepted:
    """An operator's word that a model which is held before its publication may be published.

    version: the one that scorers have while it is held.
    """

    model: str
    version: int
    who: str
    when_ms: int
    note: str = ""

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return b"publish/" + self.model.encode()


Record: TypeAlias = Alias | Publication | Pin | LogDecision | GateState | Rewinds | Accepted


def encode(record: Record) -> bytes:
    """The value of a record. Raises ValueError for a name that `decode` would refuse."""
    if isinstance(record, Alias):
        if not record.history:
            raise ValueError("its history is empty")
        fields = _alias_fields(record)
    elif isinstance(record, LogDecision):
        fields = _decision_fields(record)
    else:
        fields = asdict(record)
        if isinstance(record, GateState) and record.publication is None:
            del fields["publication"]  # as records were before there was this field
    value = orjson.dumps({"format": FORMAT, **fields})
    try:
        decode(record.key, value)
    except RecordError as error:
        raise ValueError(error.what) from error
    return value


def decode(key: bytes, value: bytes, where: Where = NOWHERE) -> Record:
    """The record with this key and value. Raises ForeignRecord, NewerVersion, DamagedRecord."""
    kind = key.decode("utf-8", "replace").partition("/")[0]
    fields = _fields(key, value, where)
    if kind not in _DECODERS:
        raise ForeignRecord(
            f"the key {key!r} is none of alias/, publication/, pin/, decision/, gate/, rewind/ and publish/", where
        )
    try:
        record = _DECODERS[kind](fields)
    except (KeyError, TypeError, ValueError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else f"cannot be read: {error}"
        raise DamagedRecord(f"the record of {key!r} {what}", where) from error
    if record.key != key:
        raise DamagedRecord(f"the record of {key!r} names {name_of(record)!r}", where)
    return record


def is_name(text: str) -> bool:
    """Whether a model or an alias may have this name."""
    return _NAME.match(text) is not None


def name_of(record: Record) -> str:
    """The alias, model or training log that a record is about."""
    if isinstance(record, LogDecision):
        return record.log
    return record.model if isinstance(record, Publication | GateState | Rewinds | Accepted) else record.name


def _without_rollbacks(history: tuple[Change, ...]) -> list[str]:
    """The models that an alias pointed at, without those that a rollback left; the last one is the current model."""
    first = history[0].from_model
    models = [first] if first is not None else []
    for change in history:
        if change.to_model is None:
            models = []
        elif change.what == ROLLBACK and change.to_model in models:
            last = len(models) - 1 - models[::-1].index(change.to_model)
            models = models[: last + 1]
        else:
            models.append(change.to_model)
    return models


def _alias_fields(alias: Alias) -> dict[str, Any]:
    last = alias.last
    return {
        "alias": alias.name,
        "model": last.to_model,
        "previous": alias.previous,
        "who": last.who,
        "when_ms": last.when_ms,
        "from": last.from_model,
        "forced": last.forced,
        "note": last.note,
        "history": [
            {
                "id": change.id,
                "what": change.what,
                "who": change.who,
                "when_ms": change.when_ms,
                "from": change.from_model,
                "to": change.to_model,
                "forced": change.forced,
                "note": change.note,
            }
            for change in alias.history
        ],
    }


def _decision_fields(record: LogDecision) -> dict[str, Any]:
    decision = record.decision
    return {
        "log": record.log,
        "id": decision.id,
        "what": decision.what,
        "from_tick": decision.from_tick,
        "to_tick": decision.to_tick,
        "who": decision.who,
        "when_ms": decision.when_ms,
        "note": decision.why,
    }


def _fields(key: bytes, value: bytes, where: Where) -> Mapping[str, Any]:
    """The JSON object of a value. Raises ForeignRecord, and NewerVersion for a format that is not known here."""
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ForeignRecord(f"the record of {key!r} is not JSON", where) from error
    found = fields.get("format") if isinstance(fields, dict) else None
    if type(found) is not int or found < 1:
        raise ForeignRecord(f"the record of {key!r} is no JSON object with a format", where)
    if found > FORMAT:
        raise NewerVersion(f"the record of {key!r} has format {found}, this program knows {FORMAT}", where)
    return dict(fields)


def _alias(fields: Mapping[str, Any]) -> Alias:
    history = tuple(_change(change) for change in _checked("history", fields["history"], list))
    if not history:
        raise ValueError("its history is empty")
    alias = Alias(_name("alias", fields["alias"]), history[-HISTORY:])
    if fields["model"] != alias.model:
        raise ValueError(f"it points at {fields['model']}, its last change at {alias.model}")
    return alias


def _change(fields: Mapping[str, Any]) -> Change:
    identity, what = fields["id"], fields["what"]
    if not isinstance(identity, str) or not _ID.match(identity):
        raise ValueError(f"id is {identity!r}, not 16 hexadecimal digits")
    if what not in (PROMOTE, ROLLBACK, DELETE):
        raise ValueError(f"what is {what!r}")
    if (what == DELETE) != (fields["to"] is None):
        raise ValueError(f"a change that is a {what} goes to {fields['to']!r}")
    return Change(
        id=identity,
        what=what,
        from_model=_name("from", fields["from"]) if fields["from"] is not None else None,
        to_model=_name("to", fields["to"]) if fields["to"] is not None else None,
        forced=_checked("forced", fields["forced"], bool),
        **_signed(fields),
    )


def _publication(fields: Mapping[str, Any]) -> Publication:
    paused = _checked("paused", fields["paused"], bool)
    return Publication(_name("model", fields["model"]), paused, **_signed(fields))


def _pin(fields: Mapping[str, Any]) -> Pin:
    version = fields["version"]
    if version is not None and (_checked("version", version, int) < 0):
        raise ValueError(f"version is {version}")
    return Pin(
        name=_name("name", fields["name"]),
        model=_name("model", fields["model"]),
        pinned=_checked("pinned", fields["pinned"], bool),
        version=version,
        **_signed(fields),
    )


def _decision(fields: Mapping[str, Any]) -> LogDecision:
    signed = _signed(fields)
    decision = Decision(
        id=_checked("id", fields["id"], str),
        what=_checked("what", fields["what"], str),
        from_tick=_checked("from_tick", fields["from_tick"], int),
        to_tick=_checked("to_tick", fields["to_tick"], int),
        who=signed["who"],
        when_ms=signed["when_ms"],
        why=signed["note"],
    )
    return LogDecision(_log("log", fields["log"]), decision)


def _gate(fields: Mapping[str, Any]) -> GateState:
    policy = _checked("policy", fields["policy"], str)
    holding, late = fields["holding"], _checked("late", fields["late"], list)
    publication = fields.get("publication")
    if not all(isinstance(one, str) and _ID.match(one) for one in late):
        raise ValueError(f"late is {late!r}")
    return GateState(
        model=_name("model", fields["model"]),
        log=_log("log", fields["log"]),
        policy=policy,
        holding=None if holding is None else _holding(_checked("holding", holding, dict)),
        late=tuple(late),
        publication=None if publication is None else _held_publication(_checked("publication", publication, dict)),
        **_signed(fields),
    )


def _holding(fields: Mapping[str, Any]) -> Holding:
    numbers = {name: fields[name] for name in _NUMBERS}
    for name, value in numbers.items():
        if value is not None and type(value) not in (int, float):
            raise ValueError(f"{name} is {value!r}")
    return Holding(
        tick=_tick("tick", fields["tick"]),
        since_tick=_checked("since_tick", fields["since_tick"], int),
        bound=_checked("bound", fields["bound"], str),
        slice=_checked("slice", fields["slice"], str),
        **{name: None if value is None else float(value) for name, value in numbers.items()},
    )


def _held_publication(fields: Mapping[str, Any]) -> HeldPublication:
    return HeldPublication(
        tick=_checked("tick", fields["tick"], int),
        bound=_checked("bound", fields["bound"], str),
        reason=_checked("reason", fields["reason"], str),
    )


def _tick(field_name: str, value: Any) -> int:
    if _checked(field_name, value, int) < 0:
        raise ValueError(f"{field_name} is {value}")
    return int(value)


def _log(field_name: str, value: Any) -> str:
    if not isinstance(value, str) or not _LOG.match(value):
        raise ValueError(f"{field_name} is {value!r}, which is no name of a topic")
    return value


def _rewinds(fields: Mapping[str, Any]) -> Rewinds:
    history = tuple(_rewind(one) for one in _checked("history", fields["history"], list))
    if not history:
        raise ValueError("its history is empty")
    return Rewinds(_name("model", fields["model"]), history)


def _accepted(fields: Mapping[str, Any]) -> Accepted:
    version = _checked("version", fields["version"], int)
    if version < -1:
        raise ValueError(f"version is {version}")
    return Accepted(_name("model", fields["model"]), version, **_signed(fields))


def _rewind(fields: Mapping[str, Any]) -> Rewind:
    to_tick, from_tick = (_checked(name, fields[name], int) for name in ("to_tick", "from_tick"))
    if not -1 <= to_tick <= from_tick:
        raise ValueError(f"it goes from tick {from_tick} back to {to_tick}")
    return Rewind(to_tick, from_tick, **_signed(fields))


def _signed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say who wrote a record or made a change, when and why."""
    return {
        "who": _checked("who", fields["who"], str),
        "when_ms": _checked("when_ms", fields["when_ms"], int),
        "note": _checked("note", fields["note"], str),
    }


def _name(field_name: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise ValueError(f"{field_name} is {value!r}, which is no name of a model")
    return value


def _checked(field_name: str, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{field_name} is {value!r}")
    return value


_DECODERS: dict[str, Callable[[Mapping[str, Any]], Record]] = {
    "alias": _alias,
    "publication": _publication,
    "pin": _pin,
    "decision": _decision,
    "gate": _gate,
    "rewind": _rewinds,
    "publish": _accepted,
}
