"""Ids: which pairs of fields of both topics share values, and whether clicks find their impressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stream_learner.core.events.decoders import EventSpec
from stream_learner.operations.doctor.events import Event, Side, paths_of, severity_of, values_of
from stream_learner.operations.doctor.findings import ENOUGH, Finding, quantile, shown
from stream_learner.operations.doctor.times import Clock, moment, span

UNIQUE = 0.9
"""A field with at least this share of distinct values among its values may be an id."""
MATCHED_STOPS, MATCHED_WARNS = 0.5, 0.9
COVERED_SPANS = 3
"""Clicks are expected to find their impressions where a block is this many times as long as 95 % of delays."""


class Pair(NamedTuple):
    """An impression and a click with its id."""

    impression: Event
    click: Event


@dataclass(frozen=True)
class IdPaths:
    """A pair of fields. shared: how many events of clicks have a value that the impressions have, too."""

    impressions: str
    clicks: str
    shared: int

    def pairs(self, impressions: Iterable[Event], clicks: Iterable[Event]) -> list[Pair]:
        """Each click with the first impression of its id."""
        by_id: dict[str, Event] = {}
        for event in impressions:
            text = id_text(event.fields.get(self.impressions))
            if text is not None:
                by_id.setdefault(text, event)
        found = ((by_id.get(id_text(event.fields.get(self.clicks)) or ""), event) for event in clicks)
        return [Pair(impression, click) for impression, click in found if impression is not None]


def id_text(value: Any) -> str | None:
    """An id as text, as the joiner compares them: an integer is its decimal text; None for what is no id."""
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "" else None


def best_pair(impressions: Side, clicks: Side, not_ids: Iterable[str]) -> IdPaths | None:
    """The pair of fields that fits best: one that tells impressions apart, and that most clicks share.

    not_ids: paths of times. None if no pair shares `ENOUGH` values, or as many as there are clicks.
    """
    of_impressions = _texts_by_path(impressions, not_ids)
    of_clicks = _texts_by_path(clicks, not_ids)
    unique = {path: set(texts) for path, texts in of_impressions.items() if len(set(texts)) >= UNIQUE * len(texts)}
    found = [
        IdPaths(path, other, sum(text in known for text in texts))
        for path, known in unique.items()
        for other, texts in of_clicks.items()
    ]
    least = min(ENOUGH, max(len(clicks.events), 1))
    most = max((pair.shared for pair in found), default=0)
    near = [pair for pair in found if pair.shared >= max(least, 0.95 * most)]
    return max(near, key=lambda pair: (len(unique[pair.impressions]), _same_name(pair), pair.shared), default=None)


def _texts_by_path(side: Side, not_ids: Iterable[str]) -> dict[str, list[str]]:
    events = side.events
    texts = {
        path: [text for value in values_of(events, path) if (text := id_text(value)) is not None]
        for path, count in paths_of(events).items()
        if count >= len(events) / 2 and path not in not_ids
    }
    return {path: found for path, found in texts.items() if found}


def _same_name(pair: IdPaths) -> bool:
    mine, theirs = (path.lower().replace(".", "_") for path in (pair.impressions, pair.clicks))
    return theirs.endswith(mine) or mine.endswith(theirs)


FORMS: Mapping[str, Callable[[Any], str | None]] = {
    "upper and lower case": lambda value: str(value).lower(),
    "dashes": lambda value: str(value).replace("-", "").lower(),
    "a number with a fraction": lambda value: str(int(value)) if isinstance(value, float) else id_text(value),
    "leading zeros": lambda value: str(value).lstrip("0"),
    "white space or quotes": lambda value: str(value).strip(" \t\r\n\"'"),
}
"""Ways in which ids of both topics may be written differently, each with what makes them alike."""


def check_ids(
    impressions: Side, clicks: Side, specs: tuple[EventSpec, EventSpec], best: IdPaths | None, max_bad_share: float
) -> tuple[IdPaths, list[Finding]]:
    """The pair of fields by which both topics are to be judged, and what is wrong with the one configured."""
    configured = IdPaths(specs[0].id, specs[1].id, 0)
    sides = (impressions, clicks)
    if not all(len(side.events) >= ENOUGH for side in sides):
        return configured, []
    found = [
        finding
        for side, path, right in (
            (impressions, configured.impressions, best.impressions if best else None),
            (clicks, configured.clicks, best.clicks if best else None),
        )
        for finding in _check_path(side, path, right, max_bad_share)
    ]
    shared = len(configured.pairs(impressions.events, clicks.events))
    if found:
        return best or configured, found
    if best is not None and shared < best.shared / 2:
        return best, [_other_field(impressions, clicks, configured, best, shared)]
    if shared == 0:
        found += _check_forms(impressions, clicks, configured)
    return configured, found


def _check_path(side: Side, path: str, right: str | None, max_bad_share: float) -> Iterable[Finding]:
    """Events without an id, or with one that cannot be an id."""
    events = side.events
    values = values_of(events, path)
    usable = sum(id_text(value) is not None for value in values)
    if usable >= (1 - max_bad_share) * len(events):
        return
    there = ", ".join(f"`{name}`" for name, _ in paths_of(events).most_common(12))
    if len(values) > usable:
        what = f"{len(values) - usable:,} values of `{path}` are neither text nor whole numbers: {shown(values[-1])}"
        change = "the producer: write the id as text"
    else:
        what = f"{len(values):,} of {len(events):,} events of {side.sample.topic} have a `{path}`; they have {there}"
        change = (
            f"{side.setting('id')}: {right}"
            if right and right != path
            else f"{side.setting('id')}: the field of the id"
        )
    yield Finding("stops", f"{side.name}_id", what, "an event without an id is a dead letter", change)


def _other_field(impressions: Side, clicks: Side, configured: IdPaths, best: IdPaths, shared: int) -> Finding:
    changes = [
        f"{side.setting('id')}: {right}"
        for side, path, right in (
            (impressions, configured.impressions, best.impressions),
            (clicks, configured.clicks, best.clicks),
        )
        if path != right
    ]
    return Finding(
        "stops",
        "id_fields",
        f"{shared:,} of {len(clicks.events):,} clicks have a `{configured.clicks}` that is an impression's "
        f"`{configured.impressions}`; {best.shared:,} have a `{best.clicks}` that is its `{best.impressions}`",
        "clicks whose id is of something else find no impression, and every example is a negative",
        "; ".join(changes),
    )


def _check_forms(impressions: Side, clicks: Side, configured: IdPaths) -> Iterable[Finding]:
    """Ids that are the same once they are written alike."""
    mine, theirs = (
        values_of(side.events, path)
        for side, path in ((impressions, configured.impressions), (clicks, configured.clicks))
    )
    for what, alike in FORMS.items():
        known = {text for value in mine if (text := alike(value)) is not None}
        matched = sum(alike(value) in known for value in theirs)
        if matched >= min(ENOUGH, len(theirs)):
            yield Finding(
                "stops",
                "id_forms",
                f"no click has the id of an impression; {matched:,} of {len(theirs):,} would, but for {what}: "
                f"{shown(mine[-1])} and {shown(theirs[-1])}",
                "ids are compared as they are written; only a whole number and its decimal text are the same",
                "the producer of one topic: write the id as the other does",
            )
            return


def check_matches(
    impressions: Side,
    clicks: Side,
    ids: IdPaths,
    pairs: Sequence[Pair],
    clocks: tuple[Clock, Clock],
    delays_ms: Sequence[float],
) -> Iterable[Finding]:
    """Whether clicks whose impression must be in the sample find it. delays_ms: of the pairs, in ascending order."""
    events = clicks.events
    if min(len(impressions.events), len(events)) < ENOUGH:
        return
    expected = _expected(impressions, clicks, clocks, delays_ms)
    matched = {id(pair.click) for pair in pairs}
    found = sum(id(event) in matched for event in expected)
    if len(expected) < ENOUGH:
        if len(pairs) < ENOUGH:
            yield Finding(
                "tells" if pairs else "warns",
                "matches_unknown",
                f"{len(pairs):,} of {len(events):,} clicks of the sample find their impression in it; it has "
                f"{len(impressions.events):,} of {impressions.sample.held:,} impressions",
                "whether clicks find their impressions, and how long they take, cannot be said from this sample",
                "look again with a larger --records",
            )
        return
    share = found / len(expected)
    if share >= MATCHED_WARNS:
        return
    lost = [event for event in expected if id(event) not in matched]
    yield Finding(
        severity_of(1 - share, 1 - MATCHED_STOPS),
        "matches",
        f"{found:,} of {len(expected):,} clicks find an impression whose `{ids.impressions}` is their `{ids.clicks}`, "
        f"though the sample has the impressions of their time{_told_apart(lost, [pair.click for pair in pairs])}",
        "the other clicks are of other impressions: of another site, an older format, or a topic that is not read; the "
        f"ids are, for example, {_examples(impressions, ids.impressions)} and {_examples(lost, ids.clicks)}",
        f"{impressions.setting('topic')} or {clicks.setting('topic')}, if it is another topic; else the producer",
    )


def _examples(events: Side | Sequence[Event], path: str) -> str:
    values = values_of(events.events if isinstance(events, Side) else events, path)
    return shown(values[-1]) if values else "none"


def _expected(impressions: Side, clicks: Side, clocks: tuple[Clock, Clock], delays_ms: Sequence[float]) -> list[Event]:
    """The clicks whose impressions lie in a block of the sample, or nowhere."""
    whole = impressions.sample.whole
    reach_ms = 0.0 if whole or len(delays_ms) < ENOUGH else max(quantile([*delays_ms], 0.99), 0.0)
    if not whole and len(delays_ms) < ENOUGH:
        return []
    spans = []
    for block in impressions.blocks:
        times = [[t for event in events if (t := clocks[0].of(event)) is not None] for events in block.values()]
        times = [sorted(of_partition) for of_partition in times if len(of_partition) >= 2]
        if not times:
            continue
        begin = min(t[0] for t in times) if whole else max(t[0] for t in times)
        end = min(quantile(t, 0.99) for t in times)
        usual_ms = quantile([*delays_ms], 0.95) if delays_ms else 0.0
        if whole or end - begin >= COVERED_SPANS * usual_ms:
            spans.append((begin + reach_ms, max(t[-1] for t in times) if whole else end))
    found = []
    for event in clicks.events:
        time = clocks[1].of(event)
        if time is not None and any(begin <= time <= end for begin, end in spans):
            found.append(event)
    return found


def _told_apart(lost: Sequence[Event], matched: Sequence[Event]) -> str:
    """A field whose values tell the clicks without an impression from the others, for the message; "" without one."""
    for path, count in paths_of(lost).items():
        values, others = Counter(map(str, values_of(lost, path))), {*map(str, values_of(matched, path))}
        own = {value: n for value, n in values.items() if value not in others}
        if count >= ENOUGH and len(values) <= len(lost) / 10 and sum(own.values()) >= 0.9 * count:
            return f"; those that do not have `{path}` {shown(max(own, key=own.__getitem__))}, which no other click has"
    return ""


def describe_times(side: Side, clock: Clock) -> str:
    """From when to when the events of a sample are."""
    times = sorted(time for event in side.events if (time := clock.of(event)) is not None)
    return f"{moment(times[0])} to {moment(times[-1])} ({span(times[-1] - times[0])})" if times else "none"
