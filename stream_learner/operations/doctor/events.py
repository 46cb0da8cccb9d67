"""What the records of a topic are: events, each a JSON object or what stands for one, or something else; and the fields
of those that are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import orjson

from stream_learner.core.events.decoders import AsJson
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.events.reference import PlainRow, beyond_float64, parse_event, read_event, walk
from stream_learner.operations.doctor.findings import ENOUGH, WORTH_A_WORD, Finding, Severity, percent
from stream_learner.operations.doctor.sample import Record, TopicSample
from stream_learner.wording import count_of

Name = Literal["impressions", "clicks"]
OBJECT = "events"
NULL, FRAMED, NO_OBJECT, TEXT, BINARY = "null", "behind a schema registry", "other JSON", "text", "binary"
BEYOND, NAN = "JSON with a number beyond float64", "JSON but for NaN or Infinity"
PACKED, WIDE, MARKED = "compressed by their producer (gzip or zstd)", "text in UTF-16", "text after a byte order mark"
_WORDS = {NULL: "null", FRAMED: "framed", NO_OBJECT: "no_object", TEXT: "text", BINARY: "binary", BEYOND: "beyond"}
_WORDS |= {NAN: "nan", PACKED: "packed", WIDE: "utf16", MARKED: "marked"}
_WORDS |= {reason.text: reason.name.lower() for reason in Reason}
_BEGINNINGS = {
    b"\x1f\x8b": PACKED,
    b"\x28\xb5\x2f\xfd": PACKED,
    b"\xff\xfe": WIDE,
    b"\xfe\xff": WIDE,
    b"\xef\xbb\xbf": MARKED,
}
"""The first bytes of a value that tell what it is."""
_MEANS = {
    NULL: "a null value has no event; it is a delete marker of a compacted topic",
    FRAMED: "the producers use a schema registry's serializer, and the configuration says that they write plain JSON",
    BEYOND: "a number as 1e400 has no value here, nor in most programs, and its event is a dead letter",
    NAN: "NaN and Infinity are no JSON, though Python's json writes them, and their event is a dead letter",
    PACKED: "values that are compressed one by one are not read; compression of Kafka itself is",
    WIDE: "JSON is read in UTF-8 only",
    MARKED: "the three bytes EF BB BF before the JSON are no part of it, and the event is a dead letter",
}
_CHANGE = {
    NAN: "the producer: null in place of NaN (json.dumps(…, allow_nan=False) finds them)",
    PACKED: "the producer: send plain JSON, with compression.type: zstd of the Kafka client",
    WIDE: "the producer: encode as UTF-8",
    MARKED: "the producer: encode as UTF-8 without a byte order mark (utf-8, not utf-8-sig)",
    NULL: "nothing in the configuration: stop the producer of nulls, or raise join.max_bad_share",
}
LONGEST_NAME = 1_000
"""The longest name of a field that a configuration may have."""
SOME = 2_000
"""So many events tell what a field is, how records are keyed, and what the joiner would refuse."""


@dataclass(frozen=True)
class Event:
    """fields: the first value of each path, names joined as in the configuration; no objects and lists. more: the
    further values of paths that have several, as elements of lists do. lists: paths whose values are elements of a list
    of values, not of objects: no role reads these.
    """

    record: Record
    text: bytes
    """The JSON that its value stands for."""
    fields: Mapping[str, Any]
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    lists: Set[str] = frozenset()


@dataclass(frozen=True)
class Side:
    """One of the two topics: its sample, how many records there are of each form with one of them, and the events."""

    name: Name
    sample: TopicSample
    forms: Counter[str]
    blocks: tuple[Mapping[int, list[Event]], ...]
    examples: Mapping[str, tuple[Record, str]]
    """A record of each form, and why it cannot be read if its format says so."""
    firsts: Sequence[Event] = ()
    """Those at the beginning of the topic, where they are not among the others."""

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


def side_of(name: Name, sample: TopicSample, as_json: AsJson = bytes) -> Side:
    """Parse a sample. as_json: of its records."""
    forms: Counter[str] = Counter()
    examples: dict[str, tuple[Record, str]] = {}

    def parsed(records: Iterable[Record]) -> Iterator[Event]:
        for record in records:
            text, words = record.value, ""
            try:
                text = None if text is None else as_json(text)
                form, event = _parsed(text)
            except Refused as refused:
                form, event, words = refused.reason.text, None, str(refused)
            forms[form] += 1
            examples.setdefault(form, (record, words))
            if event is not None:
                yield Event(record, text or b"", *event)

    blocks = tuple({partition: [*parsed(records)] for partition, records in block.items()} for block in sample.blocks)
    of_sample = forms.copy()
    firsts = [event for records in sample.firsts.values() for event in parsed(records)]
    return Side(name, sample, of_sample, blocks, examples, firsts)


def _parsed(value: bytes | None) -> tuple[str, tuple[dict[str, Any], dict[str, list[Any]], set[str]] | None]:
    """The form of a value, and the fields of an object as in `Event`.

    >>> _parsed(b'{"a": {"b": [1, 2]}}'), _parsed(b"\\0\\0\\0\\0\\7\\2a")[0], _parsed(b"[1]")[0], _parsed(b"a=1")[0]
    (('events', ({'a.b': 1}, {'a.b': [2]}, {'a.b'})), 'behind a schema registry', 'other JSON', 'text')
    """
    if value is None:
        return NULL, None
    if len(value) > 5 and value[0] == 0 and value[1:3] != b"{\0":
        return FRAMED, None
    try:
        found = orjson.loads(value)
    except (ValueError, RecursionError):
        return _other_form(value), None
    if not isinstance(found, dict):
        return NO_OBJECT, None
    fields: dict[str, Any] = {}
    more: dict[str, list[Any]] = {}
    lists: set[str] = set()
    for name, inner in walk(found, lambda name: True):
        if isinstance(inner, (dict, list)):
            lists |= {name} if isinstance(inner, list) else set()
            continue
        if name in fields:
            more.setdefault(name, []).append(inner)
        else:
            fields[name] = inner
    return OBJECT, (fields, more, lists & fields.keys())


def _other_form(value: bytes) -> str:
    """What a value is that is no JSON.

    >>> _other_form(b'{"p": NaN}'), _other_form('{"a": 1}'.encode("utf-16-le")), _other_form(b"\\x1f\\x8b")[:10]
    ('JSON but for NaN or Infinity', 'text in UTF-16', 'compressed')
    """
    if beyond_float64(value):
        return BEYOND
    known = next((form for begin, form in _BEGINNINGS.items() if value.startswith(begin)), None)
    if known is not None:
        return known
    if b"\0" in value[:4] and _is_text(value.replace(b"\0", b"")):
        return WIDE
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return TEXT if _is_text(value) else BINARY
    return NAN


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable() or b"\n" in value
    except UnicodeDecodeError:
        return False


def check_forms(side: Side, max_bad_share: float) -> Iterable[Finding]:
    """Records that are no events."""
    total, topic = side.forms.total(), side.sample.topic
    if total == 0:
        means = "nothing can be said of its events"
        if side.name == "clicks":
            means += "; impressions are learned as not clicked, join.idle_after after their window"
        change = f"{side.setting('topic')}, if it is another topic; else look again once events flow"
        yield Finding("warns", f"{side.name}_empty", f"{topic} holds no record", means, change)
    severity = severity_of(1 - side.forms[OBJECT] / max(total, 1), max_bad_share)  # they count together
    for form, count in side.forms.items():
        if form == OBJECT or count / total <= WORTH_A_WORD:
            continue
        record, words = side.examples[form]
        change = _CHANGE.get(form, f"{side.setting('topic')}, if it is another topic; else the producer")
        what, means = f"are {form}", _MEANS.get(form, "an event is one JSON object per record")
        if words:
            what, means = "cannot be read", "they would be dead letters"
            change = f"{side.setting('format')}, framed or schema (docs/inputs.md); else the registry, or the producer"
        if form == FRAMED and record.value:
            what += f": schema id {int.from_bytes(record.value[1:5], 'big')}"
            change = _of_frame(side, record.value[5:])
        seen = f"{percent(count / total)} of {count_of(total, 'record')} of {topic} {what}, such as "
        seen += f"partition {record.partition} offset {record.offset}" + (f": {words}" if words else "")
        yield Finding(severity, f"{side.name}_{_WORDS[form]}", seen, means, change)


def _of_frame(side: Side, framed: bytes) -> str:
    """The settings by which a record behind a frame can be read."""
    if _parsed(framed)[0] == OBJECT:
        return f"{side.setting('framed')}: true (JSON behind the frame)"
    return f"{side.setting('format')}: avro (or protobuf), and registry.url: http://HOST:PORT (docs/inputs.md)"


def severity_of(share: float, max_bad_share: float) -> Severity:
    """Of a share of records that cannot be used."""
    return "stops" if share > max_bad_share else "warns"


def read_some(side: Side, plan: Plan) -> tuple[list[PlainRow], dict[Reason, list[str]]]:
    """What the joiner reads of some events; and the words for each that it refuses, by reason."""
    rows: list[PlainRow] = []
    reasons: dict[Reason, list[str]] = {}
    for event in side.some:
        most_bytes = plan.max_event_bytes + len(event.text) - len(event.record.value or b"")  # the record's bytes count
        try:
            rows.append(read_event(plan, parse_event(event.text, most_bytes), event.record.time_ms))
        except Refused as refused:
            reasons.setdefault(refused.reason, []).append(str(refused))
    return rows, reasons


def check_usable(
    side: Side, reasons: Mapping[Reason, Sequence[str]], max_bad_share: float, told: set[Reason]
) -> Iterable[Finding]:
    """Events that the joiner would refuse for a reason that no other check has `told`. reasons: as of `read_some`."""
    events = side.some
    for reason, words in reasons.items():
        if reason not in told and len(words) > WORTH_A_WORD * len(events) and len(events) >= ENOUGH:
            share, name = len(words) / len(events), f"{side.name}_{reason.name.lower()}"
            seen = f"{percent(share)} of {count_of(len(events), 'event')} of {side.sample.topic}: {words[-1]}"
            change = "the setting of that name (docs/configuration.md), or the producer"
            yield Finding(severity_of(share, max_bad_share), name, seen, "they would be dead letters", change)


def values_of(events: Iterable[Event], path: str) -> list[Any]:
    """The values of a field that are there and not null."""
    return [value for event in events if (value := event.fields.get(path)) is not None]


def some_paths(paths: Iterable[str]) -> str:
    """The first of some paths, for a message."""
    return ", ".join(f"`{path}`" for path in [*paths][:12])


def can_be_named(path: str) -> bool:
    """Whether a configuration can name a field: an event may have one without a name."""
    return 0 < len(path) <= LONGEST_NAME


def paths_of(events: Iterable[Event]) -> Counter[str]:
    """How many events have each path with a value."""
    return Counter(path for event in events for path, value in event.fields.items() if value is not None)
