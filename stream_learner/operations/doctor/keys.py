"""Keys: whether an impression and its click lie in partitions of the same number, and why if they do not.

Any key that both share is fine, the id or the user for example: what counts is that equal keys lie in partitions of the
same number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stream_learner.operations.doctor.events import Event, Side, paths_of
from stream_learner.operations.doctor.findings import ENOUGH, Finding, percent, shown
from stream_learner.operations.doctor.ids import Pair, id_text
from stream_learner.operations.doctor.partitioners import PARTITIONERS

TOGETHER_STOPS, TOGETHER_WARNS = 0.9, 0.99
NEARLY_ALL = 0.98
MOST_KEYS = 2_000


@dataclass(frozen=True)
class Keys:
    """How the records of a topic are keyed.

    field: the path of the field whose value is the key, None if there is none. partitioner: None if it is none of those
    known, or one partition cannot tell. without: the share of records without a key.
    """

    field: str | None
    partitioner: str | None
    without: float

    def __str__(self) -> str:
        if self.without > NEARLY_ALL:
            return "no key"
        by = self.partitioner or "by no partitioner that is known"
        return f"key {f'`{self.field}`' if self.field else 'in no field'}, placed {by}"


def keys_of(side: Side) -> Keys:
    """How a topic is keyed, by its newest records."""
    events = side.events[-MOST_KEYS:]
    keyed = [event for event in events if event.record.key]
    without = 1 - len(keyed) / len(events) if events else 0.0
    if len(keyed) < ENOUGH:
        return Keys(None, None, without)
    fields = (path for path in paths_of(keyed) if _share(keyed, path) >= NEARLY_ALL)
    return Keys(next(fields, None), _partitioner(keyed, side.sample.partitions), without)


def _share(events: Sequence[Event], path: str) -> float:
    """The share of events whose key is the value of a field."""
    return sum(_is_key(event, path) for event in events) / len(events)


def _is_key(event: Event, path: str) -> bool:
    """Whether the key is the value of a field as text, as text in JSON, or as a number of 4 or 8 bytes."""
    key, value = event.record.key, event.fields.get(path)
    text = id_text(value)
    if text is None or key is None:
        return False
    if key in (text.encode(), f'"{text}"'.encode()):
        return True
    return (
        isinstance(value, int)
        and len(key) in (4, 8)
        and struct.unpack(">i" if len(key) == 4 else ">q", key)[0] == value
    )


def _partitioner(events: Sequence[Event], partitions: int) -> str | None:
    """The partitioner that nearly all records were placed by; None if none was, or one partition cannot tell."""
    if partitions < 2:
        return None
    for name, place in PARTITIONERS.items():
        placed = sum(place(event.record.key or b"", partitions) == event.record.partition for event in events)
        if placed >= NEARLY_ALL * len(events):
            return name
    return None


def check_keys(impressions: Side, clicks: Side, pairs: Sequence[Pair], keys: tuple[Keys, Keys]) -> Iterable[Finding]:
    """Partition counts, and pairs that do not lie together."""
    counts = impressions.sample.partitions, clicks.sample.partitions
    if counts[0] != counts[1]:
        yield Finding(
            "stops",
            "partition_counts",
            f"{impressions.sample.topic} has {counts[0]} partitions, {clicks.sample.topic} has {counts[1]}",
            "an impression and its clicks are joined in partitions of the same number",
            "nothing in the configuration: copy one input, with its keys, to a topic with the other's partitions",
        )
        return
    if len(pairs) < ENOUGH or counts[0] == 1:
        return
    together = sum(pair.impression.record.partition == pair.click.record.partition for pair in pairs) / len(pairs)
    if together >= TOGETHER_WARNS:
        return
    name, why, change = _cause(impressions, clicks, pairs, keys)
    yield Finding(
        "stops" if together < TOGETHER_STOPS else "warns",
        name,
        f"{percent(together)} of {len(pairs):,} clicks lie in the partition of their impression's number; {why}",
        f"a click finds its impression only there: {percent(1 - together)} of the positives are lost",
        change,
    )


def _cause(impressions: Side, clicks: Side, pairs: Sequence[Pair], keys: tuple[Keys, Keys]) -> tuple[str, str, str]:
    """The name of the finding, the evidence, and what to change."""
    sides = impressions, clicks
    for side, of in zip(sides, keys, strict=True):
        if of.without > NEARLY_ALL / 10:
            what = f"{percent(of.without)} of the records of {side.sample.topic} have no key"
            return (
                "no_keys",
                what,
                f"the producer of {side.sample.topic}: key its records by what the other topic is keyed by",
            )
    both = f"{sides[0].sample.topic}: {keys[0]}; {sides[1].sample.topic}: {keys[1]}"
    same = sum(pair.impression.record.key == pair.click.record.key for pair in pairs) / len(pairs)
    if same < NEARLY_ALL:
        example = f"{_key(pairs[-1].impression)} and {_key(pairs[-1].click)}"
        what = f"the keys of both are the same for {percent(same)}, such as {example} ({both})"
        return "keys_differ", what, "the producer of one topic: the same key in both, the id or the user for example"
    change = (
        "the producers of one topic: the other's partitioner; for librdkafka `partitioner=murmur2_random` is Java's"
    )
    return "partitioners_differ", f"their keys are the same ({both})", change


def _key(event: Event) -> str:
    key = event.record.key
    return "no key" if key is None else shown(key.decode("utf-8", "replace"))
