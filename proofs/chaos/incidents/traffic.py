"""The traffic of an incident: a history that teaches what is usual, the span of the incident, and the time after it.

A pure function of the seed. An incident that lies in the events changes them; times are those of the records.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.loop import Settings, settings
from tests.scenario_events import START_MS
from tests.scenarios import SENTINEL, Message, Scenario, by_hash

MINUTE_MS = 60_000
HISTORY_MS = 100 * MINUTE_MS
SPAN_MS = 20 * MINUTE_MS
AFTER_MS = 10 * MINUTE_MS
GAP_MS = 330
"""The mean time between impressions."""
PARTITIONS = 2
PROBES = 32
SETTINGS: Settings = settings(
    window_ms=MINUTE_MS,
    skew_ms=2_000,
    tick_ms=5_000,
    dedupe_ms=MINUTE_MS,
    lateness_ms=MINUTE_MS,
    max_skew_ms=MINUTE_MS,
    agree=4,
    categorical=("slot",),
)


@dataclass(frozen=True)
class Event:
    """An impression or a click. raw: the bytes of a record that is none."""

    time_ms: int
    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None

    def message(self) -> Message:
        """As a record."""
        value = json.dumps({"id": self.id, **self.fields}).encode() if self.raw is None else self.raw
        return Message(self.time_ms, self.id.encode(), value)


@dataclass
class Traffic:
    """Impressions and clicks, in no order until they are sent. The incident lies in [begin_ms, end_ms)."""

    impressions: list[Event]
    clicks: list[Event]
    rng: random.Random
    begin_ms: int = START_MS + HISTORY_MS
    end_ms: int = START_MS + HISTORY_MS + SPAN_MS

    def within(self, event: Event) -> bool:
        """Whether an event lies in the span of the incident."""
        return self.begin_ms <= event.time_ms < self.end_ms

    def scenario(self, name: str) -> Scenario:
        """All of it, partition by partition, with the sentinels that close every window."""
        topics = [_parts(events) for events in (self.impressions, self.clicks)]
        s = SETTINGS
        latest = max(m.timestamp_ms for parts in topics for part in parts for m in part)
        end_ms = latest + 10 * (s["window_ms"] + s["lateness_ms"])
        for parts in topics:
            for number, part in enumerate(parts):
                part += [Event(end_ms, f"{SENTINEL}-{number}-{n}").message() for n in range(s["agree"])]
        return Scenario(name, s, *topics)


def _parts(events: Iterable[Event]) -> list[list[Message]]:
    parts: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    for event in sorted(events, key=lambda one: one.time_ms):
        message = event.message()
        parts[by_hash(message.key, PARTITIONS)].append(message)
    return parts


def usual(seed: int, after_ms: int = AFTER_MS) -> Traffic:
    """Sound traffic: two of five impressions are clicked, depending on site and slot, within half a minute."""
    rng = random.Random(seed)
    impressions: list[Event] = []
    clicks: list[Event] = []
    time_ms, stop_ms = START_MS, START_MS + HISTORY_MS + SPAN_MS + after_ms
    while (time_ms := time_ms + rng.randrange(1, 2 * GAP_MS)) < stop_ms:
        fields = fields_of(rng)
        one = Event(time_ms, f"imp-{len(impressions)}", fields)
        impressions.append(one)
        if rng.random() < click_rate(fields):
            clicks.append(Event(time_ms + rng.randrange(1_000, 30_000), one.id))
    return Traffic(impressions, clicks, rng)


def fields_of(rng: random.Random) -> dict[str, Any]:
    """The fields of an impression."""
    return {
        "site": f"site-{rng.randrange(6)}",
        "ad": f"ad-{rng.randrange(12)}",
        "slot": rng.randrange(4),
        "mobile": rng.random() < 0.6,
    }


def click_rate(fields: dict[str, Any]) -> float:
    """The true share of clicks."""
    logit = -1.0 + 0.35 * (int(fields["site"][-1]) - 2.5) + 0.3 * fields["slot"]
    return 1 / (1 + math.exp(-logit))


def probes(seed: int) -> list[bytes]:
    """The events that predictions are asked for: of the kinds that the history has, but not of it."""
    rng = random.Random(f"probes {seed}")
    return [json.dumps(fields_of(rng)).encode() for _ in range(PROBES)]
