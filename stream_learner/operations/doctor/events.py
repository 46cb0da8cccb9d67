"""What the records of a topic are: JSON objects or something else, and the fields of those that are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import orjson

from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.events.reference import beyond_float64, parse_event, read_event, walk
from stream_learner.operations.doctor.findings import ENOUGH, WORTH_A_WORD, Finding, Severity, percent
from stream_learner.operations.doctor.sample import Record, TopicSample
from stream_learner.wording import count_of

Name = Literal["impressions", "clicks"]
OBJECT = "JSON objects"
NULL, FRAMED, NO_OBJECT, TEXT, BINARY = "null", "framed by a schema registry", "other JSON", "text", "binary"
BEYOND = "JSON with a number beyond float64"
_WORDS = {NULL: "null", FRAMED: "framed", NO_OBJECT: "no_object", TEXT: "text", BINARY: "binary", BEYOND: "beyond"}
_MEANS = {
    NULL: "a null value has no event; it is a delete marker of a compacted topic",
    FRAMED: "the producers use a schema registry's serializer (Avro, Protobuf, JSON Schema); only plain JSON is read",
    BEYOND: "a number as 1e400 has no value here, nor in most programs, and its event is a dead letter",
}
_CHANGE = {
    NULL: "nothing in the configuration: stop the producer of nulls, or raise join.max_bad_share",
    FRAMED: "nothing in the configuration: write plain JSON to a topic of its own, as a connector's JsonConverter does",
}
SOME = 2_000
"""So many events tell what a field is, how records are keyed, and what the joiner would refuse."""


@dataclass(frozen=True)
class Event:
    """fields: the first value of each path, names joined as in the configuration; no objects and lists."""

    record: Record
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """One of the two topics: its sample, how many records there are of each form with one of them, and the events."""

    name: Name
    sample: TopicSample
    forms: Counter[str]
    blocks: tuple[Mapping[int, list[Event]], ...]
    examples: Mapping[str, Record]

    @cached_property
    def events(self) -> list[Event]:
        """All events, block by block, partition by partition."""
        return [event for block in self.blocks for events in block.values() for event in events]

    @cached_property
    def some(self) -> list[Event]:
        """About `SOME` of the events, of all blocks and partitions, in the same order."""
        return self.events[:: len(self.events) // SOME + 1]

    def setting(self, name: str) -> str:
        """The path of a setting of this topic."""
        return f"input.{self.name}.{name}"


def side_of(name: Name, sample: TopicSample) -> Side:
    """Parse a sample."""
    forms: Counter[str] = Counter()
    examples: dict[str, Record] = {}
    blocks = []
    for block in sample.blocks:
        parsed: dict[int, list[Event]] = {}
        for partition, records in block.items():
            parsed[partition] = []
            for record in records:
                form, event = _parsed(record.value)
                forms[form] += 1
                examples.setdefault(form, record)
                if event is not None:
                    parsed[partition].append(Event(record, event))
        blocks.append(parsed)
    return Side(name, sample, forms, tuple(blocks), examples)


def _parsed(value: bytes | None) -> tuple[str, dict[str, Any] | None]:
    """The form of a value, and the fields of an object.

    >>> _parsed(b'{"a": {"b": [1, 2]}}'), _parsed(b"\\0\\0\\0\\0\\7\\2a")[0], _parsed(b"[1]")[0], _parsed(b"a=1")[0]
    (('JSON objects', {'a.b': 1}), 'framed by a schema registry', 'other JSON', 'text')
    """
    if value is None:
        return NULL, None
    if len(value) > 5 and value[0] == 0:
        return FRAMED, None
    try:
        found = orjson.loads(value)
    except (ValueError, RecursionError):
        return (BEYOND if beyond_float64(value) else TEXT if _is_text(value) else BINARY), None
    if not isinstance(found, dict):
        return NO_OBJECT, None
    fields: dict[str, Any] = {}
    for name, inner in walk(found, lambda name: True):
        if not isinstance(inner, (dict, list)):
            fields.setdefault(name, inner)
    return OBJECT, fields


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable() or b"\n" in value
    except UnicodeDecodeError:
        return False


def check_forms(side: Side, max_bad_share: float) -> Iterable[Finding]:
    """Records that are no JSON objects."""
    total, topic = side.forms.total(), side.sample.topic
    if total == 0:
        means = "nothing can be said of its events, and nothing is learned before there are some"
        change = f"{side.setting('topic')}, if it is another topic; else look again once events flow"
        yield Finding("warns", f"{side.name}_empty", f"{topic} holds no record", means, change)
    for form, count in side.forms.items():
        if form == OBJECT or count / total <= WORTH_A_WORD:
            continue
        record = side.examples[form]
        schema = f", schema id {int.from_bytes(record.value[1:5], 'big')}" if form == FRAMED and record.value else ""
        seen = f"{percent(count / total)} of {count_of(total, 'record')} of {topic} are {form}{schema}, such as "
        seen += f"partition {record.partition} offset {record.offset}"
        means = _MEANS.get(form, "an event is one JSON object per record")
        change = _CHANGE.get(form, f"{side.setting('topic')}, if it is another topic; else the producer")
        yield Finding(severity_of(count / total, max_bad_share), f"{side.name}_{_WORDS[form]}", seen, means, change)


def severity_of(share: float, max_bad_share: float) -> Severity:
    """Of a share of records that cannot be used."""
    return "stops" if share > max_bad_share else "warns"


def check_usable(side: Side, plan: Plan, max_bad_share: float, told: set[Reason]) -> Iterable[Finding]:
    """Events that the joiner would refuse for a reason that no other check has `told`."""
    events = side.some
    reasons: Counter[Reason] = Counter()
    for event in events:
        try:
            read_event(plan, parse_event(event.record.value or b"", plan.max_event_bytes), event.record.time_ms)
        except Refused as refused:
            reasons[refused.reason] += 1
    for reason, count in reasons.items():
        if reason not in told and count > WORTH_A_WORD * len(events) and len(events) >= ENOUGH:
            share, name = count / len(events), f"{side.name}_{reason.name.lower()}"
            seen = f"{percent(share)} of {len(events):,} events of {side.sample.topic}: {reason.text}"
            change = "the setting of that name (docs/configuration.md), or the producer"
            yield Finding(severity_of(share, max_bad_share), name, seen, "they would be dead letters", change)


def values_of(events: Iterable[Event], path: str) -> list[Any]:
    """The values of a field that are there and not null."""
    return [value for event in events if (value := event.fields.get(path)) is not None]


def paths_of(events: Iterable[Event]) -> Counter[str]:
    """How many events have each path with a value."""
    return Counter(path for event in events for path, value in event.fields.items() if value is not None)
