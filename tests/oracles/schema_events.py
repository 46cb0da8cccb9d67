"""One event in three forms: JSON, Avro and Protobuf, each written by what its users write it with.

In: a shape, the kinds of an event's fields by name, and an event as its user would write it in JSON. Out: its JSON, the
record of fastavro, and the message of protobuf. A kind says how each form writes a value; the JSON is written here by
hand, and nothing of `stream_learner` is used.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2

Shape = dict[str, Any]
"""Kind by name of a field; a dictionary for a record inside."""
Event = dict[str, Any]


class Kind(NamedTuple):
    """How a value of a kind is declared: its Avro type and the type of its Protobuf field."""

    avro: Any
    proto: str


KINDS = {
    "text": Kind("string", "string"),
    "flag": Kind("boolean", "bool"),
    "int": Kind("int", "sint32"),
    "long": Kind("long", "int64"),
    "double": Kind("double", "double"),
    "float": Kind("float", "float"),
    "enum": Kind({"type": "enum", "name": "Colour", "symbols": ["NONE", "RED", "BLUE"]}, "Colour"),
    "bytes": Kind("bytes", "bytes"),
    "moment": Kind({"type": "long", "logicalType": "timestamp-micros"}, "google.protobuf.Timestamp"),
    "millis": Kind({"type": "long", "logicalType": "timestamp-millis"}, "google.protobuf.Timestamp"),
    "decimal": Kind({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}, "confluent.type.Decimal"),
    "date": Kind({"type": "int", "logicalType": "date"}, "string"),
    "uuid": Kind({"type": "string", "logicalType": "uuid"}, "string"),
    "wrapped": Kind("long", "google.protobuf.Int64Value"),
    "texts": Kind({"type": "array", "items": "string"}, "repeated string"),
    "longs": Kind({"type": "array", "items": "long"}, "repeated int64"),
    "map": Kind({"type": "map", "values": "double"}, "map<string, double>"),
}
"""Decimals are `Decimal`, moments whole microseconds (milliseconds for millis), dates `date`, bytes `bytes`."""
IMPORTS = ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "confluent/type/decimal.proto")


# JSON


def in_json(shape: Shape, event: Event) -> Event:
    """The event with JSON's values."""
    return {name: _json_value(shape[name], value) for name, value in event.items()}


def _json_value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, dict):
        return in_json(kind, value)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "moment":
        return value // 1000 if value % 1000 == 0 else value / 1000
    if kind == "decimal":
        return float(value)
    return value.isoformat() if kind == "date" else value


def json_bytes(shape: Shape, event: Event) -> bytes:
    """The JSON of an event."""
    return json.dumps(in_json(shape, event)).encode()


# Avro


def avro_schema(shape: Shape, name: str = "Event") -> Event:
    """The Avro schema of a shape; every field may be null."""
    seen: set[str] = set()
    return _avro_record(shape, name, seen)


def _avro_record(shape: Shape, name: str, seen: set[str]) -> Event:
    fields = []
    for field, kind in shape.items():
        if isinstance(kind, dict):
            made: Any = _avro_record(kind, f"{name}_{field}", seen)
        elif kind == "enum" and "enum" in seen:
            made = "Colour"
        else:
            seen.add(kind)
            made = KINDS[kind].avro
        fields.append({"name": field, "type": ["null", made], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def avro_bytes(shape: Shape, event: Event) -> bytes:
    """The Avro record of an event, as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro_schema(shape)), _avro_value(shape, event))
    return out.getvalue()


def _avro_value(kind: Any, value: Any) -> Any:
    if isinstance(kind, dict) and value is not None:
        return {name: _avro_value(kind[name], value.get(name)) for name in kind}
    return value


# Protobuf


def proto_text(shape: Shape, name: str = "Event") -> str:
    """The `.proto` file of a shape; every field has presence, but for lists and maps."""
    lines = ['syntax = "proto3";', "package shop;", *(f'import "{path}";' for path in IMPORTS)]
    lines += ["enum Colour { NONE = 0; RED = 1; BLUE = 2; }", *_proto_message(shape, name)]
    return "\n".join(lines)


def _proto_message(shape: Shape, name: str) -> list[str]:
    lines = [f"message {name} {{"]
    for number, (field, kind) in enumerate(shape.items(), 1):
        if isinstance(kind, dict):
            lines += _proto_message(kind, f"M{field}")
            lines.append(f"  M{field} {field} = {number};")
        else:
            declared = KINDS[kind].proto
            plain = declared.startswith(("repeated", "map"))
            lines.append(f"  {'' if plain else 'optional '}{declared} {field} = {number};")
    return [*lines, "}"]


_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING,
    "bool": _FIELD.TYPE_BOOL,
    "sint32": _FIELD.TYPE_SINT32,
    "int64": _FIELD.TYPE_INT64,
    "double": _FIELD.TYPE_DOUBLE,
    "float": _FIELD.TYPE_FLOAT,
    "bytes": _FIELD.TYPE_BYTES,
}


def proto_file(shape: Shape, name: str = "Event") -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of that file, made field by field and not from its text."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="shop", syntax="proto3", dependency=IMPORTS)
    colour = file.enum_type.add(name="Colour")
    for number, symbol in enumerate(("NONE", "RED", "BLUE")):
        colour.value.add(name=symbol, number=number)
    _describe(file.message_type.add(name=name), shape, f".shop.{name}")
    return file


def _describe(message: descriptor_pb2.DescriptorProto, shape: Shape, path: str) -> None:
    optional = []
    for number, (name, kind) in enumerate(shape.items(), 1):
        field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        if isinstance(kind, dict):
            field.type, field.type_name = _FIELD.TYPE_MESSAGE, f"{path}.M{name}"
            _describe(message.nested_type.add(name=f"M{name}"), kind, f"{path}.M{name}")
            continue
        declared = KINDS[kind].proto
        if declared.startswith("map"):
            entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
            entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_DOUBLE)
            field.label, field.type, field.type_name = (
                _FIELD.LABEL_REPEATED,
                _FIELD.TYPE_MESSAGE,
                f"{path}.{entry.name}",
            )
        elif declared.startswith("repeated "):
            field.label, field.type = _FIELD.LABEL_REPEATED, _TYPES[declared.removeprefix("repeated ")]
        elif declared in _TYPES:
            field.type = _TYPES[declared]
            optional.append(field)
        else:
            is_enum = declared == "Colour"
            field.type = _FIELD.TYPE_ENUM if is_enum else _FIELD.TYPE_MESSAGE
            field.type_name = ".shop.Colour" if is_enum else f".{declared}"
            optional.append(field)
    for field in optional:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def proto_bytes(shape: Shape, event: Event) -> bytes:
    """The Protobuf message of an event, as the library writes it."""
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    decimal = descriptor_pb2.FileDescriptorProto(
        name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3"
    )
    message = decimal.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate(
        (("value", _FIELD.TYPE_BYTES), ("precision", _FIELD.TYPE_UINT32), ("scale", _FIELD.TYPE_INT32)), 1
    ):
        message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL, type=kind)
    pool.AddSerializedFile(decimal.SerializeToString())
    pool.AddSerializedFile(proto_file(shape).SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Event"))()
    _fill(made, shape, event)
    return bytes(made.SerializeToString(deterministic=False))


def _fill(message: Any, shape: Shape, event: Mapping[str, Any]) -> None:
    for name, value in event.items():
        kind = shape[name]
        if value is None:
            continue
        inside = getattr(message, name)
        if isinstance(kind, dict):
            inside.SetInParent()
            _fill(inside, kind, value)
        elif kind in ("moment", "millis"):
            inside.FromMicroseconds(value if kind == "moment" else value * 1000)
            inside.SetInParent()
        elif kind == "wrapped":
            inside.value = value
            inside.SetInParent()
        elif kind == "decimal":
            unscaled = int(value.scaleb(2))
            inside.value, inside.scale = unscaled.to_bytes(16, "big", signed=True), 2
        elif kind == "enum":
            setattr(message, name, ["NONE", "RED", "BLUE"].index(value))
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            inside.extend(value)
        elif isinstance(value, dict):
            for key in reversed(value):
                inside[key] = value[key]
        else:
            setattr(message, name, value.isoformat() if kind == "date" else value)


# Examples of every kind

A_MOMENT = datetime(2026, 3, 4, 5, 6, 7, 891_234, timezone.utc)
EXAMPLES: Event = {
    "text": "größe",
    "flag": False,
    "int": 0,
    "long": -(2**62),
    "double": 0.1,
    "float": 0.7,
    "enum": "RED",
    "bytes": b"\x00\xff",
    "moment": int(A_MOMENT.timestamp() * 1_000_000),
    "millis": int(A_MOMENT.timestamp() * 1000),
    "decimal": Decimal("-12.50"),
    "date": date(2026, 3, 4),
    "uuid": "6F9619FF-8B86-D011-B42D-00C04FC964FF",
    "wrapped": 0,
    "texts": ["a", "b", "a"],
    "longs": [3, 0],
    "map": {"a": 1.5, "b": 0.0},
}
