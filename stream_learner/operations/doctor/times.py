"""Times: which fields are times, in which unit, and how far they lie from the timestamps of their records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from stream_learner.config.values import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_duration_ms
from stream_learner.core.events.decoders import EventSpec
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import MAX_TIME_MS, read_time
from stream_learner.operations.doctor.events import (
    Event,
    Side,
    example_of,
    paths_of,
    severity_of,
    values_of,
)
from stream_learner.operations.doctor.findings import ENOUGH, WORTH_A_WORD, Finding, percent, quantile, shown

UNITS = ("ms", "s", "us", "iso")
YEAR_MS = 366 * DAY_MS
NEAR_MS = DAY_MS
"""A field of times that lie nearer to the records' timestamps is a time, whether it advances or not."""
FROM_MS, UNTIL_MS = 1_104_537_600_000, 4_102_444_800_000
"""The years 2005 to 2100: what lies outside is no time of an event."""
NAMES = ("time", "ts", "timestamp", "at", "date", "datetime", "when")
MOST_VALUES = 2_000
FIT = 0.95


@dataclass(frozen=True)
class TimeField:
    """A field that looks like a time. lag_ms: the median of record timestamp - time."""

    path: str
    unit: str
    lag_ms: float


@dataclass(frozen=True)
class Clock:
    """Where the time of an event is read: path None for the record's timestamp."""

    path: str | None
    unit: str

    def of(self, event: Event) -> int | None:
        """The time of an event, ms since 1970; None if it cannot be read."""
        if self.path is None:
            return event.record.time_ms if event.record.time_ms >= 0 else None
        return time_of(event.fields.get(self.path), self.unit)


def time_of(value: Any, unit: str) -> int | None:
    """A time in ms since 1970; None for what is not one in this unit."""
    try:
        return read_time(value, unit)
    except Refused:
        return None


def moment(time_ms: float) -> str:
    """A time for a person, UTC; the year alone where a calendar has no such year."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"the year {1970 + round(time_ms / YEAR_MS)}"


def span(value_ms: float) -> str:
    """A duration for a person, to two figures or so.

    >>> span(61_500), span(900), span(-7_200_000), span(86_400_000 * 27.3)
    ('61 s', '900 ms', '-120 min', '27 d')
    """
    for unit_ms, name in ((3 * DAY_MS, "d"), (3 * HOUR_MS, "h"), (2 * MINUTE_MS, "min"), (SECOND_MS, "s")):
        if abs(value_ms) >= unit_ms:
            return f"{int(value_ms / {'d': DAY_MS, 'h': HOUR_MS, 'min': MINUTE_MS, 's': SECOND_MS}[name])} {name}"
    return f"{int(value_ms)} ms"


def unit_of(values: Sequence[Any]) -> str | None:
    """The unit in which nearly all values are times of this century; None if there is none."""
    for unit in UNITS:
        fits = sum(time is not None and FROM_MS <= time <= UNTIL_MS for time in (time_of(v, unit) for v in values))
        if values and fits >= FIT * len(values):
            return unit
    return None


def time_fields(side: Side) -> list[TimeField]:
    """The fields that look like times, that of the event itself first: named like one, and nearest to the record."""
    events = side.events[-MOST_VALUES:]
    found = []
    for path, count in paths_of(events).items():
        last = path.rpartition(".")[2].lower()
        if count < len(events) / 2 or last.endswith("id"):
            continue
        unit = unit_of(values_of(events, path))
        if unit is None:
            continue
        clock = Clock(path, unit)
        lag_ms = _lag_ms(events, clock)
        if lag_ms is not None and (abs(lag_ms) < NEAR_MS or _advances(side, clock)):
            found.append(TimeField(path, unit, lag_ms))
    return sorted(found, key=lambda one: (abs(one.lag_ms) // MINUTE_MS, not _named_so(one.path), abs(one.lag_ms)))


def _named_so(path: str) -> bool:
    last = path.rpartition(".")[2].lower()
    return last in NAMES or last.endswith(("_at", "_ts", "time", "timestamp", "_date"))


def _lag_ms(events: Iterable[Event], clock: Clock) -> float | None:
    """The median of record timestamp - time."""
    lags = sorted(
        event.record.time_ms - time
        for event in events
        if event.record.time_ms >= 0 and (time := clock.of(event)) is not None
    )
    return quantile(lags, 0.5) if lags else None


def _advances(side: Side, clock: Clock) -> bool:
    """Whether times rise with offsets: in most pairs of events that are half a partition apart."""
    rises = pairs = 0
    for events in side.blocks[0].values():
        times = [time for event in events[-MOST_VALUES:] if (time := clock.of(event)) is not None]
        half = len(times) // 2
        pairs += half
        rises += sum(later > earlier for earlier, later in zip(times[:half], times[half:], strict=False))
    return pairs >= ENOUGH and rises > 0.8 * pairs


def check_times(side: Side, spec: EventSpec, max_bad_share: float) -> tuple[Clock, list[Finding]]:
    """The clock by which the events of a topic are to be judged, and what is wrong with the one configured."""
    configured = Clock(spec.time, spec.time_unit)
    events = side.events
    if len(events) < ENOUGH:
        return configured, []
    if spec.time is None:
        return _check_record_times(side, configured)
    values = values_of(events, spec.time)
    if len(values) < len(events) * (1 - max_bad_share):
        return _missing(side, configured, len(values), len(events))
    lag_ms = _lag_ms(events, configured)
    unread = sum(time_of(value, configured.unit) is None for value in values[-MOST_VALUES:])
    unreadable = unread > max_bad_share * len(values[-MOST_VALUES:])
    if unreadable or (lag_ms is not None and abs(lag_ms) > YEAR_MS):
        return _wrong_unit(side, configured, values[-MOST_VALUES:], lag_ms, unread)
    return configured, [*_check_ahead(side, configured, spec.max_skew_ms, max_bad_share)]


def _check_record_times(side: Side, configured: Clock) -> tuple[Clock, list[Finding]]:
    """Without a time field: a field of times far from the records' timestamps tells that these are not the events'."""
    fields = time_fields(side)
    if not fields or abs(fields[0].lag_ms) <= 2 * MINUTE_MS:
        return configured, []
    one = fields[0]
    return Clock(one.path, one.unit), [
        Finding(
            "warns",
            f"{side.name}_record_time",
            f"{side.setting('time')} is not set, and `{one.path}` lies {span(one.lag_ms)} before the timestamps of its "
            f"records (the median), such as {example_of(side.events, one.path)}",
            "events count as having happened when their records were written: clicks are joined by the wrong delays",
            f"{side.setting('time')}: {one.path}, with {side.setting('time_unit')}: {one.unit}",
        )
    ]


def _missing(side: Side, configured: Clock, there: int, total: int) -> tuple[Clock, list[Finding]]:
    fields = time_fields(side)
    other = fields[0] if fields else None
    change = f"{side.setting('time')}: null takes the records' timestamps"
    if other is not None:
        change = f"{side.setting('time')}: {other.path}, with {side.setting('time_unit')}: {other.unit}"
    finding = Finding(
        "stops",
        f"{side.name}_time_missing",
        f"{there:,} of {total:,} events of {side.sample.topic} have the field `{configured.path}`"
        + (f"; the field `{other.path}` looks like their time" if other else ""),
        "an event without its time is a dead letter",
        change,
    )
    return (Clock(other.path, other.unit) if other else Clock(None, configured.unit)), [finding]


def _wrong_unit(
    side: Side, configured: Clock, values: Sequence[Any], lag_ms: float | None, unread: int
) -> tuple[Clock, list[Finding]]:
    unit = unit_of(values)
    example, field = shown(values[-1]), f"`{configured.path}` of {side.sample.topic}"
    if unit == configured.unit or (unit is None and not unread):
        far = f"{field} lies {span(lag_ms or 0)} before the timestamps of its records (the median), such as {example}"
        return configured, [
            Finding(
                "warns",
                f"{side.name}_time_far",
                far,
                "right for events of long ago that are replayed; else the field is not the time of the event",
                f"{side.setting('time')}, if another field is the time",
            )
        ]
    if unit is None:
        nano = any(isinstance(value, (int, float)) and value > 1e17 for value in values)
        return Clock(None, configured.unit), [
            Finding(
                "stops",
                f"{side.name}_time_unreadable",
                f"{unread:,} of {len(values):,} values of {field} cannot be read as {configured.unit}, and in no other "
                f"unit, such as {example}",
                "nanoseconds are not read" if nano else "an event without a time that can be read is a dead letter",
                f"{side.setting('time')}: another field, or null for the records' timestamps",
            )
        ]
    is_text = isinstance(values[-1], str)
    read = time_of(values[-1], configured.unit)
    as_read = f"read as {configured.unit} it is {moment(read)}" if read is not None else _beyond(values[-1], configured)
    return Clock(configured.path, unit), [
        Finding(
            "stops",
            f"{side.name}_time_unit",
            f"{field} is {example}: {'it is text' if is_text else as_read}, read as {unit} it is "
            f"{moment(time_of(values[-1], unit) or 0)}",
            "no event is ever joined at a time that cannot be"
            if read is not None
            else "an event without a time that can be read is a dead letter",
            f"{side.setting('time_unit')}: {unit}",
        )
    ]


def _beyond(value: Any, configured: Clock) -> str:
    """What a number that is no time in the configured unit would be."""
    per_ms = {"s": 1000.0, "ms": 1.0, "us": 0.001}.get(configured.unit)
    if per_ms is None or not isinstance(value, (int, float)) or value * per_ms <= MAX_TIME_MS:
        return f"it is no time in the unit {configured.unit}"
    return f"read as {configured.unit} it is {moment(value * per_ms)}"


def _check_ahead(side: Side, clock: Clock, max_skew_ms: int, max_bad_share: float) -> Iterable[Finding]:
    """Events whose time lies further ahead of their record's timestamp than `max_skew`."""
    ahead = sorted(
        time - event.record.time_ms
        for event in side.events
        if event.record.time_ms >= 0 and (time := clock.of(event)) is not None
    )
    over = sum(one > max_skew_ms for one in ahead)
    if not ahead or over <= WORTH_A_WORD * len(ahead):
        return
    median_ms = quantile(ahead, 0.5)
    hours = round(median_ms / HOUR_MS)
    zone = hours and abs(median_ms - hours * HOUR_MS) < 5 * MINUTE_MS
    yield Finding(
        severity_of(over / len(ahead), max_bad_share),
        f"{side.name}_time_ahead",
        f"{percent(over / len(ahead))} of the events of {side.sample.topic} have a `{clock.path}` more than "
        f"{format_duration_ms(max_skew_ms)} ahead of their records' timestamps; the median is {span(median_ms)} ahead",
        "they would be dead letters" + (f"; {hours} h is what a local time without its zone gives" if zone else ""),
        "the clock or the zone of the producer; join.max_skew, if the timestamps of the records are what is wrong",
    )
