"""Avro schemas to programs that a kernel follows (`fast.avro` has their steps).

A program writes for each record what `avro`, the changes at paths of an event, and `to_json` make of it. A schema that
it cannot write so has no program; its records, and those at which the kernel stops, are left to these three.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_learner.core.events.avro import OURS, Parsed, prepared_schema
from stream_learner.core.events.fast import avro as steps
from stream_learner.core.events.schemas import Schema

Program = NDArray[np.uint8]
Changes = Sequence[tuple[str, str]]
"""Paths of an event with the unit as which a moment there is written; "" for a number there that must be finite."""

_MOST_BYTES = 1 << 20
"""A program is not larger. Types that are used often are copied, and could else take any memory."""
_MOST_SCALE = 60
_SCALES = {"millis": steps.TO_MILLIS, "micros": steps.TO_MICROS, "nanos": steps.TO_NANOS}
_WRITTEN = {"ms": steps.AS_MS, "us": steps.AS_US, "s": steps.AS_S, "iso": steps.AS_ISO, "auto": steps.AS_ISO}
_PLAIN = {"boolean": steps.BOOLEAN, "int": steps.LONG, "long": steps.LONG, "string": steps.STRING}


def avro_program(schema: Schema, changes: Changes) -> Program | None:
    """The program for records of a schema; None if it has none. Raises BadSchema."""
    parsed, named = prepared_schema(schema)
    compiler = _Compiler(named)
    try:
        compiler.take(parsed, (), changes)
        compiler.add(steps.END)
        return compiler.program()
    except (_NoProgram, orjson.JSONEncodeError):
        return None


class _NoProgram(Exception):
    pass


@dataclass
class _Step:
    """A step. symbols: of an enum. branches: the first steps of the branches of a union."""

    operation: int
    text: bytes
    a: int
    b: int
    symbols: Sequence[bytes] = ()
    branches: list[int] = field(default_factory=list)
    then: int = 0


class _Compiler:
    def __init__(self, named: Mapping[str, Parsed]) -> None:
        self._named = named
        self._steps: list[_Step] = []
        self._text = bytearray()
        """What the next step writes before its value."""
        self._ends: list[_Step] = []
        """The steps that the next one follows on."""
        self._bytes = self._depth = 0

    def add(self, operation: int, a: int = 0, b: int = 0, symbols: Sequence[bytes] = ()) -> _Step:
        step = _Step(operation, bytes(self._text), a, b, symbols)
        self._bytes += steps.STEP_BYTES + len(self._text) + sum(24 + len(symbol) for symbol in symbols)
        if self._bytes > _MOST_BYTES:
            raise _NoProgram
        for end in self._ends:
            end.then = len(self._steps)
        self._steps.append(step)
        self._text, self._ends = bytearray(), [step]
        return step

    def take(self, schema: Parsed, here: Sequence[str], inside: Changes, *, in_list: bool = False) -> None:
        """Add the steps of a value. here: units of the changes of this value; inside: changes at paths inside it.
        in_list: whether it is an element of a list; `change_at` changes those, and not the elements of a list in it.
        """
        if isinstance(schema, list):
            self._take_union(schema, here, inside, in_list)
            return
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind, logical = schema["type"], str(schema.get("logicalType", "")).removeprefix(OURS)
        if kind in ("record", "error", "array", "map"):
            self._depth += 1
            if self._depth > steps.MOST_DEEP:
                raise _NoProgram
            if kind == "array":
                self._take_elements(schema["items"], () if in_list else here, inside)
            elif kind == "map":
                self._take_entries(schema["values"], inside)
            else:
                self._take_record(schema["fields"], inside)
            self._depth -= 1
        elif kind == "null":
            self._text += b"null"
        elif kind == "enum":
            symbols = [orjson.dumps(symbol) for symbol in schema["symbols"]]
            self.add(steps.ENUM, len(symbols), symbols=symbols)
        elif logical.startswith(("timestamp", "local-timestamp")):
            unit = next((unit for unit in here if unit), None)
            how = steps.AS_NUMBER if unit is None else _WRITTEN[unit]
            self.add(steps.MOMENT, _SCALES[logical.rpartition("-")[2]], how)
        elif kind in ("float", "double"):
            self.add(steps.FLOAT if kind == "float" else steps.DOUBLE, int("" in here))
        elif logical == "date":
            self.add(steps.DATE)
        elif logical == "uuid":
            self.add(steps.UUID)
        elif kind in ("bytes", "fixed"):
            size = schema["size"] if kind == "fixed" else -1
            scale = schema.get("scale", 0) if logical == "decimal" else 0
            if type(scale) is not int or not 0 <= scale <= _MOST_SCALE or (kind == "fixed" and size < 0):
                raise _NoProgram
            self.add(steps.DECIMAL if logical == "decimal" else steps.BYTES, size, scale)
        elif kind in _PLAIN:
            self.add(_PLAIN[kind])
        else:
            raise _NoProgram

    def _take_record(self, fields: Sequence[Mapping[str, Any]], inside: Changes) -> None:
        names = [one["name"] for one in fields]
        if len(set(names)) < len(names):
            raise _NoProgram
        self._text += b"{"
        for i, (name, one) in enumerate(zip(names, fields, strict=True)):
            self._text += (b"," if i else b"") + orjson.dumps(name) + b":"
            if len(self._text) > _MOST_BYTES:
                raise _NoProgram
            here = [unit for path, unit in inside if path == name]
            below = [(path[len(name) + 1 :], unit) for path, unit in inside if path.startswith(f"{name}.")]
            self.take(one["type"], here, below)
        self._text += b"}"

    def _take_union(self, branches: Sequence[Parsed], here: Sequence[str], inside: Changes, in_list: bool) -> None:
        step = self.add(steps.UNION, len(branches))
        ends: list[_Step] = []
        for branch in branches:
            step.branches.append(len(self._steps))
            self._ends = []
            self.take(branch, here, inside, in_list=in_list)
            self._end_text()
            ends += self._ends
        self._ends = ends

    def _take_elements(self, schema: Parsed, here: Sequence[str], inside: Changes, is_map: bool = False) -> None:
        self._text += b"{" if is_map else b"["
        self.add(steps.OPEN)
        begin = len(self._steps)
        step = self.add(steps.ELEMENTS, b=int(is_map))
        step.a, self._ends = len(self._steps), []
        self.take(schema, here, inside, in_list=True)
        self._end_text()
        for end in self._ends:
            end.then = begin
        self._ends = [step]
        self._text += b"}" if is_map else b"]"

    def _take_entries(self, schema: Parsed, inside: Changes) -> None:
        if inside:  # a key of a map may be any part of a path
            raise _NoProgram
        self._take_elements(schema, (), (), is_map=True)

    def _end_text(self) -> None:
        """Write the text that is left before steps of other branches, or the next element, go on."""
        if self._text:
            self.add(steps.NOTHING)

    def program(self) -> Program:
        """The bytes that `fast.avro` describes; 16 more, since texts are copied by whole words."""
        block = bytearray(steps.STEP_BYTES * len(self._steps))

        def placed(data: bytes) -> int:
            block.extend(data)
            return len(block) - len(data)

        for number, step in enumerate(self._steps):
            a, b = step.a, step.b
            if step.operation == steps.UNION:
                b = placed(b"".join(struct.pack("<q", steps.STEP_BYTES * first) for first in step.branches))
            elif step.operation == steps.ENUM:
                b = placed(b"".join(struct.pack("<2q", placed(text), len(text)) for text in step.symbols))
            elif step.operation == steps.ELEMENTS:
                a *= steps.STEP_BYTES
            words = (step.operation, steps.STEP_BYTES * step.then, placed(step.text), len(step.text), a, b)
            struct.pack_into("<6q", block, steps.STEP_BYTES * number, *words)
        program = np.empty(len(block) + 16, np.uint8)
        program[: len(block)] = np.frombuffer(block, np.uint8)
        return program
