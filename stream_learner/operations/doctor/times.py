"""Times: which fields are times, in which unit, and how far they lie from the timestamps of their records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from stream_learner.config.values import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_duration_ms
from stream_learner.core.events.decoders import EventSpec
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import read_time
from stream_learner.operations.doctor.events import Event, Side, can_be_named, paths_of, severity_of, values_of
from stream_learner.operations.doctor.findings import ENOUGH, WORTH_A_WORD, Finding, percent, quantile, shown
from stream_learner.wording import count_of

UNITS = ("ms", "s", "us", "iso")
YEAR_MS = 366 * DAY_MS
FROM_MS, UNTIL_MS = 1_104_537_600_000, 4_102_444_800_000
"""The years 2005 to 2100: what lies outside is no time of an event."""
LOOKED_AT = 100
"""About so many values tell that a field holds no times."""
ENDINGS = ("time", "ts", "timestamp", "at", "date")


@dataclass(frozen=True)
class Clock:
    """Where the time of an event is read; path None for the record's timestamp.

    lag_ms: the median of record timestamp - time, where it was looked for.
    """

    path: str | None
    unit: str
    lag_ms: float = 0.0

    def of(self, event: Event) -> int | None:
        """The time of an event, ms since 1970; None if it cannot be read."""
        if self.path is None:
            return event.record.time_ms if event.record.time_ms >= 0 else None
        return time_of(event.fields.get(self.path), self.unit)

    def times(self, events: Iterable[Event]) -> list[int]:
        """The times of the events that have one, in the order of the events."""
        return [time for event in events if (time := self.of(event)) is not None]

    def lag_of(self, event: Event) -> int | None:
        """Record timestamp - time of an event, None where one is missing."""
        time = self.of(event)
        return None if time is None or event.record.time_ms < 0 else event.record.time_ms - time

    def ahead_ms(self, events: Iterable[Event]) -> list[int]:
        """time - record timestamp of the events that have both, in ascending order."""
        return sorted(-lag for event in events if (lag := self.lag_of(event)) is not None)


OF_RECORDS = Clock(None, "ms")


def time_of(value: Any, unit: str) -> int | None:
    """A time in ms since 1970; None for what is not one in this unit."""
    try:
        return read_time(value, unit)
    except Refused:
        return None


def moment(time_ms: float) -> str:
    """A time for a person, in UTC.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def span(value_ms: float) -> str:
    """A duration for a person, in the largest unit of which there are some.

    >>> span(61_500), span(900), span(-7_200_000), span(86_400_000 * 27.3)
    ('61 s', '900 ms', '-120 min', '27 d')
    """
    units = ((3, DAY_MS, "d"), (3, HOUR_MS, "h"), (2, MINUTE_MS, "min"))
    for least, unit_ms, name in units:
        if abs(value_ms) >= least * unit_ms:
            return f"{round(value_ms / unit_ms)} {name}"
    return f"{int(value_ms / SECOND_MS)} s" if abs(value_ms) >= SECOND_MS else f"{int(value_ms)} ms"


def units_of(values: Iterable[Any]) -> Counter[str]:
    """How many values are times of this century in each unit; none is one in two of them."""
    return Counter(unit for value in values for unit in UNITS if FROM_MS <= (time_of(value, unit) or 0) <= UNTIL_MS)


def unit_of(values: Sequence[Any]) -> str | None:
    """The unit in which nearly all values are times of this century, `auto` if they are in several; None without any.

    >>> unit_of([1_793_000_000] * 9), unit_of([1_793_000_000, 1_793_000_000_000]), unit_of([7])
    ('s', 'auto', None)
    """
    some = values[:: len(values) // LOOKED_AT + 1]
    if units_of(some).total() < len(some) / 2:
        return None
    units = units_of(values)
    if not values or units.total() < 0.95 * len(values):
        return None
    unit, count = units.most_common(1)[0]
    return unit if count >= 0.95 * len(values) else "auto"


def zone_of(behind_ms: float) -> str:
    """The words for a clock that is whole hours off; "" for another."""
    hours = round(behind_ms / HOUR_MS)
    is_zone = hours and abs(behind_ms - hours * HOUR_MS) < 5 * MINUTE_MS
    return f"; {abs(hours)} h is what a local time without its zone gives" if is_zone else ""


def time_fields(side: Side) -> list[Clock]:
    """The fields that look like times, that of the event itself first: nearest to the record, and named like a time.

    A time lies near its record's timestamp, or rises with the offsets, as where old events are replayed.
    """
    events, found = side.some, []
    for path, count in paths_of(events).items():
        if not can_be_named(path):
            continue
        unit = unit_of(values_of(events, path))
        if unit is None or count < len(events) / 2 or path.lower().endswith("id"):
            continue
        clock = Clock(path, unit)
        ahead = clock.ahead_ms(events)
        lag_ms = -quantile(ahead, 0.5) if ahead else 0.0
        if abs(lag_ms) < DAY_MS or _rises(side, clock):
            found.append(Clock(path, unit, lag_ms))
    return sorted(found, key=lambda one: (abs(one.lag_ms) // MINUTE_MS, not str(one.path).lower().endswith(ENDINGS)))


def _rises(side: Side, clock: Clock) -> bool:
    """Whether times rise with offsets: in most pairs of events that are half a partition apart."""
    rises = pairs = 0
    for events in side.blocks[0].values():
        times = clock.times(events)
        half = len(times) // 2
        pairs += half
        rises += sum(later > earlier for earlier, later in zip(times[:half], times[half:], strict=False))
    return pairs >= ENOUGH and rises > 0.8 * pairs


def check_times(side: Side, spec: EventSpec, max_bad_share: float) -> tuple[Clock, list[Finding]]:
    """The clock by which the events of a topic are to be judged, and what is wrong with the one configured."""
    configured, events = Clock(spec.time, spec.time_unit), side.events
    if len(events) < ENOUGH:
        return configured, []
    other = next(iter(time_fields(side)), None)
    values = values_of(events, spec.time) if spec.time else []
    if spec.time is None or len(values) < len(events) * (1 - max_bad_share):
        return _other_field(side, configured, other, len(values))
    units = {unit: n for unit, n in units_of(values).items() if n > WORTH_A_WORD * len(values)}
    if spec.time_unit != "auto" and len(units) > 1:
        return _several_units(side, configured, values, units, max_bad_share)
    readable = sum(time_of(value, spec.time_unit) is not None for value in values)
    ahead = configured.ahead_ms(events)
    if readable < len(values) * (1 - max_bad_share) or (ahead and abs(quantile(ahead, 0.5)) > YEAR_MS):
        return _wrong_unit(side, configured, values)
    return configured, [*_check_ahead(side, configured, ahead, spec.max_skew_ms, max_bad_share)]


def _several_units(
    side: Side, configured: Clock, values: Sequence[Any], units: Mapping[str, int], max_bad_share: float
) -> tuple[Clock, list[Finding]]:
    """Some events have their time in one unit, others in another."""
    examples = {unit: next(value for value in values if units_of([value])[unit]) for unit in units}
    parts = (f"{percent(n / len(values))} in {unit}, such as {shown(examples[unit])}" for unit, n in units.items())
    seen = f"the values of `{configured.path}` of {side.sample.topic} are in several units: {', '.join(parts)}"
    means = f"read as {configured.unit}, the others are at times that cannot be, and are never joined"
    change = f"{side.setting('time_unit')}: auto, which tells them by their size; or the producers: one unit"
    severity = severity_of(1 - units.get(configured.unit, 0) / len(values), max_bad_share)
    return Clock(configured.path, "auto"), [Finding(severity, f"{side.name}_time_units", seen, means, change)]


def _other_field(side: Side, configured: Clock, other: Clock | None, there: int) -> tuple[Clock, list[Finding]]:
    """The field that is configured is not there, or none is, and the records' timestamps are not the events' times."""
    setting, topic = side.setting("time"), side.sample.topic
    change = f"{setting}: null takes the records' timestamps"
    if other is not None and other.path != configured.path:
        change = f"{setting}: {other.path}, with {setting}_unit: {other.unit}"
    if configured.path is not None:
        seen = f"{there:,} of {count_of(len(side.events), 'event')} of {topic} have a `{configured.path}`"
        means = "an event without its time is a dead letter"
        missing = Finding("stops", f"{side.name}_time_missing", seen, means, change)
        return other or OF_RECORDS, [missing]
    if other is None:
        return configured, [*_unread(side)]
    if abs(other.lag_ms) <= 2 * MINUTE_MS:
        return configured, []
    seen = f"{setting} is not set, and `{other.path}` of {topic} lies {span(other.lag_ms)} before its record's time"
    means = "events count as having happened when their records were written: clicks are joined by wrong delays"
    return other, [Finding("warns", f"{side.name}_record_time", seen, means, change)]


def unread_times(side: Side) -> Iterator[tuple[str, Any]]:
    """The fields that are named like a time, in a form that is not read, each with a value: what differs from event to
    event, or is a number of s, ms or us as text.
    """
    events = side.some
    for path in paths_of(events):
        values = values_of(events, path)
        name = re.split(r"[._]|(?<=[a-z])(?=[A-Z])", path)[-1].lower()
        if name in ENDINGS and len(values) > len(events) / 2:
            digits = [int(value) for value in values if isinstance(value, str) and value.isdecimal()]
            if len(set(map(str, values))) > len(values) / 2 or (len(digits) == len(values) and unit_of(digits)):
                yield path, values[-1]


def _unread(side: Side) -> Iterable[Finding]:
    for path, value in unread_times(side):
        seen = f"`{path}` of {side.sample.topic} looks like the time of an event, such as {shown(value)}, and "
        seen += "is neither ISO 8601 nor a number of s, ms or us since 1970"
        means = "the records' timestamps count in its place: delays are wrong where these are not the events' times"
        change = "the producer: ISO 8601 or milliseconds; nothing, if the records' timestamps are right"
        yield Finding("warns", f"{side.name}_time_unread", seen, means, change)


def _wrong_unit(side: Side, configured: Clock, values: Sequence[Any]) -> tuple[Clock, list[Finding]]:
    """Most values cannot be read, or are further than a year from the records' timestamps."""
    unit, value, read = unit_of(values), values[-1], time_of(values[-1], configured.unit)
    fits = unit is not None and time_of(value, unit) != read
    seen = f"`{configured.path}` of {side.sample.topic} is {shown(value)}; read as {configured.unit} it is "
    seen += "no time" if read is None else moment(read)
    if unit is not None and fits:
        seen += f", read as {unit} it is {moment(time_of(value, unit) or 0)}"
        means, change = "an event at a time that cannot be is never joined", f"{side.setting('time_unit')}: {unit}"
        return Clock(configured.path, unit), [Finding("stops", f"{side.name}_time_unit", seen, means, change)]
    seen += f"; its record's timestamp is {moment(side.events[-1].record.time_ms)}"
    if read is not None:
        means = "right for events of long ago that are replayed; else the field is not the time of the event"
        change = f"{side.setting('time')}, if another field is the time"
        return configured, [Finding("warns", f"{side.name}_time_far", seen, means, change)]
    means = "an event without a time that can be read is a dead letter; there is no unit for nanoseconds"
    change = f"{side.setting('time')}: another field, or null for the records' timestamps"
    return OF_RECORDS, [Finding("stops", f"{side.name}_time_unreadable", seen, means, change)]


def _check_ahead(
    side: Side, clock: Clock, ahead: Sequence[int], max_skew_ms: int, max_bad_share: float
) -> Iterable[Finding]:
    """Events whose time lies further ahead of their record's timestamp than `max_skew`."""
    share = sum(one > max_skew_ms for one in ahead) / max(len(ahead), 1)
    if share <= WORTH_A_WORD:
        return
    median_ms = quantile(ahead, 0.5)
    seen = f"{percent(share)} of the events of {side.sample.topic} have a `{clock.path}` more than join.max_skew "
    seen += (
        f"({format_duration_ms(max_skew_ms)}) ahead of their records' timestamps; the median is {span(median_ms)} ahead"
    )
    means = f"they would be dead letters{zone_of(median_ms)}"
    change = "the clock or the zone of the producer; join.max_skew, if the timestamps of the records are what is wrong"
    yield Finding(severity_of(share, max_bad_share), f"{side.name}_time_ahead", seen, means, change)
