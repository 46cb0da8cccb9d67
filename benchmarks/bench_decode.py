"""Decoding and hashing of raw events, beside orjson.loads on the same bytes. One thread, CPU time.

It must never measure events that the decoder has not been shown the fields of: a role meets those once.
"""

from __future__ import annotations

import base64
import io
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

from stream_learner.core.events.decoders import ClickDecoder, EventSpec, ImpressionDecoder
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec, FieldSpec
from stream_learner.core.events.schema_forms import SchemaForm
from stream_learner.core.events.schemas import OneSchema, Schema
from stream_learner.core.parts import DECODING, compile_parts

INTEGERS, STRINGS = 13, 26
ZIPF = 1.05
VALUES = 1_000_000
BATCH = 1000

Row = dict[str, Any]
Work = Callable[[bytes, NDArray[np.int64], NDArray[np.int64]], Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note; the ordinary kind of event first, then other kinds of JSON."""
    compile_parts([DECODING])
    n = 4_000 if quick else 40_000
    events = _events(n)
    categories = FeatureSpec(categorical=tuple(f"I{i}" for i in range(1, INTEGERS + 1)))
    kept_ns, dropped_ns = _loads_ns(events, True), _loads_ns(events, False)
    decode_ns = _ns(ImpressionDecoder(EventSpec(), categories, ones_left_out=True).decode, events)
    size = sum(map(len, events)) / n
    of = f"{size:.0f} bytes, {INTEGERS} integers as categories, {STRINGS} strings, batches of {BATCH}"
    rows = [
        _row("impressions", 1e9 / decode_ns, "1/s", of),
        _row("impression", decode_ns, "ns", of),
        _row("orjson_loads", kept_ns, "ns", "the same bytes, all parsed events kept"),
        _row("orjson_loads_dropped", dropped_ns, "ns", "the same bytes, each parsed event dropped at once"),
        _row("times_orjson", kept_ns / decode_ns, "x", "decoding and hashing against orjson.loads, events kept"),
        _row("times_orjson_dropped", dropped_ns / decode_ns, "x", "the same, events dropped at once"),
        _row("click", _ns(ClickDecoder(EventSpec()).decode, events), "ns", "only the id wanted, the rest skipped"),
    ]
    rows += _other_kinds(events)
    rows += _in_schemas(events, categories)
    rows.append(_row("one_event", _one_ns(events, categories) / 1000, "us", "encode_json, one event a call"))
    return rows


def _other_kinds(events: list[bytes]) -> list[Row]:
    """Events with the same fields, as other producers write them."""
    plain = [orjson.loads(event) for event in events]
    kinds: dict[str, tuple[str, list[bytes], FeatureSpec]] = {
        "numeric": ("integers as numbers", events, FeatureSpec()),
        "log": ("integers log-scaled", events, FeatureSpec(fields={"I1": FieldSpec("log"), "I2": FieldSpec("log")})),
        "crosses": ("three crosses of two", events, FeatureSpec(crosses=(("C1", "C2"), ("C3", "C4"), ("C5", "C6")))),
        "blanks": ("a blank after each comma and colon", [_spaced(event) for event in events], FeatureSpec()),
        "nested": ("strings in an object, integers in a list", [_nested(event) for event in plain], FeatureSpec()),
        "utf8": ("strings of two-byte letters", [_in_greek(event, False) for event in plain], FeatureSpec()),
        "escapes": ("the same letters as \\u escapes", [_in_greek(event, True) for event in plain], FeatureSpec()),
    }
    return [
        _row(f"impression_{name}", _ns(ImpressionDecoder(EventSpec(), spec).decode, raws), "ns", note)
        for name, (note, raws, spec) in kinds.items()
    ]


def _in_schemas(events: list[bytes], spec: FeatureSpec) -> list[Row]:
    """The same events as framed Avro and Protobuf, beside the libraries that read them."""
    plain = [orjson.loads(event) for event in events[:4_000]]
    first = plain[0]
    avro = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": name, "type": ["null", "long" if isinstance(value, int) else "string"]}
            for name, value in first.items()
        ],
    }
    proto = descriptor_pb2.FileDescriptorProto(name="event.proto", package="bench", syntax="proto2")
    message = proto.message_type.add(name="Event")
    for number, (name, value) in enumerate(first.items(), 1):
        field = message.field.add(name=name, number=number, label=1)
        field.type = field.TYPE_INT64 if isinstance(value, int) else field.TYPE_STRING
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(proto.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Event"))
    parsed, frame = fastavro.parse_schema(avro), b"\0\0\0\0\1"

    def as_avro(event: Row) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, event)
        return out.getvalue()

    records = {"avro": [as_avro(event) for event in plain]}
    records["protobuf"] = [made(**event).SerializeToString() for event in plain]
    alone: dict[str, Callable[[bytes], Any]] = {
        "avro": lambda record: fastavro.schemaless_reader(io.BytesIO(record), parsed, None),
        "protobuf": made.FromString,
    }
    schemas = {
        "avro": Schema("AVRO", orjson.dumps(avro).decode()),
        "protobuf": Schema("PROTOBUF", base64.b64encode(proto.SerializeToString()).decode()),
    }
    rows = []
    for name, raws in records.items():
        framed = [frame + (b"\0" if name == "protobuf" else b"") + raw for raw in raws]
        form = SchemaForm(name, OneSchema(schemas[name]), framed=True)
        decoder = ImpressionDecoder(EventSpec(), spec, ones_left_out=True, form=form)
        rows.append(_row(f"impression_{name}", _ns(decoder.decode, framed), "ns", "the same events, framed"))
        rows.append(_row(f"{name}_alone", _each_ns(alone[name], raws), "ns", "read by its library alone"))
    return rows


def _each_ns(read: Callable[[bytes], Any], raws: list[bytes]) -> float:
    """Nanoseconds a record of one call each, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begin = time.process_time_ns()
        for raw in raws:
            read(raw)
        best = min(best, (time.process_time_ns() - begin) / len(raws))
    return best


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": f"decode.{name}", "value": round(value, 1), "unit": unit, "note": note}


def _events(n: int) -> list[bytes]:
    """Click-log-like events: Zipf-distributed values, 13 small integers and 26 hexadecimal words."""
    rng = np.random.default_rng(1)
    integers = rng.zipf(1.3, (n, INTEGERS)) % 1_000_000
    words = rng.zipf(ZIPF, (n, STRINGS)) % VALUES
    ids = rng.integers(1 << 62, size=n)
    return [
        orjson.dumps(
            {"id": f"impression-{ids[i]:020x}", "campaign": f"c{words[i, 0] % 97:04d}"}
            | {f"I{j + 1}": int(integers[i, j]) for j in range(INTEGERS)}
            | {f"C{j + 1}": f"{zlib.crc32(b'%d.%d' % (j, words[i, j])):08x}" for j in range(1, STRINGS)}
        )
        for i in range(n)
    ]


def _spaced(event: bytes) -> bytes:
    return event.replace(b",", b", ").replace(b":", b": ")


def _nested(event: dict[str, Any]) -> bytes:
    strings = {name: value for name, value in event.items() if isinstance(value, str) and name != "id"}
    integers = [value for value in event.values() if isinstance(value, int)]
    return orjson.dumps({"id": event["id"], "ad": strings, "counts": integers})


def _in_greek(event: dict[str, Any], escaped: bool) -> bytes:
    """The event with its strings, the id excepted, in letters that are not ASCII."""
    letters = str.maketrans("0123456789abcdef", "αβγδεζηθικλμνξοπ")
    words = {k: v.translate(letters) if isinstance(v, str) and k != "id" else v for k, v in event.items()}
    raw = orjson.dumps(words)
    if not escaped:
        return raw
    return "".join(c if ord(c) < 128 else f"\\u{ord(c):04x}" for c in raw.decode()).encode()


def _batches(events: list[bytes]) -> list[tuple[bytes, NDArray[np.int64], NDArray[np.int64]]]:
    batches = []
    for first in range(0, len(events), BATCH):
        some = events[first : first + BATCH]
        bounds = np.zeros(len(some) + 1, np.int64)
        np.cumsum([len(event) for event in some], out=bounds[1:])
        batches.append((b"".join(some), bounds, np.full(len(some), 1_700_000_000_000)))
    return batches


def _ns(work: Work, events: list[bytes]) -> float:
    """CPU time an event, the best of three passes."""
    batches = _batches(events)
    work(*batches[0])
    best = float("inf")
    for _ in range(3):
        start = time.process_time_ns()
        for data, bounds, times in batches:
            work(data, bounds, times)
        best = min(best, time.process_time_ns() - start)
    return best / len(events)


def _loads_ns(events: list[bytes], keep: bool) -> float:
    best = float("inf")
    for _ in range(3):
        kept: deque[Any] = deque(maxlen=None if keep else 0)
        start = time.process_time_ns()
        kept.extend(map(orjson.loads, events))
        best = min(best, time.process_time_ns() - start)
    return best / len(events)


def _one_ns(events: list[bytes], spec: FeatureSpec) -> float:
    encoder = FeatureEncoder(spec, ("id",))
    pairs = [(event, np.array([0, len(event)])) for event in events[:2000]]
    encoder.encode_json(*pairs[0])
    start = time.process_time_ns()
    for raw, bounds in pairs:
        encoder.encode_json(raw, bounds)
    return (time.process_time_ns() - start) / len(pairs)
