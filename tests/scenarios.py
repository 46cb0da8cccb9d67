"""Named inputs for end-to-end tests: what to send to both topics, and the settings that say what must come
out.

In: a name, a number of partitions, a function from key and number to partition. Out: a `Scenario`, whose partitions all
end with sentinels on both topics, as many as must agree: events of ids of their own and a time so late that, by log
time alone, every window before them closes and every click before them goes. So the examples do not depend on the wall
clock, and `expected()` says them. Of the sentinels all clicks but the last are read, and wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import xxhash

from stream_learner.traffic import DEMO, TrafficModel
from tests import talkingdata
from tests.oracles import loop as oracle
from tests.oracles.loop import Settings, settings
from tests.scenario_events import START_MS, Event, Mix, history, plain_fields, rich_fields, value_of

SENTINEL = "end-of-partition"

PartitionOf = Callable[[bytes, int], int]


class Message(NamedTuple):
    """A record to produce."""

    timestamp_ms: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Scenario:
    """Both topics, partition by partition, in the order to produce them."""

    name: str
    settings: Settings
    impressions: list[list[Message]]
    clicks: list[list[Message]]

    @property
    def partitions(self) -> int:
        return len(self.impressions)

    @property
    def waiting(self) -> int:
        """How many clicks wait in each partition in the end: the sentinels with which the last tick is passed."""
        return int(self.settings["agree"]) - 1

    def before_sentinels(self, part: list[Message]) -> list[Message]:
        """A partition of either topic without what closes it."""
        return part[: -self.settings["agree"]]

    def sentinels(self, part: list[Message]) -> list[Message]:
        """The records that close a partition of either topic."""
        return part[-self.settings["agree"] :]

    def with_settings(self, **changes: Any) -> Scenario:
        """A scenario with the same input and other settings."""
        return replace(self, settings=settings(**{**self.settings, **changes}))

    def expected(self) -> list[oracle.Joined]:
        """The expected join of each partition, by log time alone; offsets count from 0."""
        return oracle.join_topics(records(self.impressions), records(self.clicks), self.settings)


def records(topic: list[list[Message]]) -> list[list[oracle.Record]]:
    """The messages as records of a fresh topic, offsets from 0."""
    return [[oracle.Record(o, m.timestamp_ms, m.value) for o, m in enumerate(part)] for part in topic]


def by_hash(key: bytes, partitions: int) -> int:
    """The default partition of a key."""
    return xxhash.xxh32_intdigest(key) % partitions


def scenario(name: str, partitions: int = 4, partition_of: PartitionOf = by_hash, seed: int = 0) -> Scenario:
    """The scenario of that name, one of `NAMES`."""
    impressions, clicks, s = _BUILDERS[name](seed)
    return _scenario(name, impressions, clicks, s, partitions, partition_of)


def talkingdata_scenario(
    window_ms: int, partitions: int = 1, partition_of: PartitionOf = by_hash, limit: int | None = None
) -> Scenario:
    """TalkingData (its first `limit` rows by time) under a window; skips the test where it is absent."""
    s = settings(window_ms=window_ms, dedupe_ms=0, categorical=talkingdata.FEATURES)
    shown = talkingdata.impressions()[:limit]
    there = {row.number for row in shown}
    impressions = []
    for row in shown:
        body = {"id": row.number, **dict(zip(talkingdata.FEATURES, row.features, strict=True))}
        impressions.append(Message(row.impression_ms, b"%d" % row.number, json.dumps(body).encode()))
    clicks = [
        Message(time, b"%d" % row.number, b'{"id":%d}' % row.number)
        for time, row in talkingdata.clicks()
        if row.number in there
    ]
    return _scenario("talkingdata", impressions, clicks, s, partitions, partition_of)


def _scenario(
    name: str,
    impressions: Iterable[Message],
    clicks: Iterable[Message],
    s: Settings,
    partitions: int,
    partition_of: PartitionOf,
) -> Scenario:
    """Both topics spread over their partitions, each closed by its sentinels."""
    topics: list[list[list[Message]]] = []
    for messages in (impressions, clicks):
        parts: list[list[Message]] = [[] for _ in range(partitions)]
        for message in messages:
            parts[partition_of(message.key, partitions)].append(message)
        topics.append(parts)
    latest = max((m.timestamp_ms for parts in topics for part in parts for m in part), default=START_MS)
    memory_ms = s["window_ms"] + s["skew_ms"] + s["lateness_ms"]
    end_ms = latest + s["max_skew_ms"] + 3 * (memory_ms + s["tick_ms"]) + s["dedupe_ms"]
    for parts, id_field, time_field in zip(topics, (s["id"], s["click_id"]), (s["time"], s["click_time"]), strict=True):
        for number, part in enumerate(parts):
            events = [Event(end_ms, end_ms, f"{SENTINEL}-{number}-{n}", {}) for n in range(s["agree"])]
            part += [_message(event, id_field, time_field, s) for event in events]
    return Scenario(name, s, *topics)


def _message(event: Event, id_field: str, time_field: str | None, s: Settings) -> Message:
    timestamp_ms = event.time_ms if time_field is None else event.arrival_ms
    return Message(timestamp_ms, str(event.id).encode("utf-8"), value_of(event, id_field, time_field, s))


_Built = tuple[list[Message], list[Message], Settings]


def _made(mix: Mix, s: Settings, seed: int, make_fields: Callable[..., dict[str, Any]] = plain_fields) -> _Built:
    impressions, clicks = history(mix, s, seed, make_fields)
    return (
        [_message(event, s["id"], s["time"], s) for event in impressions],
        [_message(event, s["click_id"], s["click_time"], s) for event in clicks],
        s,
    )


def _plain(seed: int) -> _Built:
    """In order, nothing odd."""
    return _made(Mix(edge_share=0.0), settings(window_ms=10_000, categorical=("slot",)), seed)


def _edges(seed: int) -> _Built:
    """Times on the edges of ticks, clicks on the edges of windows, many events of one millisecond."""
    s = settings(window_ms=5_000, skew_ms=500, tick_ms=500, dedupe_ms=2_000, categorical=("slot",))
    mix = Mix(edge_share=0.6, align_share=0.7, gap_ms=60, click_share=0.5, repeat_share=0.1)
    return _made(mix, s, seed)


def _disorder(seed: int) -> _Built:
    """Arrival out of order, clocks that step, stretches without events; times in a field, in microseconds."""
    s = settings(
        window_ms=8_000,
        skew_ms=200,
        dedupe_ms=20_000,
        lateness_ms=5_000,
        max_skew_ms=5_000,
        agree=2,
        categorical=("slot",),
        time="at",
        click_time="at",
        time_unit="us",
    )
    mix = Mix(jitter_ms=4_000, step_share=0.03, pause_share=0.01, late_share=0.3, orphan_share=0.05)
    return _made(mix, s, seed)


def _duplicates(seed: int) -> _Built:
    """Repeats of impressions and clicks, many of them just where the rule for duplicates ends."""
    s = settings(window_ms=4_000, skew_ms=100, dedupe_ms=3_000, categorical=("slot",))
    return _made(Mix(repeat_share=0.4, click_share=0.5, gap_ms=40), s, seed)


def _late_and_orphans(seed: int) -> _Built:
    """Clicks that come after their window has closed, and clicks on nothing."""
    s = settings(window_ms=3_000, tick_ms=250, agree=2, categorical=("slot",))
    return _made(Mix(late_share=0.4, orphan_share=0.2, click_share=0.6, jitter_ms=300), s, seed)


def _bad_records(seed: int) -> _Built:
    """Bytes that are no events among those that are; two times and weights that are refused."""
    s = settings(window_ms=5_000, categorical=("slot",), time="at", click_time="at", weight="weight")
    impressions, clicks, s = _made(Mix(bad_share=0.15, click_share=0.5), s, seed)
    refused = (
        b'"at":-1',
        b'"at":"soon"',
        b'"at":null',
        b'"at":%d' % (START_MS * 2),
        b'"at":%d,"weight":-1' % START_MS,
        b'"at":%d,"weight":"heavy"' % START_MS,
    )
    for number, body in enumerate(refused):
        at = (number + 1) * len(impressions) // (len(refused) + 1)
        message = Message(impressions[at].timestamp_ms, b"refused-%d" % number, b'{"id":"x",%b}' % body)
        impressions.insert(at, message)
    return impressions, clicks, s


def _rich(seed: int) -> _Built:
    """Every kind of feature, weights, soft labels, ISO times."""
    s = settings(
        window_ms=6_000,
        time="when",
        click_time="when",
        time_unit="iso",
        weight="weight",
        value="score",
        categorical=("slot", "user.level"),
        number=("scores",),
        log=("price",),
        buckets={"hour": (6.0, 12.0, 18.0), "age": (18.0, 30.0, 65.0)},
        clocks={"when": ("hour_of_week", "Asia/Kolkata")},
        missing=("age", "price"),
        crosses=(("site", "ad"), ("slot", "tags", "mobile"), ("price", "site")),
        exclude=("debug",),
    )

    def weighted(rng: Any) -> dict[str, Any]:
        fields = rich_fields(rng)
        return fields if rng.random() < 0.5 else {**fields, "weight": rng.choice([0, 0.5, 1, 2.5, 10])}

    return _made(Mix(click_share=0.5, jitter_ms=500), s, seed, weighted)


def _everything(seed: int) -> _Built:
    """All of the above at once, for the balance of every record."""
    s = settings(
        window_ms=7_000,
        skew_ms=300,
        tick_ms=500,
        dedupe_ms=4_000,
        lateness_ms=2_000,
        max_skew_ms=2_000,
        agree=3,
        categorical=("slot",),
        time="at",
        click_time="at",
    )
    mix = Mix(
        impressions=2_000,
        gap_ms=50,
        edge_share=0.2,
        align_share=0.2,
        jitter_ms=1_500,
        repeat_share=0.1,
        late_share=0.1,
        orphan_share=0.1,
        bad_share=0.03,
        step_share=0.003,
        pause_share=0.003,
    )
    return _made(mix, s, seed)


def _traffic(seed: int) -> _Built:
    """The demo's own traffic for some seconds."""
    model = TrafficModel(seed, replace(DEMO, window_ms=4_000, bad_share=0.005, click_duplicate_share=0.06))
    impressions: list[Message] = []
    clicks: list[Message] = []
    for chunk in model.events(rate=200, start_ms=START_MS, duration_ms=15_000):
        impressions += [Message(*event) for event in chunk.impressions]
        clicks += [Message(*event) for event in chunk.clicks]
    s = settings(window_ms=4_000, time="time", click_time="time", categorical=model.categorical)
    return impressions, clicks, s


_BUILDERS: dict[str, Callable[[int], _Built]] = {
    "plain": _plain,
    "edges": _edges,
    "disorder": _disorder,
    "duplicates": _duplicates,
    "late_and_orphans": _late_and_orphans,
    "bad_records": _bad_records,
    "rich": _rich,
    "everything": _everything,
    "traffic": _traffic,
}
NAMES = tuple(_BUILDERS)
