"""The records of the control topic: which model an alias points at, what is paused, what is pinned.

A record that cannot be read is an error, never taken for one that says nothing.

The topic is compacted and has one partition. Keys are text, values are JSON objects in UTF-8; a null value deletes.

    key                  value, besides `format` (1), `who` (text), `when_ms` (epoch ms) and `note` (text)
    alias/<alias>        alias; model: what it points at, null once deleted; previous: what a rollback would point it
                         at, or null; from: the model before; forced; history: the last 20 changes, oldest first;
                         who, when_ms, from, forced and note are those of the last change
    publication/<model>  model; paused: whether its learner must not publish
    pin/<name>           name: an alias or a model; model: the one that is pinned; pinned; version: the last version
                         to be served, null for the one served when the pin arrives

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

from stream_learner.core.errors import NOWHERE, DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where

FORMAT: Final = 1
HISTORY: Final = 20
"""So many changes are kept in the record of an alias, the last ones."""
PROMOTE, ROLLBACK, DELETE = "promote", "rollback", "delete"

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}\Z")
_ID = re.compile(r"[0-9a-f]{16}\Z")


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


Record: TypeAlias = Alias | Publication | Pin


def encode(record: Record) -> bytes:
    """The value of a record. Raises ValueError for a name that `decode` would refuse."""
    if isinstance(record, Alias):
        if not record.history:
            raise ValueError("its history is empty")
        fields = _alias_fields(record)
    else:
        fields = asdict(record)
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
        raise ForeignRecord(f"the key {key!r} is none of alias/, publication/ and pin/", where)
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
    """The alias or model that a record is about."""
    return record.model if isinstance(record, Publication) else record.name


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
}
