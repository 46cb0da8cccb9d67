"""The same event in JSON, Avro and Protobuf gives the same columns, to the bit; and what is no event has a reason."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.decoders import (
    JSON,
    ClickDecoder,
    EventSpec,
    Form,
    ImpressionDecoder,
    Impressions,
    SchemaAwaited,
)
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.local_time import value_in_zone
from stream_learner.core.events.reasons import Reason
from stream_learner.core.events.schema_forms import SchemaForm
from stream_learner.core.events.schemas import BadSchema, OneSchema, Schema
from stream_learner.core.machine.hashing import hash_texts
from tests.oracles.schema_events import (
    EXAMPLES,
    KINDS,
    Shape,
    avro_bytes,
    avro_schema,
    in_json,
    json_bytes,
    proto_bytes,
    proto_file,
    proto_text,
)

NOW_MS = 1_772_600_000_000
Write = Callable[[Shape, dict[str, Any]], bytes]


def avro_form(schema: Any, *, framed: bool = False, wanted: Any = None) -> SchemaForm:
    """Records of one Avro schema."""
    wanted = None if wanted is None else Schema("AVRO", json.dumps(wanted))
    return SchemaForm("avro", OneSchema(Schema("AVRO", json.dumps(schema))), framed, wanted=wanted)


def proto_form(text: str, message: str = "", *, framed: bool = False) -> SchemaForm:
    """Records of one Protobuf file."""
    return SchemaForm("protobuf", OneSchema(Schema("PROTOBUF", text)), framed, message)


def framed(schema_id: int, record: bytes, indexes: bytes = b"") -> bytes:
    """A record in its frame."""
    return b"\0" + struct.pack(">I", schema_id) + indexes + record


def batch(records: Sequence[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Records as decoders take them."""
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=bounds[1:])
    return b"".join(records), bounds, np.full(len(records), NOW_MS)


def shown(
    form: Form, *records: bytes, spec: EventSpec | None = None, features: FeatureSpec | None = None
) -> Impressions:
    """The records as impressions."""
    return ImpressionDecoder(spec or EventSpec(), features or FeatureSpec(), form=form).decode(*batch(records))


def assert_same(one: Impressions, other: Impressions) -> None:
    """Every column, to the bit."""
    for name in ("status", "time_ms", "id_hash", "weight", "row_start", "keys", "values"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def in_all_forms(
    shape: Shape, events: Sequence[dict[str, Any]], spec: EventSpec, features: FeatureSpec
) -> tuple[Impressions, ...]:
    """The events as impressions of JSON, Avro, and Protobuf by its text and by its descriptor."""
    text, file = proto_text(shape), base64.b64encode(proto_file(shape).SerializeToString()).decode()
    forms: list[tuple[Form, Write]] = [
        (JSON, json_bytes),
        (avro_form(avro_schema(shape)), avro_bytes),
        (proto_form(text), proto_bytes),
        (proto_form(file), proto_bytes),
    ]
    return tuple(
        shown(form, *(write(shape, event) for event in events), spec=spec, features=features) for form, write in forms
    )


# The property

names = st.sampled_from(["a", "b", "price", "Id", "x_1"])
floats = st.integers(-999_999, 999_999).map(lambda n: n / 1000)
values: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(st.characters(exclude_categories=("Cs",)), max_size=6),
    "flag": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": floats,
    "enum": st.sampled_from(["NONE", "RED", "BLUE"]),
    "bytes": st.binary(max_size=5),
    "moment": st.integers(0, 4_000_000_000_000_000),
    "millis": st.integers(0, 4_000_000_000_000),
    "decimal": st.integers(-(10**11), 10**11).map(lambda n: Decimal(n).scaleb(-2)),
    "date": st.dates(date(1970, 1, 1), date(2200, 1, 1)),
    "uuid": st.uuids().map(str),
    "wrapped": st.integers(-(2**63), 2**63 - 1),
    "texts": st.lists(st.sampled_from(["", "u", "ü"]), max_size=3),
    "longs": st.lists(st.integers(-5, 5), max_size=3),
    "map": st.dictionaries(st.sampled_from("pqr"), st.floats(-2, 2), max_size=3).map(lambda d: dict(sorted(d.items()))),
}
kinds = st.sampled_from(sorted(KINDS))
shapes = st.dictionaries(names, kinds | st.dictionaries(names, kinds, min_size=1, max_size=3), max_size=4)


@st.composite
def events_of(draw: st.DrawFn, shape: Shape) -> dict[str, Any]:
    """An event of a shape, in the order of its fields; some are left out, some null."""
    event = {}
    for name, kind in shape.items():
        how = draw(st.integers(0, 9)) if name != "id" else 9
        if how == 0:
            continue
        if how == 1:
            event[name] = None
        else:
            event[name] = draw(events_of(kind) if isinstance(kind, dict) else values[kind])
    return event


def whole(shape: Shape) -> Shape:
    """A shape with the fields of the roles."""
    return {"id": "text", "t": "long", "w": "double", **shape}


SPEC = EventSpec(time="t", weight="w", max_skew_ms=1 << 62)
FEATURES = FeatureSpec(
    categorical=("a", "x_1"),
    fields={"b": FieldSpec("number", missing="indicator"), "price": FieldSpec("bucket", (0.0, 0.7, 3.5))},
    crosses=(("a", "b"),),
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_event_is_the_same_in_every_form(data: st.DataObject) -> None:
    """Whatever its fields: equal columns, dead letters with equal reasons among them."""
    shape = whole(data.draw(shapes))
    events = data.draw(st.lists(events_of(shape), min_size=1, max_size=4))
    first, *others = in_all_forms(shape, events, SPEC, FEATURES)
    for other in others:
        assert_same(first, other)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_value_is_what_its_json_is(kind: str) -> None:
    """One field of each, by itself, as feature of a number, of a category, and in a record inside."""
    shape = {"id": "text", "a": kind, "in": {"b": kind}}
    event = {"id": "i", "a": EXAMPLES[kind], "in": {"b": EXAMPLES[kind]}}
    for features in (
        FeatureSpec(),
        FeatureSpec(categorical=("a", "in.b")),
        FeatureSpec(fields={"a": FieldSpec("number")}),
    ):
        first, *others = in_all_forms(shape, [event], EventSpec(), features)
        assert first.status[0] == 0 and len(first.keys) >= 2
        for other in others:
            assert_same(first, other)


@pytest.mark.parametrize("kind", ["moment", "millis"])
@pytest.mark.parametrize("unit", ["ms", "s", "us", "iso", "auto"])
@pytest.mark.parametrize("path", ["t", "in.t"])
def test_a_moment_is_read_as_what_it_is(kind: str, unit: Any, path: str) -> None:
    """Whatever time_unit says: the schema knows. The time is rounded down to milliseconds."""
    shape: Shape = {"id": "text", "t": kind, "in": {"t": kind}}
    event = {"id": "i", "t": EXAMPLES[kind], "in": {"t": EXAMPLES[kind]}}
    spec = EventSpec(time=path, time_unit=unit, max_skew_ms=1 << 62)
    for form, write in ((avro_form(avro_schema(shape)), avro_bytes), (proto_form(proto_text(shape)), proto_bytes)):
        found = shown(form, write(shape, event), spec=spec)
        assert found.status[0] == 0
        assert found.time_ms[0] == EXAMPLES["millis"]


@pytest.mark.parametrize("unit", ["ms", "s", "us", "iso", "auto"])
def test_a_moment_gives_its_hour_as_what_it_is(unit: Any) -> None:
    """Also where the field is of a kind for times, the event's own time or another one."""
    shape: Shape = {"id": "text", "t": "moment", "in": {"t": "millis"}}
    event = {"id": "i", "t": EXAMPLES["moment"], "in": {"t": EXAMPLES["millis"]}}
    features = FeatureSpec(fields={name: FieldSpec("hour_of_week", time_unit=unit) for name in ("t", "in.t")})
    spec = EventSpec(time="t", time_unit=unit, max_skew_ms=1 << 62)
    hour = value_in_zone("hour_of_week", "UTC", EXAMPLES["millis"])
    for form, write in ((avro_form(avro_schema(shape)), avro_bytes), (proto_form(proto_text(shape)), proto_bytes)):
        found = shown(form, write(shape, event), spec=spec, features=features)
        assert found.keys[:2].tolist() == hash_texts([f"t={hour}".encode(), f"in.t={hour}".encode()])


def test_a_moment_before_1970_or_after_9999_is_refused() -> None:
    """In every unit, as a number would be."""
    shape: Shape = {"id": "text", "t": "millis"}
    for unit in ("ms", "s", "us", "iso", "auto"):
        spec = EventSpec(time="t", time_unit=unit)  # type: ignore[arg-type]
        raws = [avro_bytes(shape, {"id": "i", "t": t}) for t in (-1, 253_402_300_800_000, -(2**62), 2**62)]
        assert shown(avro_form(avro_schema(shape)), *raws, spec=spec).status.tolist() == [Reason.BAD_TIME] * 4


def test_a_number_that_is_none_is_null_and_no_weight() -> None:
    """NaN and infinities: no feature; and never the weight 1 that a missing weight is."""
    shape: Shape = {"id": "text", "w": "double", "f": "float", "d": "double"}
    raws = [
        avro_bytes(shape, {"id": "i", "w": w, "f": math.nan, "d": math.inf}) for w in (1.0, math.nan, math.inf, None)
    ]
    found = shown(avro_form(avro_schema(shape)), *raws, spec=EventSpec(weight="w"))
    assert found.status.tolist() == [0, Reason.BAD_WEIGHT, Reason.BAD_WEIGHT, 0]
    assert np.diff(found.row_start).tolist() == [1, 0, 0, 1]
    form = avro_form(avro_schema(shape))
    clicks = ClickDecoder(EventSpec(value="f"), form).decode(*batch([avro_bytes(shape, {"id": "i", "f": math.nan})]))
    assert clicks.status.tolist() == [Reason.BAD_VALUE]


def test_fields_of_protobuf_without_presence_are_absent_at_their_default() -> None:
    """As in Protobuf's own JSON: so an id that was never set is missing, and a weight that was not is 1."""
    text = 'syntax = "proto3"; message E { string id = 1; double w = 2; int32 hour = 3; optional int32 n = 4; }'
    form, spec = proto_form(text), EventSpec(weight="w")
    hour, n = b"\x18\x05", b"\x20\x00"
    found = shown(form, b"\x0a\x01x" + hour + n, b"\x0a\x01x", hour, spec=spec)
    assert found.status.tolist() == [0, 0, Reason.NO_ID]
    assert found.weight.tolist() == [1, 1, 0]
    expected = shown(JSON, b'{"id":"x","hour":5,"n":0}', b'{"id":"x"}', b'{"hour":5}', spec=spec)
    assert_same(found, expected)


def test_oneofs_maps_and_structs_of_protobuf() -> None:
    """The member that is set; maps by their keys, whatever the order of the bytes; a Struct as the JSON it holds."""
    text = """
        syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/duration.proto";
        message E { string id = 1; oneof what { int32 n = 2; string s = 3; } map<int32, float> m = 4;
                    google.protobuf.Struct more = 5; google.protobuf.Duration took = 6; repeated E inner = 7; }
    """
    entries = [bytes([0x22, 7, 8, key, 0x15, *struct.pack("<f", 0.7)]) for key in (3, 1, 2)]
    more = struct_pb2.Struct()
    more.update({"z": [], "a": True, "n": 3})
    inside = more.SerializeToString()
    raw = b"\x0a\x01x\x10\x00" + b"".join(entries) + bytes([0x2A, len(inside)]) + inside + b"\x32\x02\x08\x02"
    event = {"id": "x", "n": 0, "m": {"1": 0.7, "2": 0.7, "3": 0.7}, "more": {"a": True, "n": 3, "z": []}, "took": 2.0}
    for ordered in (raw, raw.replace(entries[0] + entries[1], entries[1] + entries[0])):
        assert_same(shown(proto_form(text), ordered), shown(JSON, json.dumps(event).encode()))


def test_records_are_read_by_each_writers_schema() -> None:
    """Fields that come, go and change their type; with aliases and defaults where a schema is set."""

    def record(*fields: Any) -> dict[str, Any]:
        made = [dict(zip(("name", "type", "default", "aliases"), field, strict=False)) for field in fields]
        return {"type": "record", "name": "E", "fields": made}

    id_, old = ("id", "string"), record(("id", "string"), ("page", "string"), ("n", "int"))
    new = record(id_, ("site", ["null", "string"], None, ["page"]), ("n", ["long", "string"]), ("more", "int", 7))
    datums = [{"id": "x", "page": "p", "n": 3}, {"id": "x", "site": "p", "n": "3", "more": 1}]
    raws = []
    for schema_id, (schema, datum) in enumerate(zip((old, new), datums, strict=True), 1):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
        raws.append(framed(schema_id, out.getvalue()))
    schemas = Ids({1: Schema("AVRO", json.dumps(old)), 2: Schema("AVRO", json.dumps(new))})
    by_writer = SchemaForm("avro", schemas, True)
    assert_same(shown(by_writer, *raws), shown(JSON, *(json.dumps(datum).encode() for datum in datums)))
    read_as = replace(by_writer, wanted=Schema("AVRO", json.dumps(new)))
    first = {"id": "x", "site": "p", "n": 3, "more": 7}
    assert_same(shown(read_as, *raws), shown(JSON, *(json.dumps(event).encode() for event in (first, datums[1]))))


class Ids(dict[int, Schema]):
    """Schemas by id; `asked` are those that were asked for."""

    trouble = "the registry is away"

    def __init__(self, schemas: dict[int, Schema]) -> None:
        super().__init__(schemas)
        self.asked: list[int] = []

    def known(self, ids: Sequence[int]) -> dict[int, Schema]:
        self.asked += ids
        return {schema_id: self[schema_id] for schema_id in ids if schema_id in self}


SHAPE: Shape = {"id": "text", "n": "long"}
EVENT = {"id": "x", "n": 5}


def test_an_unknown_id_waits_and_known_ones_are_not_asked_for_again() -> None:
    """Nothing of a batch is decoded before all of its schemas are known."""
    schemas = Ids({1: Schema("AVRO", json.dumps(avro_schema(SHAPE)))})
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(), form=SchemaForm("avro", schemas, True))
    raw = avro_bytes(SHAPE, EVENT)
    assert decoder.decode(*batch([framed(1, raw)])).status.tolist() == [0]
    with pytest.raises(SchemaAwaited, match="the registry is away"):
        decoder.decode(*batch([framed(1, raw), framed(2, raw)]))
    assert schemas.asked == [1, 2]
    assert decoder.decode(*batch([framed(1, raw)])).status.tolist() == [0]
    schemas[2] = schemas[1]
    assert decoder.decode(*batch([framed(1, raw), framed(2, raw)])).status.tolist() == [0, 0]
    assert schemas.asked == [1, 2, 2]


def test_an_id_that_the_registry_lacks_is_asked_for_again_with_the_next_batch() -> None:
    """Its records are dead letters until the registry has it."""
    schemas = Ids({7: Schema("")})
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(), form=SchemaForm("avro", schemas, True))
    raw = framed(7, avro_bytes(SHAPE, EVENT))
    assert decoder.decode(*batch([raw, raw])).status.tolist() == [Reason.UNUSABLE_SCHEMA] * 2
    assert decoder.words(raw, Reason.UNUSABLE_SCHEMA) == (
        "the schema cannot be used: the registry has no such schema (schema id 7)"
    )
    schemas[7] = Schema("AVRO", json.dumps(avro_schema(SHAPE)))
    assert decoder.decode(*batch([raw])).status.tolist() == [0]


def test_schemas_that_are_kept_are_bounded() -> None:
    """A topic of ever new ids takes no more memory, and every one of them is read."""
    schemas = Ids(dict.fromkeys(range(600), Schema("AVRO", json.dumps(avro_schema(SHAPE)))))
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(), form=SchemaForm("avro", schemas, True))
    raw = avro_bytes(SHAPE, EVENT)
    for first in range(0, 600, 100):
        found = decoder.decode(*batch([framed(schema_id, raw) for schema_id in range(first, first + 100)]))
        assert not found.status.any()
    assert len(decoder._decoder._readers) == 256  # type: ignore[attr-defined]


# What is no event

GOOD = avro_bytes(SHAPE, EVENT)
BAD_AVRO: dict[str, tuple[bytes, Reason]] = {
    "nothing": (b"", Reason.NOT_FRAMED),
    "JSON": (b'{"id":"x"}', Reason.NOT_FRAMED),
    "a frame that ends": (b"\0\0\0\0", Reason.NOT_FRAMED),
    "another magic byte": (b"\1" + framed(1, GOOD)[1:], Reason.NOT_FRAMED),
    "no record": (framed(1, b""), Reason.NOT_OF_SCHEMA),
    "one byte less": (framed(1, GOOD[:-1]), Reason.NOT_OF_SCHEMA),
    "one byte more": (framed(1, GOOD + b"\0"), Reason.NOT_OF_SCHEMA),
    "text that is not UTF-8": (framed(1, b"\2\2\xff\0"), Reason.NOT_OF_SCHEMA),
    "another schema's": (framed(2, GOOD), Reason.UNUSABLE_SCHEMA),
    "too large": (framed(1, GOOD + bytes(1 << 20)), Reason.TOO_LARGE),
    "an id that is null": (framed(1, avro_bytes(SHAPE, {"n": 1})), Reason.NO_ID),
}


@pytest.mark.parametrize("what", BAD_AVRO)
def test_what_is_no_event_has_a_reason_and_disturbs_nothing(what: str) -> None:
    """Beside good ones; the words name the schema where there is one."""
    raw, reason = BAD_AVRO[what]
    schemas = Ids({1: Schema("AVRO", json.dumps(avro_schema(SHAPE))), 2: Schema("JSON", "{}")})
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(), form=SchemaForm("avro", schemas, True))
    good = framed(1, GOOD)
    found = decoder.decode(*batch([good, raw, good]))
    assert found.status.tolist() == [0, reason, 0]
    assert_same(shown(SchemaForm("avro", schemas, True), good, good), keep(found, [0, 2]))
    words = decoder.words(raw, reason)
    assert words.startswith(reason.text)
    assert ("(schema id " in words) == (reason is not Reason.NOT_FRAMED)


def keep(found: Impressions, rows: list[int]) -> Impressions:
    """Some rows, where the others are empty."""
    return replace(
        found,
        status=found.status[rows],
        time_ms=found.time_ms[rows],
        id_hash=found.id_hash[rows],
        weight=found.weight[rows],
        row_start=np.array([0, *found.row_start[1:][rows]]),
    )


def test_framed_json_is_the_json_behind_the_frame() -> None:
    """No schema is asked for."""
    form, event = SchemaForm("json", None, True), b'{"id":"x","n":5}'
    assert_same(shown(form, framed(1, event)), shown(JSON, event))
    assert shown(form, event, framed(1, b"{")).status.tolist() == [Reason.NOT_FRAMED, Reason.NOT_JSON]
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(), form=form)
    assert decoder.words(framed(3, b"1e999"), Reason.NOT_JSON) == "a number is beyond float64 (schema id 3)"


TWO = (
    'syntax = "proto3"; package p; message A { string x = 1; message B { string id = 1; } } '
    "message C { string id = 1; }"
)


def test_message_indexes_say_which_message_a_record_is() -> None:
    """The first in one byte, others by their path; one without the id, or that is not there, is a dead letter."""
    form, record = proto_form(TWO, framed=True), b"\x0a\x01q"
    expected = shown(JSON, b'{"id":"q"}')
    for indexes in (b"\x04\x00\x00", b"\x02\x02"):
        assert_same(shown(form, framed(1, record, indexes)), expected)
    for indexes, reason in (
        (b"\0", Reason.UNUSABLE_SCHEMA),
        (b"\x02\x04", Reason.NOT_FRAMED),
        (b"", Reason.NOT_FRAMED),
    ):
        assert shown(form, framed(1, record if indexes else b"", indexes)).status.tolist() == [reason]
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(), form=form)
    words = decoder.words(framed(9, record, b"\0"), Reason.UNUSABLE_SCHEMA)
    assert words == "the schema cannot be used: the message p.A has no field id (schema id 9)"


ONE_RECORD = {"type": "record", "name": "E", "fields": [{"name": "id", "type": "string"}]}
UNUSABLE: dict[str, tuple[SchemaForm, str]] = {
    "no JSON": (SchemaForm("avro", OneSchema(Schema("AVRO", "{")), False), "no Avro schema"),
    "no schema": (avro_form({"type": "rekord"}), "no Avro schema"),
    "no id": (avro_form({**ONE_RECORD, "fields": [{"name": "x", "type": "int"}]}), "no field id"),
    "text alone": (avro_form("string"), "no field id"),
    "itself": (
        avro_form({**ONE_RECORD, "fields": [*ONE_RECORD["fields"], {"name": "e", "type": ["null", "E"]}]}),
        "holds itself",
    ),
    "any number of nothing": (
        avro_form({**ONE_RECORD, "fields": [{"name": "id", "type": {"type": "array", "items": "null"}}]}),
        "any number",
    ),
    "several messages": (proto_form(TWO), "`message` must say which of p.A, p.C"),
    "no such message": (proto_form(TWO, "D"), "no message D; there are p.A, p.C"),
    "a message without id": (proto_form(TWO, "A"), "the message p.A has no field id"),
    "no Protobuf": (proto_form("message A { string id = 1 }"), "not expected"),
    "an import that is not there": (proto_form('import "x.proto"; message A {}'), "imports x.proto"),
    "a group": (proto_form("message A { repeated group B = 1 {} }"), "has a group"),
    "an edition": (proto_form('edition = "2023"; message A { string id = 1; }'), "edition"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_schema_file_that_cannot_be_used_is_said_at_the_start(what: str) -> None:
    """With what is amiss; behind a registry it is the same for the records of this id alone."""
    form, words = UNUSABLE[what]
    with pytest.raises(BadSchema, match=words):
        ImpressionDecoder(EventSpec(), FeatureSpec(), form=form)


def test_a_descriptor_set_and_a_message_by_its_short_name() -> None:
    """What `protoc --descriptor_set_out` writes, in base64."""
    shape: Shape = {"id": "text", "in": {"t": "millis"}}
    files = FileDescriptorSet(file=[proto_file(shape)])
    text = base64.b64encode(files.SerializeToString()).decode()
    event = {"id": "x", "in": {"t": 5}}
    for message in ("", "Event", "shop.Event"):
        assert_same(shown(proto_form(text, message), proto_bytes(shape, event)), shown(JSON, json_bytes(shape, event)))


@pytest.mark.parametrize("names", ["reference", "nested reference"])
def test_references_of_avro(names: str) -> None:
    """A type of another subject, that may name a third one."""
    inner = {"type": "enum", "name": "z.Kind", "symbols": ["A", "B"]}
    middle = {
        "type": "record",
        "name": "z.In",
        "fields": [{"name": "k", "type": "Kind"}, {"name": "j", "type": "z.Kind"}],
    }
    main = {
        "type": "record",
        "name": "z.E",
        "fields": [{"name": "id", "type": "string"}, {"name": "in", "type": "z.In"}],
    }
    if names == "reference":
        middle["fields"] = [{"name": "k", "type": inner}, {"name": "j", "type": "z.Kind"}]
    found = [(one["name"], Schema("AVRO", json.dumps(one))) for one in (inner, middle)]
    references = tuple(found if names != "reference" else found[1:])
    form = SchemaForm("avro", OneSchema(Schema("AVRO", json.dumps(main), references)), False)
    expected = shown(JSON, b'{"id":"x","in":{"k":"B","j":"A"}}')
    assert_same(shown(form, b"\2x\2\0", spec=EventSpec()), expected)
    assert shown(form, b"\2x\2\0", spec=EventSpec(time="in.k")).status.tolist() == [Reason.BAD_TIME]


def test_references_of_protobuf() -> None:
    """Imports by their paths; proto2 with text that is not checked."""
    inner = Schema("PROTOBUF", 'syntax = "proto2"; package q; message In { optional string s = 1; }')
    main = 'syntax = "proto3"; import "q/in.proto"; message E { string id = 1; q.In in = 2; }'
    form = SchemaForm("protobuf", OneSchema(Schema("PROTOBUF", main, (("q/in.proto", inner),))), False)
    assert_same(shown(form, b"\x0a\1x\x12\3\x0a\1y"), shown(JSON, b'{"id":"x","in":{"s":"y"}}'))
    assert shown(form, b"\x0a\1x\x12\3\x0a\1\xff").status.tolist() == [Reason.NOT_OF_SCHEMA]


def test_the_json_that_records_stand_for_comes_with_the_columns() -> None:
    """For what names features: an empty text where there is none."""
    form = avro_form(avro_schema(SHAPE))
    data, bounds = shown(form, GOOD, b"\xff", GOOD).as_json or (b"", np.zeros(0))
    text = b'{"id":"x","n":5}'
    assert [bytes(data[begin:end]) for begin, end in pairwise(bounds)] == [text, b"", text]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bytes_of_any_kind_never_raise(data: st.DataObject) -> None:
    """Random ones, and good ones that were changed: each has a status, and good ones beside them are as they were."""
    shape = {"id": "text", **{kind: kind for kind in KINDS}}
    good_event = {"id": "i", **EXAMPLES}
    avro, proto = avro_bytes(shape, good_event), proto_bytes(shape, good_event)
    form, good = data.draw(st.sampled_from([(_WIDE_AVRO, avro), (_WIDE_PROTO, proto)]))
    spoilt = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    raw = data.draw(
        st.sampled_from([bytes(spoilt), bytes(spoilt[: data.draw(st.integers(0, len(good)))])]) | st.binary()
    )
    found = shown(form, good, raw, good)
    assert found.status[0] == found.status[2] == 0
    assert 0 <= found.status[1] <= max(Reason)


_WIDE: Shape = {"id": "text", **{kind: kind for kind in KINDS}}
_WIDE_AVRO, _WIDE_PROTO = avro_form(avro_schema(_WIDE)), proto_form(proto_text(_WIDE))


def test_the_oracle_writes_json_as_users_do() -> None:
    """By hand, once."""
    assert in_json(_WIDE, {"id": "i", **EXAMPLES}) == {
        **EXAMPLES,
        "id": "i",
        "bytes": "AP8=",
        "moment": 1772600767891.234,
        "millis": 1772600767891,
        "decimal": -12.5,
        "date": "2026-03-04",
    }
