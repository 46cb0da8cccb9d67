"""A small site whose topics are as an ad server makes them, and the ways in which they may be wrong.

Its events are made once from a seed; `records_of` writes them as a case says, `samples` holds them as if they had been
read, `produce` sends them to a real Kafka.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

from confluent_kafka import Producer

from stream_learner.adapters.kafka import Retention
from stream_learner.config import Config
from stream_learner.operations.doctor.sample import Record, TopicSample
from tests.waiting import patience

EPOCH_MS = 1_793_000_000_000
IMPRESSIONS, SPACING_MS, CLICK_SHARE, LONGEST_MS = 600, 200, 0.3, 12_000
WEEK_MS = 7 * 86_400_000


class Happened(NamedTuple):
    """An impression or a click, before it is written as JSON."""

    number: int
    time_ms: int
    id: str
    user: str


def happened(end_ms: int, seed: int = 1, spacing_ms: int = SPACING_MS) -> tuple[list[Happened], list[Happened]]:
    """Impressions, the last one some seconds before `end_ms`, and the clicks on them, each in the order of time."""
    draw = random.Random(seed)
    begin_ms = end_ms - IMPRESSIONS * spacing_ms - LONGEST_MS
    impressions = [
        Happened(
            n,
            begin_ms + n * spacing_ms,
            f"{draw.getrandbits(64):016X}-{draw.getrandbits(32):08X}",
            f"u{draw.randrange(90)}",
        )
        for n in range(IMPRESSIONS)
    ]
    clicks = [
        one._replace(time_ms=one.time_ms + min(int(draw.expovariate(1 / 3_000)) + 200, LONGEST_MS))
        for one in impressions
        if draw.random() < CLICK_SHARE
    ]
    return impressions, sorted(clicks, key=lambda one: one.time_ms)


def iso(time_ms: float) -> str:
    """A time as text."""
    return (
        datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def impression(one: Happened) -> dict[str, Any]:
    """The event as the ad server writes it."""
    return {
        "imp": {"id": one.id, "slot": one.number % 3},
        "ts": iso(one.time_ms),
        "device": {"os": ("ios", "android", "web")[one.number % 7 % 3], "w": (360, 768, 1440)[one.number % 5 % 3]},
        "price": round(0.5 + one.number % 17 / 10, 2),
        "user": {"id": one.user},
        "site": "news",
        "ad": {"id": 1_000 + one.number % 23},
    }


def click(one: Happened) -> dict[str, Any]:
    """The event as the click server writes it."""
    return {
        "event": f"e{one.number * 7919 % 100_003}",
        "ref": {"impression_id": one.id},
        "at": one.time_ms / 1000,
        "user": {"id": one.user},
        "site": "news",
    }


def by_id(one: Happened) -> bytes:
    """The id as the key."""
    return one.id.encode()


def by_user(one: Happened) -> bytes:
    """The user as the key."""
    return one.user.encode()


Write = Callable[[Happened], Mapping[str, Any] | bytes | None]


@dataclass(frozen=True)
class Topic:
    """How a topic is written. partitioner: of librdkafka. delay_ms: record timestamp - time of the event. configs: of
    the topic. partition: that the producer names, -1 for none. times: how often an event is sent."""

    write: Write
    key: Callable[[Happened], bytes | None] = by_id
    partitioner: str = "consistent_random"
    partitions: int = 4
    delay_ms: int = 50
    configs: Mapping[str, str] = field(default_factory=dict)
    partition: Callable[[Happened], int] = lambda one: -1
    times: Callable[[Happened], int] = lambda one: 1

    def value(self, one: Happened) -> bytes | None:
        """The record's value."""
        written = self.write(one)
        return written if written is None or isinstance(written, bytes) else json.dumps(written).encode()


@dataclass(frozen=True)
class Site:
    """Both topics, and the configuration that they are judged by, as overrides of `CONFIGURATION`. spacing_ms: between
    impressions, on a real Kafka.
    """

    impressions: Topic = field(default_factory=lambda: Topic(impression))
    clicks: Topic = field(default_factory=lambda: Topic(click))
    settings: tuple[str, ...] = ()
    spacing_ms: int = SPACING_MS

    def with_impressions(self, **changes: Any) -> Site:
        """A site whose impressions are written otherwise."""
        return replace(self, impressions=replace(self.impressions, **changes))

    def with_clicks(self, **changes: Any) -> Site:
        """A site whose clicks are written otherwise."""
        return replace(self, clicks=replace(self.clicks, **changes))

    def with_settings(self, *settings: str) -> Site:
        """A site that is judged by further settings."""
        return replace(self, settings=(*self.settings, *settings))


CONFIGURATION = {
    "model": "ctr",
    "kafka": {"bootstrap.servers": "localhost:9092"},
    "input": {
        "impressions": {"topic": "impressions", "id": "imp.id", "time": "ts"},
        "clicks": {"topic": "clicks", "id": "ref.impression_id", "time": "at"},
        "time_unit": "auto",
    },
    "features": {"categorical": ["imp.slot", "ad.id", "device.w"]},
}


def tree_of(site: Site, **names: str) -> dict[str, Any]:
    """The configuration of a site, to be written. names: `bootstrap`, and the topics `impressions` and `clicks`."""
    tree: dict[str, Any] = json.loads(json.dumps(CONFIGURATION))
    for setting in site.settings:
        path, _, value = setting.partition("=")
        place = tree
        *above, last = path.split(".")
        for part in above:
            place = place.setdefault(part, {})
        place[last] = json.loads(value)
    for name, value in names.items():
        if name == "bootstrap":
            tree["kafka"]["bootstrap.servers"] = value
        else:
            tree["input"][name]["topic"] = value
    return tree


def configuration(site: Site) -> Config:
    """The configuration of a site."""
    return Config.model_validate(tree_of(site))


def samples(site: Site, end_ms: int = EPOCH_MS, seed: int = 1) -> tuple[TopicSample, TopicSample]:
    """Both topics as if all of them had been read: each event once, placed by CRC32."""
    found = []
    for name, topic, events in zip(
        ("impressions", "clicks"), (site.impressions, site.clicks), happened(end_ms, seed), strict=True
    ):
        block: dict[int, list[Record]] = {partition: [] for partition in range(topic.partitions)}
        for one in events:
            key = topic.key(one)
            partition = zlib.crc32(key or b"") % topic.partitions
            place = len(block[partition])
            block[partition].append(Record(partition, place, one.time_ms + topic.delay_ms, key, topic.value(one)))
        found.append(TopicSample(name, topic.partitions, (block,), True, len(events), Retention(WEEK_MS, None)))
    return found[0], found[1]


def produce(bootstrap: str, names: tuple[str, str], site: Site, end_ms: int) -> None:
    """Send the events of a site to its two topics, which exist."""
    for name, topic, events in zip(names, (site.impressions, site.clicks), happened(end_ms), strict=True):
        send(bootstrap, name, topic, events)


def send(bootstrap: str, name: str, topic: Topic, events: Iterable[Happened]) -> None:
    """Send events to a topic that exists, each as often as the topic says."""
    in_order = {"linger.ms": 5, "max.in.flight": 1}  # also where a batch is sent again, as to a topic just made
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": topic.partitioner, **in_order})
    for one in events:
        at_ms, partition = one.time_ms + topic.delay_ms, topic.partition(one)
        for _ in range(topic.times(one)):
            producer.produce(name, topic.value(one), topic.key(one), timestamp=at_ms, partition=partition)
    assert producer.flush(patience()) == 0
