"""Ids: which pairs of fields of both topics share values, and whether clicks find their impressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stream_learner.core.events.decoders import EventSpec
from stream_learner.operations.doctor.events import Event, Side, can_be_named, paths_of, severity_of, values_of
from stream_learner.operations.doctor.findings import ENOUGH, Finding, percent, shown
from stream_learner.operations.doctor.times import Clock, moment
from stream_learner.wording import count_of

UNIQUE = 0.9
"""A field with at least this share of distinct values among its values may be an id."""
ONCE = 0.999
"""An id is repeated so rarely, where impressions are sent twice."""
MATCHED_STOPS, MATCHED_WARNS = 0.5, 0.9
HARDLY_ANY = 0.1
"""Where so few clicks are of a time of the impressions that were read, nothing tells of which site they are."""


class Pair(NamedTuple):
    """An impression and a click with its id."""

    impression: Event
    click: Event


@dataclass(frozen=True)
class IdPaths:
    """A pair of fields. shared: how many clicks have a value that an impression has, where it was counted."""

    impressions: str
    clicks: str
    shared: int = 0

    def change_to(self, right: IdPaths) -> str:
        """The settings to change."""
        of_sides = ("impressions", self.impressions, right.impressions), ("clicks", self.clicks, right.clicks)
        return "; ".join(f"input.{side}.id: {to}" for side, path, to in of_sides if path != to)

    def pairs(self, impressions: Iterable[Event], clicks: Iterable[Event]) -> list[Pair]:
        """Each click with the first impression of its id."""
        by_id: dict[str, Event] = {}
        for event in impressions:
            by_id.setdefault(id_text(event.fields.get(self.impressions)) or "", event)
        by_id.pop("", None)
        found = ((by_id.get(id_text(event.fields.get(self.clicks)) or ""), event) for event in clicks)
        return [Pair(impression, click) for impression, click in found if impression is not None]


def id_text(value: Any) -> str | None:
    """An id as text, as the joiner compares them: an integer is its decimal text; None for what is no id."""
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None


def best_pair(found: Sequence[IdPaths], clicks: Side) -> IdPaths | None:
    """The first of `pairs_of_paths`; None if it does not share `ENOUGH` values, or as many as there are clicks."""
    return found[0] if found and found[0].shared >= min(ENOUGH, len(clicks.events)) else None


def pairs_of_paths(
    impressions: Side, clicks: Side, times: tuple[Sequence[Clock], Sequence[Clock]], *, in_lists: bool = False
) -> list[IdPaths]:
    """The pairs of fields that share values, the one that fits best first: one that tells impressions apart, and that
    most clicks share.

    times: the fields that look like times, which are no ids. in_lists: whether lists of values count, which the joiner
    does not read as ids.

    Users tell impressions apart, too, where there are many: of fields that few clicks share,
    only one without repeats may be an id.
    """
    once = {event.text: event for event in impressions.events}.values()  # some are sent twice
    left_out = {time.path for found in times for time in found}
    of_impressions, of_clicks = (_texts_by_path([*of], left_out, in_lists) for of in (once, clicks.events))
    unique = {path: set(texts) for path, texts in of_impressions.items() if len(set(texts)) >= UNIQUE * len(texts)}
    found = [
        IdPaths(path, other, shared)
        for path, known in unique.items()
        for other, texts in of_clicks.items()
        if (shared := sum(text in known for text in texts))
        and (shared >= len(texts) / 2 or len(known) >= ONCE * len(of_impressions[path]))
    ]
    most = max((pair.shared for pair in found), default=0)

    def fit(pair: IdPaths) -> tuple[float, ...]:
        is_near = pair.shared >= 0.95 * most
        return (1, len(unique[pair.impressions]), _same_name(pair), pair.shared) if is_near else (0, pair.shared)

    return sorted(found, key=fit, reverse=True)


def _texts_by_path(events: Sequence[Event], not_ids: set[str | None], in_lists: bool) -> dict[str, list[str]]:
    """The values of the fields that may be ids, which at least half of the events have."""
    least, lists = len(events) / 2, set() if in_lists else {path for event in events for path in event.lists}
    paths = (path for path in paths_of(events) if path not in not_ids | lists and can_be_named(path))
    texts = {path: [text for value in values_of(events, path) if (text := id_text(value))] for path in paths}
    return {path: found for path, found in texts.items() if len(found) >= max(least, 1)}


def _same_name(pair: IdPaths) -> bool:
    mine, theirs = (path.lower().replace(".", "_") for path in (pair.impressions, pair.clicks))
    return theirs.endswith(mine) or mine.endswith(theirs)


def check_ids(
    impressions: Side,
    clicks: Side,
    specs: tuple[EventSpec, EventSpec],
    best: IdPaths | None,
    max_bad_share: float,
    clocks: tuple[Clock, Clock],
) -> tuple[IdPaths, list[Finding]]:
    """The pair of fields by which both topics are to be judged, and what is wrong with the one configured."""
    configured = IdPaths(specs[0].id, specs[1].id)
    sides = ((impressions, configured.impressions), (clicks, configured.clicks))
    if min(len(impressions.events), len(clicks.events)) < ENOUGH:
        return configured, []
    right = (best.impressions, best.clicks) if best else ("the field of the id", "the field of the id")
    wrong = [_check_path(*side, field, max_bad_share) for side, field in zip(sides, right, strict=True)]
    found = [finding for finding in wrong if finding is not None]
    if found and best is None:
        nothing = "no field of the clicks shares its values with an id of the impressions, "
        nothing += _of_other_times((impressions, clicks), clocks) or "as if they were of another site"
        return configured, [replace(one, seen=f"{nothing}; {one.seen}") for one in found]
    if found:
        return best or configured, found
    shared = len(configured.pairs(impressions.events, clicks.events))
    if best is not None and shared < best.shared / 2:
        seen = f"the `{configured.clicks}` of {shared:,} of {count_of(len(clicks.events), 'click')} is an impression's "
        seen += f"`{configured.impressions}`; the `{best.clicks}` of {best.shared:,} is its `{best.impressions}`"
        means = "clicks whose id is of something else find no impression, and every example is a negative"
        return best, [Finding("stops", "id_fields", seen, means, configured.change_to(best))]
    return configured, [] if shared else [*_check_forms(*(values_of(side.events, path) for side, path in sides))]


def _of_other_times(sides: tuple[Side, Side], clocks: tuple[Clock, Clock]) -> str:
    """The times of both samples, for the message, where hardly any click is of a time of the impressions; else ""."""
    impressions, clicks = sides
    spans = _spans(impressions, clocks[0])
    times = sorted(clocks[1].times(clicks.events))
    inside = sum(any(begin <= time <= end for begin, end in spans) for time in times)
    if not times or not spans or inside > HARDLY_ANY * len(times):
        return ""
    of = ", ".join(f"{moment(begin)} to {moment(end)}" for begin, end in sorted(spans))
    ours = f"clicks of {moment(times[0])} to {moment(times[-1])}, impressions of {of}"
    return f"but those that were read are of other times: {ours}; look again with a larger --records"


def check_listed(sides: tuple[Side, Side], ids: IdPaths) -> Iterable[Finding]:
    """Ids that are elements of a list of values. ids: as of `best_pair`."""
    for side, path in zip(sides, (ids.impressions, ids.clicks), strict=True):
        listed = [event for event in side.events if path in event.lists]
        if listed:
            seen = f"the ids of {count_of(len(listed), 'event')} of {side.sample.topic} are in `{path}`, a list of "
            seen += f"values, such as [{shown(listed[-1].fields[path])}]"
            means = "a list of values is not read as an id: its events are dead letters"
            change = "the producer: the id as a field of its own, or in a list of objects ([{id: …}])"
            yield Finding("stops", f"{side.name}_id_in_list", seen, means, change)


def check_several(impressions: Side, clicks: Side, pairs: Iterable[IdPaths]) -> Iterable[Finding]:
    """Events that show several things, each with an id of its own, of which most clicks name one. pairs: as of
    `pairs_of_paths`.
    """
    events, at_least = impressions.events, max(len(clicks.events) / 2, ENOUGH)
    for path, other in ((pair.impressions, pair.clicks) for pair in pairs):
        several = sum(bool(event.more.get(path)) for event in events)
        if several <= HARDLY_ANY * len(events):
            continue
        ids = {id_text(one) for event in events for one in (event.fields.get(path), *event.more.get(path, ()))} - {None}
        named = sum(id_text(event.fields.get(other)) in ids for event in clicks.events)
        if named >= at_least:
            seen = f"`{path}` has several values in {several:,} of {count_of(len(events), 'event')} of "
            seen += (
                f"{impressions.sample.topic}; the `{other}` of {named:,} of {count_of(len(clicks.events), 'click')} "
            )
            seen += "is one of them"
            means = "an impression is one thing that is clicked or not: a click on one counts for all, or for the first"
            change = "the producer: one event for each of them, with its id as a field of its own"
            yield Finding("warns", "several_in_one", seen, means, change)
            return


def _check_path(side: Side, path: str, right: str, max_bad_share: float) -> Finding | None:
    """Events without an id, or with one that cannot be an id."""
    events, values = side.events, values_of(side.events, path)
    usable = sum(id_text(value) is not None for value in values)
    if usable >= (1 - max_bad_share) * len(events):
        return None
    if len(values) > usable:
        seen = f"{len(values) - usable:,} values of `{path}` are neither text nor whole numbers: {shown(values[-1])}"
        change = "the producer: write the id as text"
    else:
        seen = f"{len(values):,} of {count_of(len(events), 'event')} of {side.sample.topic} have a `{path}`"
        there = ", ".join(f"`{name}`" for name, _ in paths_of(events).most_common(12))
        seen += f"; they have {there}"
        change = f"{side.setting('id')}: {right}"
        if right == path:
            change = "the producer: an id in every event; or join.max_bad_share above "
            change += f"{percent(1 - usable / len(events))}, where events without one may be left out"
    return Finding("stops", f"{side.name}_id", seen, "an event without an id is a dead letter", change)


def _check_forms(mine: Sequence[Any], theirs: Sequence[Any]) -> Iterable[Finding]:
    """Ids of which none is the same, but would be if both were written alike."""
    known = {_alike(value) for value in mine}
    matched = sum(_alike(value) in known for value in theirs)
    if matched >= min(ENOUGH, len(theirs)):
        seen = (
            f"no click has the id of an impression; {matched:,} of {len(theirs):,} would, but for upper and lower "
            f"case, dashes, white space or leading zeros: {shown(mine[-1])} and {shown(theirs[-1])}"
        )
        means = "ids are compared as they are written; only a whole number and its decimal text are the same"
        yield Finding("stops", "id_forms", seen, means, "the producer of one topic: write the id as the other does")


def _alike(value: Any) -> str:
    return str(value).strip(" \t\r\n\"'{}").replace("-", "").lower().lstrip("0")


def check_matches(
    impressions: Side, clicks: Side, ids: IdPaths, pairs: Sequence[Pair], clocks: tuple[Clock, Clock], window_ms: int
) -> Iterable[Finding]:
    """Whether the clicks whose impression must be in the sample find it; those without an id are told elsewhere."""
    events = [event for event in clicks.events if id_text(event.fields.get(ids.clicks)) is not None]
    if len(pairs) >= max(MATCHED_WARNS * len(events), ENOUGH):
        return
    expected = _expected(impressions, events, clocks, window_ms)
    matched = {id(pair.click) for pair in pairs}
    lost = [event for event in expected if id(event) not in matched]
    if len(expected) < ENOUGH:
        yield Finding(
            "tells" if pairs else "warns",
            "matches_unknown",
            f"{len(pairs):,} of {count_of(len(events), 'click')} of the sample find their impression in it; it "
            f"has {len(impressions.events):,} of {count_of(impressions.sample.held, 'impression')}",
            "whether all clicks find their impressions cannot be said from this sample",
            "look again with a larger --records, or once there are more",
        )
    elif len(lost) > (1 - MATCHED_WARNS) * len(expected):
        examples = values_of(impressions.events, ids.impressions)[-1:] + values_of(lost, ids.clicks)[-1:]
        yield Finding(
            severity_of(len(lost) / len(expected), 1 - MATCHED_STOPS),
            "matches",
            f"{len(expected) - len(lost):,} of {count_of(len(expected), 'click')} find an impression whose "
            f"`{ids.impressions}` is their `{ids.clicks}`, though the sample has the impressions of their time"
            f"{_told_apart(lost, [pair.click for pair in pairs])}{_forms_of(impressions, lost, ids)}",
            "the others are of impressions elsewhere, as of another site or topic, or later than join.window; "
            f"the ids are, for example, {' and '.join(map(shown, examples))}",
            f"{impressions.setting('topic')} or {clicks.setting('topic')}, if it is another topic; else the producer",
        )


def _spans(impressions: Side, clock: Clock) -> list[tuple[int, int]]:
    """From the first time to the last one of each block of a sample, in any of its partitions."""
    found = []
    for block in impressions.blocks:
        times = [time for events in block.values() for time in clock.times(events)]
        if times:
            found.append((min(times), max(times)))
    return found


def _expected(impressions: Side, clicks: Iterable[Event], clocks: tuple[Clock, Clock], window_ms: int) -> list[Event]:
    """The clicks whose impressions, if they are no longer than a window before them, lie in a block of the sample."""
    whole, spans = impressions.sample.whole, []
    for block in impressions.blocks:
        of_events = map(clocks[0].times, block.values())
        times = [sorted(of_partition) for of_partition in of_events if of_partition]
        if whole and times:
            spans.append((min(t[0] for t in times), max(t[-1] for t in times)))
        elif times:
            spans.append((max(t[0] for t in times) + window_ms, min(t[-1] for t in times)))
    timed = ((clocks[1].of(event), event) for event in clicks)
    return [event for time, event in timed if time is not None and any(begin <= time <= end for begin, end in spans)]


def _forms_of(impressions: Side, lost: Sequence[Event], ids: IdPaths) -> str:
    """How many clicks would find their impression if both wrote the id alike, for the message; "" for hardly any."""
    known = {_alike(value) for value in values_of(impressions.events, ids.impressions)}
    alike = sum(_alike(value) in known for value in values_of(lost, ids.clicks))
    words = f"; {alike:,} of the others would, but for upper and lower case, dashes, white space or leading zeros"
    return words if alike >= ENOUGH else ""


def _told_apart(lost: Sequence[Event], matched: Sequence[Event]) -> str:
    """A field whose values tell the clicks without an impression from the others, for the message; "" without one."""
    for path, count in paths_of(lost).items():
        values, others = Counter(map(str, values_of(lost, path))), {*map(str, values_of(matched, path))}
        own = {value: n for value, n in values.items() if value not in others}
        if count >= ENOUGH and len(values) <= len(lost) / 10 and sum(own.values()) >= 0.9 * count:
            return f"; those that do not have `{path}` {shown(max(own, key=own.__getitem__))}, which no other click has"
    return ""
