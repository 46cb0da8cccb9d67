"""Keys: whether an impression and its click lie in partitions of the same number, and why if they do not.

Any key that both share is fine, the id or the user for example: what counts is that equal keys lie in partitions of the
same number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from stream_learner.operations.doctor.events import Event, Side, paths_of
from stream_learner.operations.doctor.findings import ENOUGH, LOST_STOPS, Finding, percent, shown
from stream_learner.operations.doctor.ids import Pair, id_text
from stream_learner.operations.doctor.partitioners import PARTITIONERS
from stream_learner.wording import count_of

TOGETHER_WARNS = 0.99
NEARLY_ALL = 0.98
LOOKED_AT = 300
"""Of about so many events the fields are tried as what a partitioner goes by."""


@dataclass(frozen=True)
class Keys:
    """How the records of a topic are keyed.

    field: the path of the field whose value is the key, None if there is none. partitioner: with the field it goes by,
    where that is not the key; None if it is none of those known, of the key or of a field, or one partition cannot
    tell. without: the share of records without a key.
    """

    field: str | None
    partitioner: str | None
    without: float

    def __str__(self) -> str:
        key = "no key" if self.without > NEARLY_ALL else f"key {f'`{self.field}`' if self.field else 'in no field'}"
        return f"{key}, placed {self.partitioner or 'by no known partitioner of the key or a field'}"


def keys_of(side: Side) -> Keys:
    """How a topic is keyed, by some of its records."""
    events = side.some
    keyed = [event for event in events if event.record.key]
    without = 1 - len(keyed) / len(events) if events else 0.0
    fields = (path for path in paths_of(keyed) if len(keyed) >= ENOUGH and _share(keyed, path) >= NEARLY_ALL)
    return Keys(next(fields, None), _partitioner(side, keyed), without)


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


def _partitioner(side: Side, keyed: Sequence[Event]) -> str | None:
    """The partitioner that nearly all records were placed by, by their keys or by a field; None if none was."""
    events, partitions = side.some[:: len(side.some) // LOOKED_AT + 1], side.sample.partitions
    if partitions < 2:
        return None
    hashed = {"": [(event.record.key or b"", event) for event in keyed]} if len(keyed) >= ENOUGH else {}
    for path in paths_of(events):
        texts = ((id_text(event.fields.get(path)), event) for event in events)
        found = [(text.encode(), event) for text, event in texts if text is not None]
        if len({value for value, _ in found}) >= ENOUGH:  # fewer values may lie so by chance
            hashed[f" of `{path}`"] = found
    for (of, found), (name, place) in product(hashed.items(), PARTITIONERS.items()):
        placed = sum(place(value, partitions) == event.record.partition for value, event in found)
        if placed >= NEARLY_ALL * len(found):
            return name + of
    return None


def check_keys(impressions: Side, clicks: Side, pairs: Sequence[Pair], keys: tuple[Keys, Keys]) -> Iterable[Finding]:
    """Partition counts, and pairs that do not lie together."""
    one, other = impressions.sample, clicks.sample
    if one.partitions != other.partitions:
        seen = f"{one.topic} has {count_of(one.partitions, 'partition')}, {other.topic} has {other.partitions}"
        means = "an impression and its clicks are joined in partitions of the same number"
        change = "nothing in the configuration: copy one input, with its keys, to a topic with the other's partitions"
        yield Finding("stops", "partition_counts", seen, means, change)
    elif len(pairs) >= ENOUGH:
        share = sum(pair.impression.record.partition == pair.click.record.partition for pair in pairs) / len(pairs)
        if share < TOGETHER_WARNS:
            name, why, change = _cause(impressions, clicks, pairs, keys)
            seen = f"{percent(share)} of {count_of(len(pairs), 'click')} lie in the partition of their impression's "
            seen += f"number; {why}"
            means = f"a click finds its impression only there: {percent(1 - share)} of the positives are lost"
            yield Finding("stops" if share < 1 - LOST_STOPS else "warns", name, seen, means, change)


def _cause(impressions: Side, clicks: Side, pairs: Sequence[Pair], keys: tuple[Keys, Keys]) -> tuple[str, str, str]:
    """The name of the finding, the evidence, and what to change."""
    topics = impressions.sample.topic, clicks.sample.topic
    for topic, of in zip(topics, keys, strict=True):
        if of.without > LOST_STOPS and of.partitioner is None:
            why = f"{percent(of.without)} of the records of {topic} have no key"
            return "no_keys", why, f"the producer of {topic}: the key that the other topic has"
    both = f"{topics[0]}: {keys[0]}; {topics[1]}: {keys[1]}"
    for topic, of in zip(topics, keys, strict=True):
        if of.partitioner is None:
            why = f"no known partitioner ({', '.join(PARTITIONERS)}) puts the keys of {topic}, or a field of it, there"
            change = f"the producer of {topic}, which names partitions itself or has a partitioner of its own: leave"
            return "partitions_chosen", f"{why} ({both})", f"{change} them to the client, with the other topic's key"
    same = sum(pair.impression.record.key == pair.click.record.key for pair in pairs) / len(pairs)
    if same < NEARLY_ALL:
        example = f"{_key(pairs[-1].impression)} and {_key(pairs[-1].click)}"
        why = f"{percent(same)} have its key, too, such as {example} ({both})"
        return "keys_differ", why, "the producer of one topic: the same key in both, the id or the user for example"
    change = "the producers of one topic: the other's partitioner; librdkafka's `partitioner=murmur2_random` is Java's"
    return "partitioners_differ", f"their keys are the same ({both})", change


def _key(event: Event) -> str:
    key = event.record.key
    return "no key" if key is None else shown(key.decode("utf-8", "replace"))
