"""Avro by the kernel: the same columns and JSON as by the definition alone, whatever the schema and the bytes."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import fastavro
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs.fuzz.mutate import mutated
from stream_learner.core.events.decoders import Columns, EventSpec
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Reason
from stream_learner.core.events.schema_forms import MOST_GROWTH, SchemaDecoder, SchemaForm
from stream_learner.core.events.schemas import OneSchema, Schema
from tests.core.events.decode_help import ByDefinition, without_logical

NOW_MS = 1_772_600_000_000
SPEC = EventSpec(time="t", weight="w", max_skew_ms=1 << 62)


def form_of(schema: Any, *, framed: bool = False, kind: type[SchemaForm] = SchemaForm) -> SchemaForm:
    """Records of one schema."""
    return kind("avro", OneSchema(Schema("AVRO", json.dumps(schema))), framed)


def plan_of(spec: EventSpec = SPEC, features: FeatureSpec | None = None) -> Plan:
    """How events are read."""
    return spec.impression_plan(features or FeatureSpec())


def decoded(decoder: SchemaDecoder, records: Sequence[bytes], behind: bytes = b"") -> Columns:
    """The columns of records."""
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=bounds[1:])
    return decoder.decode(b"".join(records) + behind, bounds, np.full(len(records), NOW_MS))


def texts(found: Columns) -> list[bytes]:
    """The JSON of each record."""
    assert found.as_json is not None
    data, bounds = found.as_json
    return [bytes(data[begin:end]) for begin, end in pairwise(bounds)]


def assert_as_defined(schema: Any, records: Sequence[bytes], plan: Plan, behind: bytes = b"") -> SchemaDecoder:
    """Every column and every text, to the bit, is that of the definition. Returns the decoder."""
    fast, slow = (
        SchemaDecoder(form_of(schema, kind=kind), plan, any_fields=True) for kind in (SchemaForm, ByDefinition)
    )
    for _ in range(2):  # again with fields that it knows, and room as of the batch before
        one, other = decoded(fast, records, behind), decoded(slow, records)
        for name in ("status", "time_ms", "id_hash", "number", "row_start", "keys", "values"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
        assert [_read(text) for text in texts(one)] == [_read(text) for text in texts(other)]
    assert slow.handed_over == 2 * len(records)
    return fast


def _read(text: bytes) -> Any:
    """What a text says, with the type and sign of its numbers and the order of its fields."""
    return repr(orjson.loads(text)) if text else None


def written(schema: Any, event: Any) -> bytes:
    """A record as fastavro writes it; values of logical types are those of the type below."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical(schema)), event)
    return out.getvalue()


def record_of(*fields: tuple[str, Any], name: str = "E") -> dict[str, Any]:
    """The schema of a record with an id."""
    made = [{"name": field, "type": kind} for field, kind in (("id", "string"), *fields)]
    return {"type": "record", "name": name, "fields": made}


# Schemas of every shape, and values of them. A value is bytes at once, so that what no writer writes is there as well.

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300) | st.sampled_from([2**53, -(2**53) - 1, 2**31])
FLOATS = st.floats() | st.integers(-10_000, 10_000).map(lambda n: n / 100) | st.sampled_from([-0.0, 1e16, 1e-5, 5e-324])
TEXTS = st.text(max_size=40) | st.sampled_from(["", "a", '"\\/\b\f\n\r\t\x00\x1f\x7f', "größe日本語😀" * 4])
LOGICAL: dict[str, tuple[str, ...]] = {
    "long": ("timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-micros", "time-micros"),
    "int": ("date", "time-millis"),
    "string": ("uuid",),
}


def zigzag(number: int) -> bytes:
    """A long of Avro."""
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


class Shapes:
    """Draws schemas and values; names of types are used once."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = 0

    def name(self) -> str:
        """A name of a type."""
        self.names += 1
        return f"T{self.names}"

    def schema(self, depth: int) -> Any:
        """A schema."""
        kinds = ["null", "boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed", "decimal"]
        kind = self.draw(st.sampled_from(kinds + (["record", "array", "map", "union", "union"] if depth else [])))
        if kind == "union":
            return self.union(depth)
        if kind == "enum":
            return {"type": "enum", "name": self.name(), "symbols": ["A", "B_2", "LONGER_THAN_SIXTEEN_BYTES"]}
        if kind == "fixed":
            size = self.draw(st.sampled_from([1, 3, 16]))
            made = {"type": "fixed", "name": self.name(), "size": size}
            return made | ({"logicalType": "uuid"} if size == 16 else {})
        if kind == "decimal":
            scale = self.draw(st.sampled_from([0, 2, 25]))
            return {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": scale}
        if kind == "record":
            fields = self.draw(st.lists(st.sampled_from(["a", "b", "t", "w"]), unique=True, max_size=3))
            made = [{"name": field, "type": self.schema(depth - 1)} for field in fields]
            return {"type": "record", "name": self.name(), "fields": made}
        if kind == "array":
            return {"type": "array", "items": ["null", self.schema(0)] if depth == 1 else self.union(depth)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1)}
        logical = self.draw(st.sampled_from(("", *LOGICAL.get(kind, ()))))
        return {"type": kind, "logicalType": logical} if logical else kind

    def union(self, depth: int) -> Any:
        """A union of two or three different types."""
        found = {json.dumps(one, sort_keys=True): one for one in (self.schema(depth - 1) for _ in range(3))}
        plain = {
            one["type"] if isinstance(one, dict) else one: one for one in found.values() if not isinstance(one, list)
        }
        return list(plain.values()) or ["null"]

    def value(self, schema: Any) -> bytes:
        """The bytes of a value."""
        if isinstance(schema, list):
            number = self.draw(st.integers(0, len(schema) - 1))
            return zigzag(number) + self.value(schema[number])
        kind = schema["type"] if isinstance(schema, dict) else schema
        draw = self.draw
        if kind == "record":
            return b"".join(self.value(field["type"]) for field in schema["fields"])
        if kind in ("array", "map"):
            return self.blocks(schema.get("items", schema.get("values")), kind == "map")
        if kind == "string":
            text = draw(TEXTS).encode("utf-8", "surrogatepass")
            return zigzag(len(text)) + text
        if kind == "bytes":
            data = draw(
                st.binary(max_size=10) | st.integers(-(10**9), 10**19).map(lambda n: n.to_bytes(10, "big", signed=True))
            )
            return zigzag(len(data)) + data
        plain: dict[str, st.SearchStrategy[bytes]] = {
            "null": st.just(b""),
            "boolean": st.sampled_from([b"\0", b"\1"]),
            "int": (st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 20_000)).map(zigzag),
            "long": LONGS.map(zigzag),
            "float": st.floats(width=32).map(lambda x: struct.pack("<f", x)),
            "double": FLOATS.map(lambda x: struct.pack("<d", x)),
            "enum": st.integers(0, 2).map(zigzag),
        }
        if kind == "fixed":
            return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        return draw(plain[kind])

    def blocks(self, schema: Any, is_map: bool) -> bytes:
        """Elements in blocks, with or without their size; keys of maps may come twice."""
        out = b""
        for _ in range(self.draw(st.integers(0, 2))):
            keys = self.draw(st.lists(st.sampled_from(["k", "k.2", "größe", '"', ""]), min_size=1, max_size=3))
            data = b"".join(
                (zigzag(len(key.encode())) + key.encode() if is_map else b"") + self.value(schema) for key in keys
            )
            out += self.draw(st.sampled_from([zigzag(len(keys)), zigzag(-len(keys)) + zigzag(len(data))])) + data
        return out + b"\0"


# Every kind by itself

MOMENTS = [f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")]
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["NONE", "RED"]}
INNER = record_of(("n", ["null", "long"]), ("colour", COLOUR), name="Inner")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
ORDINARY: dict[str, tuple[Any, Sequence[Any]]] = {
    "text": ("string", ["", "größe", 'say "no"\n', "x" * 5000]),
    "int": ("int", [0, -1, 2**31 - 1]),
    "long": ("long", [2**63 - 1, -(2**63), 99_999_999, 100_000_000]),
    "boolean": ("boolean", [True, False]),
    "double": ("double", [0.1, -0.0, 1e300, 5e-324, 2 / 3, 1e16, 123456.789, math.nan, math.inf]),
    "float": ("float", [0.7, -0.0, 3e38, 1e-45, 16777216.0, math.nan]),
    "enum": (COLOUR, ["RED", "NONE"]),
    "nullable": (["null", "string"], [None, "x"]),
    "union": (["string", "long", "boolean"], ["x", 7, True]),
    "record": (INNER, [{"id": "a", "n": None, "colour": "RED"}]),
    "array": ({"type": "array", "items": ["null", INNER]}, [[], [None, {"id": "a", "n": 3, "colour": "NONE"}]]),
    "arrays": ({"type": "array", "items": {"type": "array", "items": "double"}}, [[], [[], [1.5], [0.0, 2.0]]]),
    "map": ({"type": "map", "values": "float"}, [{}, {"a.b": 1.5, "": 0.0}]),
    "bytes": ("bytes", [b"", b"a", b"ab", b"abc", bytes(range(256))]),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, [b"abc"]),
    "uuid": ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, [bytes(range(100, 116))]),
    "date": ({"type": "int", "logicalType": "date"}, [0, 20_516, -719_162, 2_932_896]),
    "bytes with what says nothing": ({"type": "bytes", "size": 1, "scale": "x"}, [b"", b"abc"]),
    "decimal": (DECIMAL, [b"", b"\xfb\x1e", b"\0", b"\x7f" + b"\xff" * 7, b"\xff" * 9 + b"\x85"]),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_ordinary_values_are_left_to_nobody(what: str) -> None:
    """No record of these goes through fastavro."""
    kind, values = ORDINARY[what]
    schema = record_of(("a", kind))
    records = [written(schema, {"id": "i", "a": value}) for value in values]
    assert assert_as_defined(schema, records, plan_of(EventSpec())).handed_over == 0


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("unit", ["ms", "s", "us", "iso", "auto"])
def test_moments_are_left_to_nobody(name: str, unit: Any) -> None:
    """As time, in a field of a kind for times, in a list of them, and as numbers; also those that no unit can tell."""
    moment = {"type": "long", "logicalType": name}
    schema = record_of(("t", moment), ("h", moment), ("l", {"type": "array", "items": moment}), ("n", moment))
    per_second = {"millis": 1000, "micros": 10**6, "nanos": 10**9}[name.rpartition("-")[2]]
    found = [int(1_772_600_767.891234567 * per_second), 0, 1, per_second - 1, 253_402_300_799 * per_second]
    events = [{"id": "i", "t": at, "h": at, "l": [at, 0], "n": at} for at in found if at < 2**63]
    beyond = [{"id": "i", "t": at, "h": at, "l": [], "n": 0} for at in (-1, -(2**63), 2**63 - 1)]
    timed = FieldSpec("hour_of_week", time_unit=unit)
    plan = plan_of(replace(SPEC, time_unit=unit, weight=None), FeatureSpec(fields={"h": timed, "l": timed}))
    decoder = assert_as_defined(schema, [written(schema, event) for event in events + beyond], plan)
    assert decoder.handed_over == 0


def test_a_weight_that_is_not_finite_is_left_to_the_definition() -> None:
    """As null it would be the weight 1."""
    schema = record_of(("w", {"type": "array", "items": "float"}), ("in", record_of(("w", "double"), name="In")))
    events = [{"id": "i", "w": [1.0, weight], "in": {"id": "", "w": weight}} for weight in (2.0, math.nan, -math.inf)]
    for path in ("w", "in.w"):
        decoder = assert_as_defined(
            schema, [written(schema, event) for event in events], plan_of(EventSpec(weight=path))
        )
        assert decoder.handed_over == 4


ODD: dict[str, bytes] = {
    "a length below zero": b"\1",
    "a length beyond the record": b"\x7e",
    "a length without an end": b"\xff" * 9,
    "a length of too many bits": b"\xff" * 9 + b"\x7f",
    "a length of eleven bytes": b"\x80" * 10 + b"\0",
    "a length with needless bytes": b"\x82\x80\0x",
    "no UTF-8": b"\2\xff",
    "half a letter": b"\2\xc3\xbc",
    "a surrogate": b"\6\xed\xa0\x80",
    "nothing": b"",
}


@pytest.mark.parametrize("what", ODD)
def test_odd_bytes_are_what_the_definition_says(what: str) -> None:
    """As a text, as a list and as a map, with other records right behind that could be read instead."""
    odd = ODD[what]
    for kind in (
        "string",
        {"type": "array", "items": "string"},
        {"type": "map", "values": "string"},
        ["null", "string"],
    ):
        schema = record_of(("a", kind))
        assert_as_defined(schema, [b"\2i" + odd, b"\2i\0", b"\2i\2" + odd], plan_of(EventSpec()), odd * 20)


def test_numbers_of_branches_and_symbols_are_bounded() -> None:
    """Of a union, an enum and a boolean, below and above."""
    for kind in (["null", "string"], COLOUR, "boolean"):
        records = [b"\2i" + zigzag(number) for number in (-1, -2, 2, 3, 2**40, -(2**63))]
        assert_as_defined(record_of(("a", kind)), records, plan_of(EventSpec()))


def test_every_cut_of_a_record_and_one_byte_more() -> None:
    """At the end of the memory, and with more behind."""
    schema = record_of(*((f"f{i}", kind) for i, (kind, _) in enumerate(ORDINARY.values()) if _named(kind) is None))
    raw = b"\2i" + bytes(60)
    record = next(raw[:n] for n in range(len(raw)) if _is_record(schema, raw[:n]))
    records = [record[:n] for n in range(len(record))] + [record, record + b"\0"]
    for behind in (b"", bytes(100)):
        assert_as_defined(schema, records, plan_of(EventSpec()), behind)


def _named(kind: Any) -> Any:
    return kind.get("name") if isinstance(kind, dict) else None


def _is_record(schema: Any, raw: bytes) -> bool:
    return bool(decoded(SchemaDecoder(form_of(schema, kind=ByDefinition), plan_of(EventSpec())), [raw]).status[0] == 0)


def test_texts_that_grow_get_room_and_have_a_bound() -> None:
    """A text may have sixteen times the bytes of the largest record, to the byte; one beyond it is too large."""
    fields = [{"name": "n" * 100, "type": "null"}, {"name": "b", "type": "boolean"}]
    items = {"type": "record", "name": "R", "fields": fields}
    schema = record_of(("a", {"type": "array", "items": items}))
    some = [{"n" * 100: None, "b": True}] * 26
    records = [written(schema, {"id": "i" * n, "a": some}) for n in range(1, 160)]
    plan = plan_of(EventSpec(max_event_bytes=200))
    decoder = assert_as_defined(schema, records, plan)
    found = decoded(decoder, records)
    good = int((found.status == 0).sum())
    assert found.status.tolist() == [0] * good + [Reason.TOO_LARGE] * (159 - good)
    assert len(texts(found)[good - 1]) == 200 * MOST_GROWTH
    assert decoder.handed_over == 3 * (159 - good)


def test_a_batch_may_have_many_schemas() -> None:
    """Each record by its own, also where some have no program, or are no schema."""
    kinds = ["long", "string", "double", ["null", "long"]]
    schemas = {i: record_of(("a", kind)) for i, kind in enumerate(kinds, 1)}
    deep: Any = "long"
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    schemas[5] = record_of(("a", deep))

    class Ids:
        trouble = ""

        def known(self, ids: Sequence[int]) -> dict[int, Schema]:
            return {i: Schema("AVRO", json.dumps(schemas[i])) if i in schemas else Schema("") for i in ids}

    values = {1: 5, 2: "x", 3: 0.5, 4: None, 5: []}
    bodies = {i: written(schemas[i], {"id": f"i{i}", "a": value}) for i, value in values.items()}
    bodies |= {6: b"\2i", 2**32 - 1: b""}
    records = [b"\0" + struct.pack(">I", i) + bodies[i] for _ in range(50) for i in bodies]
    records += [b"", b"\0\0\0\0", b"\1" + records[0][1:], b"\x80" + records[1][1:]]
    fast, slow = (SchemaDecoder(kind("avro", Ids(), True), plan_of(EventSpec())) for kind in (SchemaForm, ByDefinition))
    one, other = decoded(fast, records), decoded(slow, records)
    assert one.status.tobytes() == other.status.tobytes() and one.keys.tobytes() == other.keys.tobytes()
    assert texts(one) == texts(other)
    assert fast.handed_over == 3 * 50 + 4


def test_decimals_that_are_not_ordinary() -> None:
    """Digits far behind the point, or many of them."""
    for scale, value in ((60, b"\1"), (61, b"\1"), (400, b"\1"), (2, b"\1" * 9)):
        schema = record_of(("a", {**DECIMAL, "precision": 999, "scale": scale}))
        assert_as_defined(schema, [written(schema, {"id": "i", "a": value})], plan_of(EventSpec()))


def test_a_schema_that_copies_itself_without_end_has_no_program() -> None:
    """Sixty types, each with two of the one before: 2^60 fields, and a schema of 6 kB."""
    inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "null"}]}
    schema = record_of(("r", inner))
    for i in range(1, 31):
        schema["fields"].append(
            {
                "name": f"r{i}",
                "type": {"type": "record", "name": f"R{i}", "fields": [{"name": n, "type": f"R{i - 1}"} for n in "ab"]},
            }
        )
    decoder = SchemaDecoder(form_of(schema), plan_of(EventSpec()))
    assert decoder._readers[0].program is None


TIME_KINDS = ["long", *({"type": "long", "logicalType": name} for name in LOGICAL["long"]), "string", "double"]
UNITS = st.sampled_from(["ms", "s", "us", "iso", "auto"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Any, list[bytes], Plan]:
    """A schema, records of it, and a plan."""
    shapes = Shapes(draw)
    schema = record_of(
        *((name, shapes.schema(3)) for name in draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=4))),
        ("t", ["null", draw(st.sampled_from(TIME_KINDS))]),
        ("w", draw(st.sampled_from(["double", "float", ["null", "double"], {"type": "array", "items": "float"}]))),
    )
    records = [shapes.value(schema) for _ in range(draw(st.integers(1, 4)))]
    path = draw(st.sampled_from([None, None, "t", "a.t", "b", "c.a"]))
    features = FeatureSpec(categorical=("a", "b.a"), fields={"c": FieldSpec("hour", time_unit=draw(UNITS))})
    if path in ("b", "c.a"):
        features = FeatureSpec(fields={"t": FieldSpec("weekday", time_unit=draw(UNITS))})
    weight = draw(st.sampled_from(["w", "d", "e.w"]))
    return schema, records, plan_of(replace(SPEC, time=path, weight=weight, time_unit=draw(UNITS)), features)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_columns_and_json_are_those_of_the_definition(world: tuple[Any, list[bytes], Plan]) -> None:
    """Schemas and values of all shapes: those that the kernel takes and those that it does not."""
    schema, records, plan = world
    assert_as_defined(schema, records, plan, b'"}' * 40)


@settings(max_examples=300, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_damaged_records_have_the_reasons_of_the_definition(world: tuple[Any, list[bytes], Plan], rng: Random) -> None:
    """Bits that flip, bytes that go or come, numbers at their extremes; good ones beside them are as they were."""
    schema, records, plan = world
    damaged = [mutated(rng, record, records) for record in records for _ in range(5)]
    assert_as_defined(schema, [record for pair in zip(damaged, records * 5, strict=True) for record in pair], plan)
