"""Records of Avro, through the decoder of the joiner: by the kernel, against fastavro.

The first byte of an input chooses the schema and how events are read. In half of the batches the memory ends with the
last record, in the other half other bytes follow, so that the kernel reads records at the edge. The memory that it
writes to ends with the last byte that it may write.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import orjson

from proofs.fuzz.guard import GuardedBuffer, Side, fenced_arrays
from proofs.fuzz.mutate import mutated
from proofs.fuzz.target import Target, Wrong
from proofs.fuzz.targets.events import MISLEADING, NOW_MS, rows
from stream_learner.core.events import avro_batch, avro_program, decoders, schema_forms
from stream_learner.core.events.decoders import Columns, EventSpec
from stream_learner.core.events.fast import fields
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.schema_forms import SchemaDecoder, SchemaForm
from stream_learner.core.events.schemas import OneSchema, Schema
from tests.core.events.decode_help import ByDefinition, batch


def _record(name: str, **kinds: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in kinds.items()]}


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["NONE", "RED", "BLUE"]}
MICROS = _logical("long", "timestamp-micros")
SCHEMAS: tuple[Any, ...] = (
    _record("Flat", id="string", t=["null", MICROS], w=["null", "double"], a=["null", "string"], b="long", c=COLOUR),
    _record(
        "Nested",
        id=["string", "long"],
        t="long",
        w="float",
        l={"type": "array", "items": ["null", _record("In", x="double", y="boolean", c=COLOUR, z=["null", "Colour"])]},
        m={"type": "map", "values": {"type": "array", "items": "int"}},
    ),
    _record(
        "Logical",
        id="string",
        t=_logical("long", "timestamp-millis"),
        w=_logical("bytes", "decimal", precision=30, scale=3),
        d=_logical("int", "date"),
        u=_logical("fixed", "uuid", name="U", size=16),
        f={"type": "fixed", "name": "F", "size": 5},
        n=_logical("long", "timestamp-nanos"),
        e={"type": "map", "values": "bytes"},
        s="float",
    ),
)
SPECS = (
    EventSpec(),
    EventSpec(time="t", weight="w", max_skew_ms=1 << 62, max_event_bytes=100),
    EventSpec(time="t", weight="w", time_unit="auto", max_skew_ms=1 << 62),
)
FEATURES = FeatureSpec(fields={"n": FieldSpec("hour", time_unit="s"), "l.x": FieldSpec("number")})


class AvroRecords(Target):
    """Avro: every schema with every specification."""

    name = "avro-records"
    batch_inputs = 400

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._buffers: dict[Side, GuardedBuffer] = {"end": GuardedBuffer("end"), "begin": GuardedBuffer("begin")}
        self._slow = [self._decoder(number, ByDefinition) for number in range(len(SCHEMAS) * len(SPECS))]

    def _decoder(self, number: int, form: type[SchemaForm]) -> SchemaDecoder:
        schema = OneSchema(Schema("AVRO", json.dumps(SCHEMAS[number % len(SCHEMAS)])))
        plan = SPECS[number // len(SCHEMAS)].impression_plan(FEATURES)
        return SchemaDecoder(form("avro", schema, framed=False), plan)

    def make(self, rng: Random) -> bytes:
        raw = rng.choice(self.corpus)
        number = raw[0] % len(SCHEMAS) + len(SCHEMAS) * rng.randrange(len(SPECS))
        body = raw[1:] if rng.random() < 0.1 else mutated(rng, raw[1:], [other[1:] for other in self.corpus])
        return bytes((number,)) + body

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        groups: dict[int, list[bytes]] = defaultdict(list)
        for data in inputs:
            if data:
                groups[data[0] % len(self._slow)].append(data[1:])
        return sum(self._check_group(number, raws, side) for number, raws in groups.items())

    def _check_group(self, number: int, raws: list[bytes], side: Side) -> int:
        data, bounds = batch(raws)
        times = np.full(len(raws), NOW_MS)
        mark = zlib.crc32(data)
        behind = MISLEADING[mark % len(MISLEADING)] if mark & 64 else b""
        wanted = self._slow[number].decode(data, bounds, times)
        with fenced_arrays(side, avro_batch, avro_program, decoders, fields, schema_forms):
            got = self._decoder(number, SchemaForm).decode(self._buffers[side].put(data, behind), bounds, times)
        for raw, found, right in zip(raws, rows(got), rows(wanted), strict=True):
            if found != right:
                raise Wrong(f"schema and specification {number}: {raw[:300]!r} is {found}, not {right}")
        for raw, found_json, right_json in zip(raws, _parsed(got), _parsed(wanted), strict=True):
            if found_json != right_json:
                raise Wrong(f"schema and specification {number}: {raw[:300]!r} is {found_json}, not {right_json}")
        return int((wanted.status == 0).sum())


def _parsed(columns: Columns) -> list[str]:
    """What the JSON of each record says; a map may have a key twice there, and the last of them counts."""
    assert columns.as_json is not None
    data, bounds = columns.as_json
    return [repr(orjson.loads(bytes(data[a:b]) or b"null")) for a, b in itertools.pairwise(bounds.tolist())]
