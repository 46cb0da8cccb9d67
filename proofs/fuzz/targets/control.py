"""Records of the control topic: an accepted record must agree with the documented layout, and encode to the same
bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import json_bytes_mutated, mutated
from proofs.fuzz.target import Target, Wrong, pack, unpack
from stream_learner.core.control.records import Alias, Publication, Record, decode, encode
from stream_learner.core.control.state import ControlState
from stream_learner.core.errors import RecordError

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")
_SIGNED = {"who": str, "when_ms": int, "note": str}


class ControlRecords(Target):
    """Aliases, publications, pins: one record, and all of a batch into one state."""

    name = "control"
    batch_inputs = 200

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._pairs = [tuple(unpack(data)[:2]) for data in corpus]

    def make(self, rng: Random) -> bytes:
        key, value = rng.choice(self._pairs)
        kind = rng.random()
        if kind < 0.7:
            value = json_bytes_mutated(rng, value)
        if kind > 0.6:
            value = mutated(rng, value, [other for _, other in self._pairs])
        if rng.random() < 0.1:
            key = mutated(rng, key, [other for other, _ in self._pairs])
        return pack((key, value))

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        state, accepted = ControlState(), 0
        for data in inputs:
            key, value = [*unpack(data), b"", b""][:2]
            try:
                record = decode(key, value)
            except RecordError:
                record = None
            self._take(state, key, value, record)
            if record is not None:
                accepted += 1
                self._check(key, value, record)
        return accepted

    def _check(self, key: bytes, value: bytes, record: Record) -> None:
        trouble = _broken(key, json.loads(value))
        if trouble:
            raise Wrong(f"{key!r}, {value[:300]!r} was taken: {trouble}")
        if decode(key, encode(record)) != record:
            raise Wrong(f"{key!r}, {value[:300]!r} is another record once it is written again")

    def _take(self, state: ControlState, key: bytes, value: bytes, record: Record | None) -> None:
        try:
            state.take(key, value)
        except RecordError:
            if record is not None:
                raise Wrong(f"{key!r}, {value[:300]!r} is refused by the state only") from None
            return
        found = state.current(key)
        if record is None or found is None or (not isinstance(record, Alias) and found != record):
            raise Wrong(f"{key!r}, {value[:300]!r}: the state holds {found}")
        if isinstance(record, Publication) and state.paused(record.model) != record.paused:
            raise Wrong(f"{key!r}: paused is {state.paused(record.model)}")


def _broken(key: bytes, fields: dict[str, Any]) -> str:
    """The part of the documented layout that a record breaks."""
    kind, _, name = key.decode().partition("/")
    own = {"alias": "alias", "publication": "model", "pin": "name"}[kind]
    if type(fields["format"]) is not int or fields["format"] != 1 or fields[own] != name or not _NAME.fullmatch(name):
        return "format or name"
    if kind == "alias":
        return _broken_history(fields)
    flag = "paused" if kind == "publication" else "pinned"
    if type(fields[flag]) is not bool or any(type(fields[word]) is not of for word, of in _SIGNED.items()):
        return "a type"
    version = fields.get("version")
    if kind == "pin" and not (_NAME.fullmatch(fields["model"]) and (version is None or version >= 0)):
        return "model or version"
    return ""


def _broken_history(fields: dict[str, Any]) -> str:
    for change in fields["history"]:
        if any(type(change[word]) is not of for word, of in (*_SIGNED.items(), ("forced", bool))):
            return "a type in a change"
        if not re.fullmatch("[0-9a-f]{16}", change["id"]) or change["what"] not in ("promote", "rollback", "delete"):
            return "id or what of a change"
        if any(change[end] is not None and not _NAME.fullmatch(change[end]) for end in ("from", "to")):
            return "a name in a change"
    return "" if fields["history"] and fields["history"][-1]["to"] == fields["model"] else "model and history differ"
