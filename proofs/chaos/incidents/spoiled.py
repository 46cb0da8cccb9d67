"""Incidents that lie in the events: what a producer sends in the span of the incident instead of the sound events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proofs.chaos.incidents.traffic import MINUTE_MS, Event, Traffic

UNIQUE_FIELDS = 200
FLOOD_MS = MINUTE_MS
HOUR_MS = 60 * MINUTE_MS
FIELD = "slot"
"""The field that vanishes or changes its type: one that clicks depend on."""
BAD = (b"junk", b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"site": "no id"}', b'{"id": true}', b'{"id": "x", "a": NaN}')
BAD_RECORDS = 60


def dead_clicks(traffic: Traffic) -> None:
    """No click comes."""
    traffic.clicks = [click for click in traffic.clicks if not traffic.within(click)]


def half_the_clicks(traffic: Traffic) -> None:
    """Every second click is lost, by chance."""
    traffic.clicks = [click for click in traffic.clicks if not traffic.within(click) or traffic.rng.random() < 0.5]


def late_clicks(traffic: Traffic) -> None:
    """Clicks come an hour late, and with an hour later times."""
    traffic.clicks = [
        replace(click, time_ms=click.time_ms + HOUR_MS) if traffic.within(click) else click for click in traffic.clicks
    ]


def doubled_impressions(traffic: Traffic) -> None:
    """Each impression comes once more, under an id of its own."""
    traffic.impressions += [replace(one, id=f"{one.id}-again") for one in traffic.impressions if traffic.within(one)]


def a_field_vanishes(traffic: Traffic) -> None:
    """No impression has the field."""
    _change(traffic, lambda fields: {name: value for name, value in fields.items() if name != FIELD})


def a_field_changes_type(traffic: Traffic) -> None:
    """The field was a number, and is a text, a list, an object, null."""

    def changed(fields: dict[str, Any]) -> dict[str, Any]:
        number = fields[FIELD]
        return {**fields, FIELD: traffic.rng.choice([f"slot {number}", [number], {"number": number}, None])}

    _change(traffic, changed)


def unique_values(traffic: Traffic) -> None:
    """For a minute each impression has many fields with values that no other has."""
    stop_ms = traffic.begin_ms + FLOOD_MS

    def flooded(one: Event) -> Event:
        if not traffic.begin_ms <= one.time_ms < stop_ms:
            return one
        return replace(one, fields={**one.fields, **{f"u{n}": f"{one.id} {n}" for n in range(UNIQUE_FIELDS)}})

    traffic.impressions = [flooded(one) for one in traffic.impressions]


def bad_records(traffic: Traffic) -> None:
    """Records that are no events, in both topics, fewer than would stop the join."""
    for topic in (traffic.impressions, traffic.clicks):
        for number in range(BAD_RECORDS):
            at_ms = traffic.rng.randrange(traffic.begin_ms, traffic.end_ms)
            topic.append(Event(at_ms, f"bad-{number}", raw=BAD[number % len(BAD)]))


def _change(traffic: Traffic, change: Any) -> None:
    traffic.impressions = [
        replace(one, fields=change(one.fields)) if traffic.within(one) else one for one in traffic.impressions
    ]
