"""Records that are read by a schema, or that have the id of one before them: Avro, Protobuf, and framed JSON.

A framed record begins as those of Confluent's serializers do:

    0 (1 byte) | schema id (u32, big-endian) | Protobuf only: message indexes | the record in its format

Message indexes say which message of the schema the record is: their number and each of them as zigzag varints; the one
byte 0 stands for the first message. Ids in headers are not read.

`SchemaDecoder` makes of each record the JSON that it stands for (`schemas`), and hands the batch to the decoder of
JSON. So keys, values, times and reasons are those of JSON. Before that a record is checked for its size, its frame, its
schema, and whether its bytes are what the schema says; the first that fails counts. Of Avro a kernel makes the JSON
(`avro_program`); what it does not take goes the slow way, `_text_of`, which defines the JSON and every reason.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.avro_batch import AvroBatch
from stream_learner.core.events.decoders import (
    EVENT_PADDING,
    AsJson,
    BatchDecoder,
    Columns,
    RecordDecoder,
    SchemaAwaited,
    events_inside,
)
from stream_learner.core.events.fast.avro import FRAME_BYTES, find_ids
from stream_learner.core.events.plan import Plan, Role
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.events.schemas import (
    BadSchema,
    Read,
    Schema,
    Schemas,
    change_at,
    moment_as,
    to_json,
    unread_if_not_finite,
)
from stream_learner.core.machine.memory import buffer_address

KNOWN_READERS = 256
"""So many schemas are kept ready to read by."""
MOST_GROWTH = 16
"""The JSON of a record may have so many times the bytes that `max_event_bytes` allows a record."""


@dataclass(frozen=True)
class SchemaForm:
    """A form of records. format: json, avro or protobuf. schemas: where they come from; None for JSON, which needs
    none. framed: whether the id of its schema stands before each record. message: the name of a Protobuf message, where
    no frame tells it. wanted: the Avro schema as which every record is read (a *reader's schema*); None for the
    writer's.
    """

    format: str
    schemas: Schemas | None
    framed: bool
    message: str = ""
    wanted: Schema | None = None

    def decoder(self, plan: Plan, ones_left_out: bool = False) -> RecordDecoder:
        """A decoder of such records. Raises BadSchema if the schema is known before any record, and cannot be used."""
        return SchemaDecoder(self, plan, ones_left_out)

    def as_json(self, plan: Plan) -> AsJson:
        """As of `decoders.Form`: whatever fields their schema has. Raises BadSchema as `decoder`."""
        return SchemaDecoder(self, plan, any_fields=True).as_json

    def reader(self, schema: Schema, needed: tuple[str, ...]) -> Read:
        """What reads records of a schema. needed: fields that it must have. Raises BadSchema."""
        if not schema.kind:
            raise BadSchema("the registry has no such schema")
        if schema.kind != self.format.upper():
            raise BadSchema(f"the schema is of type {schema.kind}, and the format is {self.format}")
        if self.format == "avro":
            from stream_learner.core.events.avro import avro_reader

            return avro_reader(schema, self.wanted, needed)
        from stream_learner.core.events.protobuf import protobuf_reader

        return protobuf_reader(schema, self.message, needed, framed=self.framed)

    def program(self, schema: Schema, changes: list[tuple[str, str]]) -> NDArray[np.uint8] | None:
        """What the kernel follows to make JSON of records of a schema that `reader` took; None if it has none."""
        if self.format != "avro" or self.wanted is not None:
            return None
        from stream_learner.core.events.avro_program import avro_program

        return avro_program(schema, changes)


class _Known(NamedTuple):
    """What a schema's records are read by."""

    read: Read
    program: NDArray[np.uint8] | None = None


class SchemaDecoder:
    """Decodes batches of records of one form. One decoder serves one thread at a time."""

    def __init__(self, form: SchemaForm, plan: Plan, ones_left_out: bool = False, *, any_fields: bool = False) -> None:
        """any_fields: whether a schema may lack those of id and time. Raises BadSchema as `SchemaForm.decoder`."""
        self._form = form
        self._most_bytes = plan.max_event_bytes
        self._json = BatchDecoder(replace(plan, max_event_bytes=MOST_GROWTH * self._most_bytes), ones_left_out)
        by_role = {role: path for path, role in plan.roles.items()}
        self._needed = tuple(by_role[role] for role in (Role.ID, Role.TIME) if role in by_role and not any_fields)
        units: list[tuple[str, str]] = [
            (path, plan.time_unit if role is Role.TIME else "") for role, path in by_role.items() if role is not Role.ID
        ]
        timed = plan.features.fields.items() if plan.features is not None else ()
        self._units = units + [(name, found.time_unit) for name, found in timed if found.is_time]
        """Paths where a moment is written in a unit, or with "" a number must be finite."""
        self._changes = [(path, moment_as(unit) if unit else unread_if_not_finite) for path, unit in self._units]
        self._growth = 2.0
        """About how many times the bytes of the records their texts have."""
        self.handed_over = 0
        """How many records so far went the slow way, good or bad."""
        self._readers: OrderedDict[int, _Known] = OrderedDict()
        self._absent: list[int] = []
        """Ids that the registry did not have when it was asked last."""
        if form.schemas is not None and not form.framed:
            self._make_known([0])
            self._check_one()

    def _check_one(self) -> None:
        try:
            self._readers[0].read(b"")
        except Refused as refused:
            if refused.reason is Reason.UNUSABLE_SCHEMA:
                raise BadSchema(str(refused)) from None

    def decode(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], times_ms: NDArray[np.int64] | None = None
    ) -> Columns:
        """As of `RecordDecoder`. `as_json` of the columns is what the records stand for."""
        bounds = np.ascontiguousarray(bounds, np.int64)
        n, inside, ids = len(bounds) - 1, events_inside(data, bounds), [0]
        if self._form.framed and self._form.schemas is not None:
            while self._absent:
                self._readers.pop(self._absent.pop(), None)
            ids = _ids(data, bounds)
            self._make_known(ids)
        known = [(schema_id, self._readers[schema_id].program) for schema_id in ids if schema_id in self._readers]
        batch = AvroBatch(
            {schema_id: program for schema_id, program in known if program is not None},
            FRAME_BYTES if self._form.framed else 0,
            self._most_bytes,
            MOST_GROWTH * self._most_bytes,
            n,
        )
        size = int(bounds[n] - bounds[0])
        batch.begin(int(size * self._growth))
        refused: dict[int, Reason] = {}
        if inside > 0:
            self._add_texts(batch, buffer_address(data), data, bounds[: inside + 1], 0, refused)
        if inside < n:
            start = int(bounds[inside])
            padded = np.frombuffer(bytes(data[start:]) + EVENT_PADDING, np.uint8)
            self._add_texts(batch, buffer_address(padded) - start, data, bounds, inside, refused)
        as_json = np.zeros(n + 1, np.int64)
        np.cumsum(batch.lengths, out=as_json[1:])
        text = batch.text()
        self._growth = min(max(1.0, 1.1 * len(text) / max(size, 1)), MOST_GROWTH)
        out = self._json.decode(text, as_json, times_ms)
        out.status[list(refused)] = list(refused.values())
        out.as_json = text, as_json
        return out

    def _add_texts(
        self,
        batch: AvroBatch,
        address: int,
        data: bytes | NDArray[np.uint8],
        bounds: NDArray[np.int64],
        i: int,
        refused: dict[int, Reason],
    ) -> None:
        """Add the texts of records from i on; of those at which the kernel stops by `_text_of`."""
        while (i := batch.run(address, bounds, i)) < len(bounds) - 1:
            self.handed_over += 1
            try:
                batch.add(i, self._text_of(bytes(data[int(bounds[i]) : int(bounds[i + 1])])))
            except Refused as error:
                refused[i] = error.reason
            i += 1

    def words(self, raw: bytes, reason: Reason) -> str:
        """Why a record could not be used, with the id of its schema."""
        text = reason.text
        if len(raw) <= self._most_bytes:
            try:
                text = self._json.words(self._text_of(raw), reason)
            except Refused as refused:
                text = str(refused)
            except SchemaAwaited:
                pass
        framed = self._form.framed and len(raw) >= FRAME_BYTES and raw[0] == 0
        return f"{text} (schema id {_id_of(raw)})" if framed else text

    def as_json(self, raw: bytes) -> bytes:
        """The JSON that a record stands for. Raises Refused with all `words`, SchemaAwaited."""
        try:
            return self._text_of(raw)
        except Refused as refused:
            raise Refused(refused.reason, self.words(raw, refused.reason)) from None

    def _text_of(self, raw: bytes) -> bytes:
        """The JSON that a record stands for. Raises Refused, SchemaAwaited."""
        if len(raw) > self._most_bytes:
            raise Refused(Reason.TOO_LARGE)
        form, schema_id = self._form, 0
        if form.framed:
            if len(raw) < FRAME_BYTES or raw[0] != 0:
                raise Refused(Reason.NOT_FRAMED)
            schema_id, raw = _id_of(raw), raw[FRAME_BYTES:]
        if form.schemas is None:
            return raw
        if schema_id not in self._readers:
            self._make_known([schema_id])
        event = self._readers[schema_id].read(raw)
        for path, change in self._changes:
            change_at(event, path, change)
        try:
            return to_json(event)
        except TypeError:  # nested too deeply
            raise Refused(Reason.NOT_OF_SCHEMA) from None

    def _make_known(self, ids: list[int]) -> None:
        """Have what reads the records of these schemas. Raises SchemaAwaited if one is not known yet."""
        missing = [schema_id for schema_id in ids if schema_id not in self._readers]
        for schema_id in ids:
            if schema_id in self._readers:
                self._readers.move_to_end(schema_id)
        if not missing or self._form.schemas is None:
            return
        found = self._form.schemas.known(missing)
        for schema_id, schema in found.items():
            self._readers[schema_id] = self._reader(schema)
            if not schema.kind:
                self._absent.append(schema_id)
        if len(found) < len(missing):
            raise SchemaAwaited(self._form.schemas.trouble)
        while len(self._readers) > max(KNOWN_READERS, len(ids)):
            self._readers.popitem(last=False)

    def _reader(self, schema: Schema) -> _Known:
        try:
            return _Known(self._form.reader(schema, self._needed), self._form.program(schema, self._units))
        except BadSchema as error:
            return _Known(partial(_refuse, str(error)))


def _refuse(why: str, raw: bytes) -> None:
    raise Refused(Reason.UNUSABLE_SCHEMA, f"{Reason.UNUSABLE_SCHEMA.text}: {why}")


def _id_of(raw: bytes) -> int:
    return int.from_bytes(raw[1:FRAME_BYTES], "big")


def _ids(data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> list[int]:
    """The schema ids of the framed records of a batch, each once."""
    found = np.empty(len(bounds) - 1, np.int64)
    if len(data) == 0:
        return []
    count = find_ids(buffer_address(data), buffer_address(bounds), len(found), buffer_address(found))
    return sorted(set(found[:count].tolist()))
