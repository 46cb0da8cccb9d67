"""The oracle's join: events of one partition in, examples and the end of every record out.

Twice, and independently. `join_by_log_time` compares impressions with clicks as the definition reads, where
nothing but the two logs closes a tick. `replay` follows given marks position by position, as their pure
function is stated, and so also covers ticks that the wall clock closed. Neither may be made fast, or share
code with the product.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.oracle_arithmetic import mix
from tests.oracle_events import Click, Features, Impression, Settings


class Example(NamedTuple):
    tick: int
    partition: int
    offset: int  # of its impression
    log_time_ms: int
    id_hash: int
    label: float
    weight: float
    features: Features


class Mark(NamedTuple):
    """The positions that decide a tick: ticks first..last-1 are empty, all examples belong to the last."""

    first_tick: int
    last_tick: int
    next_impression: int
    click_cursor: int


class Joined(NamedTuple):
    """Examples in their order, and how many records met which end."""

    examples: list[Example]
    impressions: Counter[str]  # read, examples, positives, duplicates, sampled_out, dead
    clicks: Counter[str]  # read, matched, duplicates, orphans, late, dead, waiting
    outcome_of_click: dict[int, str]  # by offset


def log_times(events: Sequence[Impression] | Sequence[Click]) -> list[int]:
    """The running maximum of the times; a bad record adds nothing to it."""
    highest, out = 0, []
    for e in events:
        highest = max(highest, e.time_ms if e.time_ms is not None else 0)
        out.append(highest)
    return out


def seen_before(impressions: Sequence[Impression], s: Settings) -> list[bool]:
    """Which impressions repeat an id of less than `dedupe_ms` of log time before."""
    seen: dict[int, int] = {}
    out = []
    for imp, log_time in zip(impressions, log_times(impressions), strict=True):
        if imp.time_ms is None:
            out.append(False)
            continue
        out.append(imp.id_hash in seen and seen[imp.id_hash] >= log_time - s["dedupe_ms"])
        seen[imp.id_hash] = log_time
    return out


def in_window(click: Click, imp: Impression, s: Settings) -> bool:
    """Whether a click's time lies in the impression's window, both edges included."""
    if click.time_ms is None or imp.time_ms is None or click.id_hash != imp.id_hash:
        return False
    return bool(imp.time_ms - s["skew_ms"] <= click.time_ms <= imp.time_ms + s["window_ms"])


def _example_or_sampled_out(
    imp: Impression, log_time: int, tick: int, partition: int, label: float, s: Settings
) -> Example | None:
    weight = imp.weight
    if label == 0 and s["keep_negatives"] < 1.0:
        if mix(imp.id_hash ^ s["sampling_constant"]) / 2**64 >= s["keep_negatives"]:
            return None
        weight /= s["keep_negatives"]
    return Example(tick, partition, imp.offset, log_time, imp.id_hash, label, weight, imp.features)


def join_by_log_time(
    impressions: Sequence[Impression], clicks: Sequence[Click], s: Settings, partition: int = 0
) -> Joined:
    """Examples of one partition, up to the last tick that the two logs close; no clock is asked."""
    window, skew, tick_ms = s["window_ms"], s["skew_ms"], s["tick_ms"]
    log_i, log_c, repeated = log_times(impressions), log_times(clicks), seen_before(impressions, s)
    last_end = min(log_c[-1], log_i[-1] + window) // tick_ms * tick_ms if log_i and log_c else 0
    n_i: Counter[str] = Counter()
    examples, matched = [], set()
    clicks_of: dict[int, list[tuple[Click, int]]] = {}
    for click, log_time in zip(clicks, log_c, strict=True):
        clicks_of.setdefault(click.id_hash, []).append((click, log_time))
    for imp, log_time, duplicate in zip(impressions, log_i, repeated, strict=True):
        tick = (log_time + window) // tick_ms
        start, end = tick * tick_ms, (tick + 1) * tick_ms
        if end > last_end:
            break
        n_i["read"] += 1
        if duplicate or imp.time_ms is None:
            n_i["duplicates" if duplicate else "dead"] += 1
            continue
        label = 0.0
        for click, click_log_time in clicks_of.get(imp.id_hash, ()):
            read_in_time = click_log_time < end
            remembered = click_log_time + skew + window >= start
            if read_in_time and remembered and in_window(click, imp, s):
                label = max(label, click.value)
                matched.add(click.offset)
        example = _example_or_sampled_out(imp, log_time, tick, partition, label, s)
        n_i["examples" if example else "sampled_out"] += 1
        if example:
            examples.append(example)
            n_i["positives"] += label > 0
    outcomes, n_c = _click_outcomes(clicks, log_c, matched, last_end, s)
    return Joined(examples, n_i, n_c, outcomes)


def _click_outcomes(
    clicks: Sequence[Click], log_c: list[int], matched: set[int], last_end: int, s: Settings
) -> tuple[dict[int, str], Counter[str]]:
    """What became of each click that was read before the end of the last tick."""
    keep = s["window_ms"] + s["skew_ms"]
    outcomes: dict[int, str] = {}
    n: Counter[str] = Counter()
    last_of: dict[int, int] = {}
    for click, log_time in zip(clicks, log_c, strict=True):
        if log_time >= last_end:
            break
        progress = log_time // s["tick_ms"] * s["tick_ms"]
        if log_time + keep >= last_end:
            outcome = "waiting"
        elif click.time_ms is None:
            outcome = "dead"
        elif click.id_hash in last_of and last_of[click.id_hash] >= log_time - keep:
            outcome = "duplicates"
        elif click.offset in matched:
            outcome = "matched"
        else:
            outcome = "late" if click.time_ms < progress else "orphans"
        if click.time_ms is not None:
            last_of[click.id_hash] = log_time
        outcomes[click.offset] = outcome
        n["read"] += 1
        n[outcome] += 1
    return outcomes, n


class _Entry:
    """A click that has been read and not forgotten."""

    def __init__(self, click: Click, log_time: int, code: str) -> None:
        self.click, self.log_time, self.code = click, log_time, code


def replay(
    impressions: Sequence[Impression],
    clicks: Sequence[Click],
    marks: Iterable[Mark],
    s: Settings,
    partition: int = 0,
) -> list[Joined]:
    """What each mark stands for, as a pure function of the inputs and the marks up to it."""
    window, skew, tick_ms = s["window_ms"], s["skew_ms"], s["tick_ms"]
    waiting = deque(zip(impressions, log_times(impressions), seen_before(impressions, s), strict=True))
    unread = deque(zip(clicks, log_times(clicks), strict=True))
    pending: deque[_Entry] = deque()
    out: list[Joined] = []

    def expire(end: int, done: dict[int, str]) -> None:
        while pending and pending[0].log_time + skew + window < end:
            entry = pending.popleft()
            done[entry.click.offset] = entry.code

    for first_tick, last_tick, next_impression, click_cursor in marks:
        examples: list[Example] = []
        n_i: Counter[str] = Counter()
        n_c: Counter[str] = Counter()
        done: dict[int, str] = {}
        # 1. Read the clicks in front of the cursor.
        while unread and unread[0][0].offset < click_cursor:
            click, log_time = unread.popleft()
            same = [e for e in pending if e.click.id_hash == click.id_hash and e.click.time_ms is not None]
            behind = max(first_tick, min(log_time // tick_ms, last_tick)) * tick_ms
            if click.time_ms is None:
                code = "dead"
            elif any(e.log_time >= log_time - (window + skew) for e in same):
                code = "duplicates"
            else:
                code = "late" if click.time_ms < behind else "orphans"
            pending.append(_Entry(click, log_time, code))
            n_c["read"] += 1
        # 2. Forget what expired in the empty ticks of the run; what a single tick reads lives to its end.
        if first_tick < last_tick:
            expire(last_tick * tick_ms, done)
        # 3. Emit the impressions in front of the mark's position.
        while waiting and waiting[0][0].offset < next_impression:
            imp, log_time, duplicate = waiting.popleft()
            n_i["read"] += 1
            if duplicate or imp.time_ms is None:
                n_i["duplicates" if duplicate else "dead"] += 1
                continue
            same = [e for e in pending if e.click.id_hash == imp.id_hash]
            hits = [e for e in same if in_window(e.click, imp, s)]
            label = max([e.click.value for e in hits], default=0.0)
            for e in hits:
                e.code = "matched" if e.code in ("orphans", "late") else e.code
            example = _example_or_sampled_out(imp, log_time, last_tick, partition, label, s)
            n_i["examples" if example else "sampled_out"] += 1
            if example:
                examples.append(example)
                n_i["positives"] += label > 0
        # 4. Forget what expired with this tick.
        expire((last_tick + 1) * tick_ms, done)
        n_c.update(done.values())
        n_c["waiting"] = len(pending)
        out.append(Joined(examples, n_i, n_c, done))
    return out
