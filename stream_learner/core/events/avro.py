"""Avro records as Python values, by fastavro: all of Avro but schemas that hold themselves.

fastavro asks a function for the value of each logical type. `prepared_schema` gives every type whose value is not that
of JSON a logical type of ours, so that unions too say which of their types a value is of; other logical types go, and
the value of the type below stands: the text of a uuid, the number of a time of day.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.events.schemas import BadSchema, Moment, Read, Schema, decimal_of

Parsed = Any
"""A schema as fastavro has it: a name, a list (a union), or a dictionary."""

OURS = "stream-learner-"
"""What the names of our logical types begin with."""
_EPOCH = date(1970, 1, 1)
_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_KEPT = ("name", "type", "fields", "symbols", "items", "values", "size", "aliases", "default", "scale", "order")


def _date(days: int, *_: Any) -> str | int:
    try:
        return (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError:
        return days


def _decimal(digits: bytes, schema: Any, *_: Any) -> Decimal:
    return decimal_of(digits, int(schema.get("scale", 0)))


_LOGICAL: dict[tuple[str, str], Callable[..., Any]] = {
    ("long", "timestamp-millis"): lambda value, *_: Moment(value * 1000),
    ("long", "timestamp-micros"): lambda value, *_: Moment(value),
    ("long", "timestamp-nanos"): lambda value, *_: Moment(value // 1000),
    ("long", "local-timestamp-millis"): lambda value, *_: Moment(value * 1000),
    ("long", "local-timestamp-micros"): lambda value, *_: Moment(value),
    ("long", "local-timestamp-nanos"): lambda value, *_: Moment(value // 1000),
    ("int", "date"): _date,
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("fixed", "uuid"): lambda value, *_: str(UUID(bytes=value)),
    ("float", "float"): lambda value, *_: np.float32(value),
}
for (_type, _name), _reader in _LOGICAL.items():
    LOGICAL_READERS[f"{_type}-{OURS}{_name}"] = _reader


def avro_reader(schema: Schema, wanted: Schema | None, needed: tuple[str, ...]) -> Read:
    """What reads records that were written by `schema`, as records of `wanted` if that is given.

    needed: paths of fields that records must have. Raises BadSchema.
    """
    written, named = prepared_schema(schema)
    asked, asked_named = (None, named) if wanted is None else prepared_schema(wanted)
    for path in needed:
        if not _has(written if asked is None else asked, path, asked_named):
            raise BadSchema(f"it has no field {path}")

    def read(raw: bytes) -> Any:
        record = io.BytesIO(raw)
        try:
            event = fastavro.schemaless_reader(record, written, asked)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  whatever the library raises over bytes of others
            raise Refused(Reason.NOT_OF_SCHEMA) from None
        if record.tell() != len(raw):
            raise Refused(Reason.NOT_OF_SCHEMA)
        return event

    return read


def prepared_schema(schema: Schema) -> tuple[Parsed, dict[str, Any]]:
    """A schema with the logical types of ours, its references inside it, and its named types. Raises BadSchema."""
    named: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    try:
        for _, reference in schema.references:
            fastavro.parse_schema(json.loads(reference.text), named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named)
        return fastavro.parse_schema(_Preparation(named).of(parsed), inside), inside
    except (SchemaParseException, UnknownType) as error:
        raise BadSchema(f"it is no Avro schema: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, BadSchema):
            raise
        raise BadSchema(f"it is no Avro schema: {type(error).__name__}") from None


class _Preparation:
    """Copies one schema, with what it refers to."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._least: dict[str, int] = {}
        """The fewest bytes of a value, by the name of a type that is complete."""
        self._open: set[str] = set()

    def of(self, schema: Parsed) -> Parsed:
        return self._copied(schema)[0]

    def _copied(self, schema: Parsed) -> tuple[Parsed, int]:
        """The copy, and the fewest bytes that a value takes. Raises BadSchema."""
        if isinstance(schema, list):
            return [self._copied(one)[0] for one in schema], 1
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return self._typed({"type": schema}, schema)
            return self._by_name(schema)
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self._copied(kind)
        if kind not in _PRIMITIVE and kind not in ("record", "error", "enum", "fixed", "array", "map"):
            return self._by_name(kind)
        name = schema.get("name")
        if name in self._least or name in self._open:
            return self._by_name(name)
        if name is not None:
            self._open.add(name)
        made, least = self._typed(schema, kind)
        if name is not None:
            self._open.discard(name)
            self._least[name] = least
        return made, least

    def _by_name(self, name: str) -> tuple[Parsed, int]:
        if name in self._open:
            raise BadSchema(f"{name} holds itself, and a record of it could be nested without end")
        if name in self._least:
            return name, self._least[name]
        return self._copied(self._named[name])

    def _typed(self, schema: Mapping[str, Any], kind: str) -> tuple[Parsed, int]:
        made = {key: schema[key] for key in _KEPT if key in schema}
        logical = "float" if kind == "float" else schema.get("logicalType")
        if (kind, logical) in _LOGICAL and not (logical == "uuid" and schema["size"] != 16):
            made["logicalType"] = f"{OURS}{logical}"
        least = {"null": 0, "float": 4, "double": 8, "fixed": schema.get("size", 1)}.get(kind, 1)
        if kind in ("record", "error"):
            fields = [(field, *self._copied(field["type"])) for field in schema["fields"]]
            made["fields"] = [
                {**{key: field[key] for key in _KEPT if key in field}, "type": inner} for field, inner, _ in fields
            ]
            least = sum(size for _, _, size in fields)
        elif kind in ("array", "map"):
            inside = "items" if kind == "array" else "values"
            made[inside], size = self._copied(schema[inside])
            if kind == "array" and size == 0:
                raise BadSchema("it has an array whose elements take no bytes, so that a few bytes could be any number")
        return made, least


def _has(schema: Parsed, path: str, named: Mapping[str, Any]) -> bool:
    """Whether records of a prepared schema may have a field at a path."""
    if isinstance(schema, list):
        return any(_has(one, path, named) for one in schema)
    if isinstance(schema, str):
        return schema in named and _has(named[schema], path, named)
    if schema["type"] == "array":
        return _has(schema["items"], path, named)
    return schema["type"] == "map" or any(
        path == (name := field["name"])
        or (path.startswith(name + ".") and _has(field["type"], path[len(name) + 1 :], named))
        for field in schema.get("fields", ())
    )
