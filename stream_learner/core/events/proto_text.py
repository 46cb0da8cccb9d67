"""The text of a `.proto` file as its descriptor, for registries and files that have no other form of it.

It takes what decides how records are read: messages, enums, fields of every kind, oneofs, maps, imports, `proto2` and
`proto3`. Options, services, extensions and reserved numbers are passed over; groups and editions are refused: have
those as a descriptor set, made by `protoc`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from stream_learner.core.events.schemas import BadSchema

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\.?[A-Za-z_][\w.]*|[-+]?[\d.][\w.]*|[^\w\s])""",
    re.DOTALL,
)
_CLOSES = {"{": "}", "[": "]", "<": ">"}
_SCALARS = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "bool", "string", "bytes", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    )
}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """The descriptor of a file of this name. Names of types stay as written. Raises BadSchema."""
    try:
        return _Parser(text, name).file()
    except (IndexError, ValueError, RecursionError) as error:
        if isinstance(error, BadSchema):
            raise
        raise BadSchema(f"{name} is no text of Protobuf") from None


class _Parser:
    """Reads the tokens of one file, one after the other. Methods begin behind the word that they are called after."""

    def __init__(self, text: str, name: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise BadSchema(f"{name}, at character {position}: that is no text of Protobuf")
            if found[1]:
                self._tokens.append(found[1])
            position = found.end()
        self._at = 0
        self._name = name
        self._file = FileDescriptorProto(name=name, syntax="proto2")

    def file(self) -> FileDescriptorProto:
        while self._at < len(self._tokens):
            word = self._next()
            if word == "syntax":
                self._expect("=")
                self._file.syntax = self._text()
                self._expect(";")
            elif word == "package":
                self._file.package = self._next()
                self._expect(";")
            elif word == "import":
                if self._tokens[self._at] in ("public", "weak"):
                    self._next()
                self._file.dependency.append(self._text())
                self._expect(";")
            elif word == "message":
                self._message(self._file.message_type.add())
            elif word == "enum":
                self._enum(self._file.enum_type.add())
            elif word in ("option", "service", "extend"):
                self._pass_over()
            elif word != ";":
                raise self._refuse(word)
        if self._file.syntax == "proto2":
            self._file.ClearField("syntax")
        elif self._file.syntax != "proto3":
            raise BadSchema(f"{self._name} has the syntax {self._file.syntax}; proto2 and proto3 are read")
        return self._file

    def _message(self, message: DescriptorProto) -> None:
        message.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "message" and self._opens_type():
                self._message(message.nested_type.add())
            elif word == "enum" and self._opens_type():
                self._enum(message.enum_type.add())
            elif word == "oneof" and self._opens_type():
                self._oneof(message)
            elif word in ("option", "extend", "extensions", "reserved") and self._tokens[self._at + 1] != "=":
                self._pass_over()
            elif word == "map" and self._tokens[self._at] == "<":
                self._map(message)
            elif word != ";":
                self._field(message, word)
        # The oneofs that proto3's `optional` stands for come after all others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _opens_type(self) -> bool:
        return self._tokens[self._at + 1] == "{"

    def _field(self, message: DescriptorProto, word: str) -> FieldDescriptorProto:
        label = "optional"
        explicit = word in _LABELS and self._tokens[self._at + 1] != "="
        if explicit:
            label, word = word, self._next()
        if word == "group":
            raise BadSchema(f"{self._name} has a group, {self._tokens[self._at]}; give a descriptor set")
        field = message.field.add(name=self._next(), label=_LABELS[label])
        self._set_type(field, word)
        self._number(field)
        field.proto3_optional = explicit and label == "optional" and self._file.syntax == "proto3"
        if not field.proto3_optional:
            field.ClearField("proto3_optional")
        return field

    def _set_type(self, field: FieldDescriptorProto, word: str) -> None:
        if word in _SCALARS:
            field.type = _SCALARS[word]
        elif re.fullmatch(r"\.?[A-Za-z_][\w.]*", word):
            field.type_name = word
        else:
            raise self._refuse(word)

    def _number(self, field: FieldDescriptorProto) -> None:
        self._expect("=")
        field.number = int(self._next(), 0)
        if self._tokens[self._at] == "[":
            self._pass_over("]")
        self._expect(";")

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._pass_over()
            elif word != ";":
                self._field(message, word).oneof_index = index

    def _map(self, message: DescriptorProto) -> None:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field = message.field.add(name=self._next(), label=FieldDescriptorProto.LABEL_REPEATED)
        entry = message.nested_type.add(name=_camel(field.name) + "Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            self._set_type(part, kind)
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, entry.name
        self._number(field)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word in ("option", "reserved") and self._tokens[self._at] != "=":
                self._pass_over()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=int(self._next(), 0))
                if self._tokens[self._at] == "[":
                    self._pass_over("]")
                self._expect(";")

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise self._refuse(found)

    def _text(self) -> str:
        word = self._next()
        if word[0] not in "\"'":
            raise self._refuse(word)
        return word[1:-1]

    def _pass_over(self, last: Sequence[str] = (";",)) -> None:
        """Pass over a statement, up to a `;` or the end of its block; or up to the closing bracket that is named."""
        open_brackets: list[str] = []
        while True:
            word = self._next()
            if open_brackets and word == open_brackets[-1]:
                open_brackets.pop()
                is_block = word == "}" and self._tokens[self._at : self._at + 1] != [";"]
                if not open_brackets and (word in last or is_block):
                    return
            elif word in _CLOSES and word != "<":
                open_brackets.append(_CLOSES[word])
            elif not open_brackets and word in last:
                return

    def _refuse(self, word: str) -> BadSchema:
        return BadSchema(f"{self._name}: {word!r} was not expected there")


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
