"""Protobuf records as Python values, by the library protobuf.

Fields have the names of the `.proto` file. What is not there is left out, as in Protobuf's own JSON: a field without
presence that has its default (0, "", false, the first symbol), an empty list or map. A field with presence (`optional`,
in a oneof, a message, any of proto2) is there if it was set. Fields come by their number, entries of a map by key: the
order of bytes must not decide that of features.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from stream_learner.core.events.proto_text import parse_proto
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.events.schemas import BadSchema, Moment, Read, Schema, decimal_of

_WELL_KNOWN = frozenset(
    ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type")
) | {"wrappers"}
_CONFLUENT = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; '
        "int32 scale = 3; }"
    ),
}
"""Files that every client of Confluent's registry has without asking for them."""

Pool: TypeAlias = descriptor_pool.DescriptorPool
Value = Callable[[Any], Any]


def protobuf_reader(schema: Schema, message: str, needed: tuple[str, ...], *, framed: bool) -> Read:
    """What reads records of a schema. framed: whether message indexes stand before each. message: the full name of the
    message of records without; may be "" if the file has only one.

    needed: paths of fields that records must have. Raises BadSchema.
    """
    pool, file = _pool(schema)
    values = _Values()
    readers: dict[tuple[int, ...], Read] = {}

    def read_one(descriptor: Descriptor) -> Read:
        for path in needed:
            if not _has(descriptor, path):
                raise BadSchema(f"the message {descriptor.full_name} has no field {path}")
        return _reader(descriptor, values)

    if not framed:
        return read_one(_message(pool, file, message))

    def read(raw: bytes) -> Any:
        indexes, begin = _indexes(raw)
        known = readers.get(indexes)
        if known is None:
            descriptor = _message_at(pool, file, indexes)
            try:
                known = readers[indexes] = read_one(descriptor)
            except BadSchema as error:
                raise Refused(Reason.UNUSABLE_SCHEMA, f"{Reason.UNUSABLE_SCHEMA.text}: {error}") from None
        return known(raw[begin:])

    return read


def _reader(descriptor: Descriptor, values: _Values) -> Read:
    made, value = message_factory.GetMessageClass(descriptor), values.of_message(descriptor)

    def read(raw: bytes) -> Any:
        try:
            return value(made.FromString(raw))
        except (DecodeError, ValueError, ArithmeticError):  # the last two from decimals that are none
            raise Refused(Reason.NOT_OF_SCHEMA) from None

    return read


# Which message


def _indexes(raw: bytes) -> tuple[tuple[int, ...], int]:
    """The message indexes before a record, and where it begins."""
    count, at = _varint(raw, 0)
    if not 0 <= count <= 100:
        raise Refused(Reason.NOT_FRAMED)
    found = []
    for _ in range(count):
        index, at = _varint(raw, at)
        found.append(index)
    return tuple(found) or (0,), at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most five bytes, and where it ends."""
    found = 0
    for shift in range(0, 35, 7):
        if at >= len(raw):
            break
        found |= (raw[at] & 127) << shift
        at += 1
        if raw[at - 1] < 128:
            return found >> 1 ^ -(found & 1), at
    raise Refused(Reason.NOT_FRAMED)


def _message_at(pool: Pool, file: FileDescriptorProto, indexes: tuple[int, ...]) -> Descriptor:
    inside, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(inside):
            raise Refused(Reason.NOT_FRAMED)
        names.append(inside[index].name)
        inside = inside[index].nested_type
    return pool.FindMessageTypeByName(".".join(names))


def _message(pool: Pool, file: FileDescriptorProto, message: str) -> Descriptor:
    there = [".".join(filter(None, (file.package, one.name))) for one in file.message_type]
    if not message and len(there) != 1:
        raise BadSchema(f"it has {len(there)} messages: `message` must say which of {', '.join(there)} the records are")
    for name in (message or there[0], f"{file.package}.{message}"):
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError:
            continue
    raise BadSchema(f"it has no message {message}; there are {', '.join(there)}")


def _has(descriptor: Descriptor, path: str) -> bool:
    """Whether a message may have a field at a path."""
    if descriptor.full_name in _SPECIAL:
        return descriptor.full_name == "google.protobuf.Struct"
    for field in descriptor.fields:
        inner = field.message_type
        if field.name == path:
            return True
        if inner is not None and path.startswith(field.name + "."):
            return inner.GetOptions().map_entry or _has(inner, path[len(field.name) + 1 :])
    return False


# Schemas


def _pool(schema: Schema) -> tuple[Pool, FileDescriptorProto]:
    """The types of a schema, and its file. Raises BadSchema."""
    files: dict[str, FileDescriptorProto] = {}
    for name, reference in schema.references:
        for file in _files(reference.text, name):
            file.name = name
            files[name] = file
    for main in _files(schema.text, "the schema"):
        files[main.name] = main
    pool, added = descriptor_pool.DescriptorPool(), set[str]()
    try:
        _add(pool, main, files, added)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        if isinstance(error, BadSchema):
            raise
        raise BadSchema(f"it is no schema of Protobuf: {error}") from None
    return pool, main


def _add(
    pool: Pool,
    file: FileDescriptorProto,
    files: Mapping[str, FileDescriptorProto],
    added: set[str],
) -> None:
    """Add a file after those that it imports."""
    added.add(file.name)
    for name in file.dependency:
        if name not in added:
            _add(pool, files[name] if name in files else _known_file(name), files, added)
    pool.AddSerializedFile(file.SerializeToString())


def _known_file(name: str) -> FileDescriptorProto:
    if name in _CONFLUENT:
        return parse_proto(_CONFLUENT[name], name)
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in _WELL_KNOWN:
        raise BadSchema(f"it imports {name}, which is not there; a descriptor set has all that a file imports")
    found = FileDescriptorProto()
    importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(found)
    return found


def _files(text: str, name: str) -> list[FileDescriptorProto]:
    """The files of a text: that of a `.proto` file, or a descriptor or a set of them in base64, the main one last."""
    try:
        descriptor = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return [parse_proto(text, name)]
    for kind in (FileDescriptorSet, FileDescriptorProto):
        try:
            found: Any = kind.FromString(descriptor)
        except DecodeError:
            continue
        files = list(found.file) if kind is FileDescriptorSet else [found]
        if files and all(file.name and (file.message_type or file.enum_type or file.dependency) for file in files):
            return files
    raise BadSchema("it is neither the text of a Protobuf file nor its descriptor")


# Values


class _Values:
    """Makes what turns messages of one schema into Python values."""

    def __init__(self) -> None:
        self._fields: dict[str, dict[int, tuple[str, Value | None]]] = {}

    def of_message(self, descriptor: Descriptor) -> Value:
        """What turns a message into a value."""
        special = _SPECIAL.get(descriptor.full_name)
        if special is not None:
            return special
        if descriptor.full_name not in self._fields:
            fields = self._fields[descriptor.full_name] = {}
            said = DescriptorProto()
            descriptor.CopyToProto(said)  # every version of the library has labels there
            for field, about in zip(descriptor.fields, said.field, strict=True):
                is_list = about.label == FieldDescriptorProto.LABEL_REPEATED
                fields[field.number] = field.name, self._of_field(field, is_list)
        fields = self._fields[descriptor.full_name]

        def value(message: Any) -> dict[str, Any]:
            found = {}
            for field, inside in message.ListFields():
                if field.is_extension:
                    continue
                name, change = fields[field.number]
                found[name] = inside if change is None else change(inside)
            return found

        return value

    def _of_field(self, field: FieldDescriptor, is_list: bool) -> Value | None:
        inner = field.message_type
        if is_list and inner is not None and inner.GetOptions().map_entry:
            one = self._of_one(inner.fields_by_name["value"])
            return lambda entries: _map_value(entries, one)
        one = self._of_one(field)
        if not is_list:
            return one
        return list if one is None else lambda elements: [one(element) for element in elements]

    def _of_one(self, field: FieldDescriptor) -> Value | None:
        """What turns one value of a field into that of the event; None for one that stays as it is."""
        if field.message_type is not None:
            return self.of_message(field.message_type)
        if field.enum_type is not None:
            if field.enum_type.full_name == "google.protobuf.NullValue":
                return lambda number: None
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        if field.type == FieldDescriptor.TYPE_STRING and self._is_unchecked(field):
            return _text
        return np.float32 if field.type == FieldDescriptor.TYPE_FLOAT else None

    @staticmethod
    def _is_unchecked(field: FieldDescriptor) -> bool:
        """Whether the library does not look whether text is UTF-8."""
        file = FileDescriptorProto()
        field.containing_type.file.CopyToProto(file)
        return file.syntax in ("", "proto2")


def _map_value(entries: Any, one: Value | None) -> dict[str, Any]:
    found = {}
    for key in entries:
        name = str(key).lower() if isinstance(key, bool) else str(key)
        found[name] = entries[key] if one is None else one(entries[key])
    return dict(sorted(found.items()))


def _duration(message: Any) -> float:
    return (message.seconds * 10**9 + message.nanos) / 10**9


def _text(value: Any) -> str:
    if not isinstance(value, str):  # the library gives text of proto2 that is not UTF-8 as bytes
        raise Refused(Reason.NOT_OF_SCHEMA)
    return value


def _struct(message: Any) -> dict[str, Any]:
    return {name: _any_value(message.fields[name]) for name in sorted(message.fields)}


def _any_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(message.struct_value)
    if kind == "list_value":
        return _list(message.list_value)
    if kind == "number_value":
        number = message.number_value
        return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
    return None if kind in (None, "null_value") else getattr(message, kind)


def _list(message: Any) -> list[Any]:
    return [_any_value(value) for value in message.values]


_SPECIAL: dict[str, Value] = {
    "google.protobuf.Timestamp": lambda message: Moment(message.seconds * 1_000_000 + message.nanos // 1000),
    "google.protobuf.Duration": _duration,
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _any_value,
    "google.protobuf.ListValue": _list,
    "google.protobuf.FloatValue": lambda message: np.float32(message.value),
    "confluent.type.Decimal": lambda message: decimal_of(message.value, message.scale),
    **{
        f"google.protobuf.{name}Value": lambda message: message.value
        for name in ("Double", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    },
}
"""Messages that stand for one value, by name."""
