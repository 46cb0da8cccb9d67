"""Seeded histories of impressions and clicks with everything that goes wrong in the field.

In: a `Mix` (how many, and how much of which oddity), the settings of the join, a seed. Out: impressions and
clicks as `Event`s in the order of their arrival, and the JSON of their fields. All choices come from the
seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from tests.oracles.loop import Settings

START_MS = 1_700_000_000_000
STEP_BACK_MS = 30_000
STEP_FORWARD_MS = 600_000

BAD_IMPRESSIONS: tuple[bytes | None, ...] = (
    None,
    b"",
    b"{",
    b"[]",
    b'"text"',
    b"null",
    b"\xff\xfe",
    b'{"id":"x"} trailing',
    b'{"id":"x","site":NaN}',
    b'{"id":"\\ud800"}',
    b'{"id":"x","site":"\xc3\x28"}',
    b'{"site":"no id"}',
    b'{"id":null}',
    b'{"id":true}',
    b'{"id":1.5}',
    b'{"id":-0}',
    b'{"id":["x"]}',
    b'{"id":{"x":1}}',
    b'{"id":18446744073709551616}',
)
BAD_CLICKS = (*BAD_IMPRESSIONS, b"{'id':'x'}", b'{"id":"x",}')


class Event(NamedTuple):
    arrival_ms: int
    time_ms: int
    id: str | int
    fields: dict[str, Any]
    raw: bytes | None = None  # of a bad record, instead of everything
    bad: bool = False


@dataclass(frozen=True)
class Mix:
    """Shares are of impressions or clicks, from 0 to 1."""

    impressions: int = 600
    gap_ms: int = 100  # mean time between impressions
    click_share: float = 0.3
    edge_share: float = 0.1  # clicks on an edge of the window, or one ms beside it
    align_share: float = 0.0  # impressions with times at the edge of a tick, or one ms beside it
    jitter_ms: int = 0  # arrivals later than times by up to this
    repeat_share: float = 0.0
    repeat_edge_share: float = 0.5  # repeats whose distance is an edge of the rule for duplicates
    late_share: float = 0.0
    orphan_share: float = 0.0
    bad_share: float = 0.0
    step_share: float = 0.0  # clock steps: some jump forward for good, some back for a while
    pause_share: float = 0.0  # stretches without any event


def plain_fields(rng: random.Random) -> dict[str, Any]:
    """Strings, an integer that is a name, a boolean."""
    return {
        "site": f"site-{min(int(rng.paretovariate(1.0)), 40)}",
        "ad": f"ad-{min(int(rng.paretovariate(0.7)), 90)}",
        "slot": rng.randrange(4),
        "mobile": rng.random() < 0.6,
    }


def rich_fields(rng: random.Random) -> dict[str, Any]:
    """Every row of the table of features: nested, lists, edge numbers, missing, repeated, awkward text."""
    fields: dict[str, Any] = {
        **plain_fields(rng),
        "price": rng.choice([0, 0.0, -0.0, 1, -3.25, 1e-9, 123456789.125, round(rng.uniform(0, 50), 3)]),
        "age": rng.choice([None, rng.randrange(100), float(rng.randrange(100))]),
        "hour": rng.randrange(24),
        "user": {
            "segment": f"s{rng.randrange(9)}",
            "level": rng.randrange(3),
            "seen": {"ads": rng.randrange(5)},
        },
        "tags": [f"t{rng.randrange(4)}" for _ in range(rng.randrange(4))],
        "scores": [round(rng.uniform(-1, 1), 2) for _ in range(rng.randrange(3))],
        "text": rng.choice(["", "größe", 'a "quoted" \\ word', "line\nbreak", "\u2028", "日本", "\U0001f600"]),
        "debug": {"trace": rng.random()},
    }
    for name in rng.sample(sorted(fields), 2):
        del fields[name]
    return fields


def history(
    mix: Mix, s: Settings, seed: int, make_fields: Callable[[random.Random], dict[str, Any]] = plain_fields
) -> tuple[list[Event], list[Event]]:
    """Impressions and clicks, each in the order of arrival."""
    rng = random.Random(seed)
    impressions: list[Event] = []
    clicks: list[Event] = []
    clock, step_back = START_MS + STEP_BACK_MS, 0
    for number in range(mix.impressions):
        clock += rng.randrange(2 * mix.gap_ms + 1)
        if rng.random() < mix.pause_share:
            clock += rng.randrange(2, 5) * (s["window_ms"] + s["tick_ms"])
        if rng.random() < mix.step_share:
            clock, step_back = rng.choice([(clock + STEP_FORWARD_MS, 0), (clock, STEP_BACK_MS), (clock, 0)])
        time = clock - step_back
        if rng.random() < mix.align_share:
            time = time // s["tick_ms"] * s["tick_ms"] + rng.choice([-1, 0, 1])
        impression = Event(clock + _jitter(mix, rng), time, _an_id(number, rng), make_fields(rng))
        if rng.random() < mix.bad_share:
            raw = rng.choice(BAD_IMPRESSIONS)
            impressions.append(Event(clock, time, f"bad-{number}", {}, raw, True))
        impressions.append(impression)
        if rng.random() < mix.repeat_share:
            edges_ms = [s["dedupe_ms"] + beyond for beyond in (-1, 0, s["tick_ms"] - 1, s["tick_ms"], s["tick_ms"] + 1)]
            impressions.append(_again(impression, edges_ms, mix, rng))
        if rng.random() < mix.click_share:
            clicks += _clicks_on(impression, mix, s, rng)
    impressions.sort(key=lambda event: event.arrival_ms)
    clicks.sort(key=lambda event: event.arrival_ms)
    return impressions, clicks


def _jitter(mix: Mix, rng: random.Random) -> int:
    return rng.randrange(mix.jitter_ms + 1)


def _an_id(number: int, rng: random.Random) -> str | int:
    """A text, a small integer, or one beyond 2**63."""
    ids: list[str | int] = [f"imp-{number}", f"é{number}", number, 2**63 + number, 2**64 - 1 - number]
    return rng.choice(ids)


def _again(event: Event, edges_ms: list[int], mix: Mix, rng: random.Random) -> Event:
    """A repeat of an event, soon, or about as late as the rule for duplicates reaches."""
    wait = rng.randrange(1, 2_000)
    if rng.random() < mix.repeat_edge_share:
        wait = max(0, rng.choice(edges_ms))
    return event._replace(arrival_ms=event.arrival_ms + wait, time_ms=event.time_ms + wait)


def _clicks_on(impression: Event, mix: Mix, s: Settings, rng: random.Random) -> list[Event]:
    """A click in the window, on its edges or beyond; perhaps late, repeated, of nobody, beside a bad one."""
    window, skew = s["window_ms"], s["skew_ms"]
    delay = min(int(rng.expovariate(3.0 / window)), 2 * window)
    if rng.random() < mix.edge_share:
        delay = rng.choice([-skew - 1, -skew, 0, window, window + 1])
    time = impression.time_ms + delay
    arrival = max(impression.arrival_ms, time) + _jitter(mix, rng)
    if rng.random() < mix.late_share:
        arrival += window + rng.randrange(4) * s["tick_ms"]
    name: str | int = impression.id
    if isinstance(name, int) and rng.random() < 0.5:
        name = str(name)
    if rng.random() < mix.orphan_share:
        name = f"nobody-{name}"
    fields = {} if s["value"] is None or rng.random() < 0.3 else {s["value"]: rng.choice([0, 0.25, 0.5, 1, 1.0])}
    click = Event(arrival, time, name, fields)
    out = [click]
    if rng.random() < mix.repeat_share:
        out.append(_again(click, [window + skew + beyond for beyond in (-1, 0, 1)], mix, rng))
    if rng.random() < mix.bad_share:
        out.append(Event(arrival, time, f"bad-{name}", {}, rng.choice(BAD_CLICKS), True))
    return out


def value_of(event: Event, id_field: str, time_field: str | None, s: Settings) -> bytes | None:
    """The bytes of an event's record."""
    if event.bad:
        return event.raw
    body: dict[str, Any] = {id_field: event.id}
    if time_field is not None:
        body[time_field] = _time_value(event.time_ms, s["time_unit"])
    return json.dumps({**body, **event.fields}, ensure_ascii=event.arrival_ms % 2 == 0).encode("utf-8")


def _time_value(time_ms: int, unit: str) -> int | str:
    if unit == "iso":
        moment = datetime.fromtimestamp(time_ms // 1000, timezone.utc)
        return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ms % 1000:03d}Z"
    return time_ms * 1000 + time_ms % 1000 if unit == "us" else time_ms
