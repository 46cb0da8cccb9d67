"""The oracle's join: events of one partition in, examples and the end of every record out, by docs/join-rules.md alone.

The rules stand here twice. `join_by_log_time` says of each impression and each click by itself what becomes of it,
where nothing but the two logs closes windows. `replay` follows given marks step by step, as the page tells it, and so
also covers windows that the clock closed. `marks_by_log_time` looks for the marks, and `label_by_definition` is the
sentence on labels and nothing else. None of them may be made fast, or share code with the product.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, takewhile
from typing import NamedTuple

from tests.oracles.arithmetic import mix
from tests.oracles.events import Click, Features, Impression, Settings

BEFORE_ALL = -(10**18)
"""A time before every other."""


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
    """What decides the content of a mark: its ticks, its two positions, and the windows that it closes.

    All examples belong to the last of its ticks.
    """

    first_tick: int
    last_tick: int
    next_impression: int  # the border
    click_cursor: int
    stream_tick: int | None = None  # the last tick of stream time whose windows are closed; None: the last tick
    labels_from_ms: int = 0  # impressions with a time before it are late
    rules: int = 5  # 4: late clicks are repeats as others are, and every one in a span is matched
    # 3: as 4, but every click is ahead, and its usual time is the median of one row
    # 2: as 3, but tick and stream time are one, clicks go by log time, impressions are late by the last tick


class Joined(NamedTuple):
    """Examples in their order, and how many records met which end."""

    examples: list[Example]
    impressions: Counter[str]  # read, examples, positives, duplicates, late, sampled_out, dead
    clicks: Counter[str]  # read, matched, duplicates, orphans, late, dead, waiting
    outcome_of_click: dict[int, str]  # by offset
    early: Counter[str]  # examples, clicks; of a mark only


# --- words ----------------------------------------------------------------------------------------------


def least_times(times: Sequence[int], agree: int) -> list[int]:
    """The smallest time of each event's row; the end of the list ends a row too."""
    return [min(times[n : n + agree]) for n in range(len(times))]


def usual_time(row: Sequence[int], length: int) -> int:
    """The median of the times of a click and those after it; its own, the first, stands for those that are missing.

    Of an even number, it is the lower of the two in the middle.

    >>> usual_time([5000, 1000, 1010], 3), usual_time([5000, 1000], 3), usual_time([5000, 1000], 2)
    (1010, 5000, 1000)
    """
    return sorted([*row, *row[:1] * (length - len(row))])[(length - 1) // 2]


def log_times(times: Sequence[int | None], agree: int) -> list[int | None]:
    """The log time of each event; a dead record, which has no time, has no log time.

    The end of the list ends a row: what more records would say of the last `agree` - 1 events is not known here.

    >>> log_times([1000, 9000, 1010, None, 1005], agree=2)
    [1000, 1010, 1010, None, 1010]
    """
    usable = [time for time in times if time is not None]
    known = accumulate(least_times(usable, agree), max)
    return [None if time is None else next(known) for time in times]


def in_span(click: Click, imp: Impression, s: Settings) -> bool:
    """Whether a click has the impression's id and a time in its span, both bounds included."""
    if click.time_ms is None or imp.time_ms is None or click.id_hash != imp.id_hash:
        return False
    return bool(imp.time_ms - s["skew_ms"] <= click.time_ms <= imp.time_ms + s["window_ms"])


def label_by_definition(imp: Impression, clicks: Iterable[Click], click_cursor: int, s: Settings) -> float:
    """The greatest value of the clicks in the impression's span that lie before the cursor of its tick, else 0."""
    return max((c.value for c in clicks if c.offset < click_cursor and in_span(c, imp, s)), default=0.0)


def first_tick_remembered(tick: int, s: Settings) -> int:
    """H: where T is `tick`, an impression whose id was emitted with a T of H or later is a duplicate.

    >>> first_tick_remembered(100, {"dedupe_ms": 1700, "tick_ms": 100})  # k = 17, g = 3, T - k = 83
    81
    """
    k = -(-s["dedupe_ms"] // s["tick_ms"])
    g = -(-k // 8)
    return int((tick - k) // g * g)


# --- closing by log time ----------------------------------------------------------------------------------


def marks_by_log_time(impressions: Sequence[Impression], clicks: Sequence[Click], s: Settings) -> list[Mark]:
    """The marks where no clock is asked: one for each tick that emits impressions, and one for each run between."""
    window, tick_ms, agree = s["window_ms"], s["tick_ms"], s["agree"]
    shown = [(imp.offset, imp.time_ms) for imp in impressions if imp.time_ms is not None]
    clicked = [(click.offset, click.time_ms) for click in clicks if click.time_ms is not None]
    if min(len(shown), len(clicked)) < agree:
        return []
    passed = min(_passed(shown, agree) + window, _passed(clicked, agree))
    last = passed // tick_ms - 1
    # Only where the time of an impression falls behind end - window can the border move; tick 0 emits dead records.
    ticks = {0} | {(time + window) // tick_ms for _, time in shown}
    marks: list[Mark] = []
    first = emitted = place = 0
    for tick in sorted(t for t in ticks if t <= last):
        place = _border(shown, place, (tick + 1) * tick_ms - window, agree)
        border, before = shown[place][0], emitted
        while impressions[emitted].offset < border:
            emitted += 1
        if emitted > before:
            if first < tick:
                marks.append(Mark(first, tick - 1, impressions[before].offset, _cursor(clicked, marks, tick, s)))
            marks.append(Mark(tick, tick, border, _cursor(clicked, marks, tick + 1, s)))
            first = tick + 1
    if first <= last:
        marks.append(Mark(first, last, shown[place][0], _cursor(clicked, marks, last + 1, s)))
    return marks


def _passed(events: Sequence[tuple[int, int]], agree: int) -> int:
    """The last end that a complete row lies at or past."""
    return max(min(time for _, time in events[n : n + agree]) for n in range(len(events) - agree + 1))


def _border(shown: Sequence[tuple[int, int]], place: int, passed_ms: int, agree: int) -> int:
    """The place of the first impression from `place` on that waits."""
    for n in range(place, len(shown) - agree + 1):
        row = [time for _, time in shown[n : n + agree]]
        if row[0] >= passed_ms and sum(time < passed_ms for time in row) < agree / 2:
            return n
    raise AssertionError("log time has passed, so some impression waits")


def _cursor(clicked: Sequence[tuple[int, int]], marks: list[Mark], next_tick: int, s: Settings) -> int:
    """The first click with which a row is complete that lies past the tick's end; the last cursor, if that is later."""
    end, agree = next_tick * s["tick_ms"], s["agree"]
    last_cursor = marks[-1].click_cursor if marks else 0
    begin = bisect_right(clicked, (last_cursor, BEFORE_ALL))
    return next(
        clicked[n][0]
        for n in range(max(begin, agree - 1), len(clicked))
        if all(time >= end for _, time in clicked[n - agree + 1 : n + 1])
    )


# --- record by record, by log time ------------------------------------------------------------------------


class _Known(NamedTuple):
    """A click, and when it is read and goes, in log time."""

    click: Click
    seen_ms: int  # log time when it has been read: the ticks that end at or before it have closed without the click
    goes_ms: int  # by usual time: it goes with the first tick that ends after this

    def is_taken(self, end: int) -> bool:
        return self.seen_ms < end

    def is_gone(self, end: int) -> bool:
        """Whether it went with a tick that ends at `end`, or with one before."""
        return self.seen_ms < end and self.goes_ms < end


def join_by_log_time(
    impressions: Sequence[Impression], clicks: Sequence[Click], s: Settings, partition: int = 0
) -> Joined:
    """Examples of one partition, up to the last tick that the two logs close; no clock is asked."""
    tick_ms, window, lateness = s["tick_ms"], s["window_ms"], s["lateness_ms"]
    marks = marks_by_log_time(impressions, clicks, s)
    last_tick = marks[-1].last_tick if marks else -1
    known = _known_clicks(clicks, s)
    word: dict[int, str] = {}
    n_i: Counter[str] = Counter()
    examples: list[Example] = []
    tick_of_id: dict[int, int] = {}
    clicks_of_id: dict[int, list[_Known]] = {}
    for k in known:
        clicks_of_id.setdefault(k.click.id_hash, []).append(k)
    ticks = _emitting_ticks(impressions, s)
    last_end = (last_tick + 1) * tick_ms if marks else BEFORE_ALL
    log_time = BEFORE_ALL
    for number, (imp, tick) in enumerate(zip(impressions, ticks, strict=True)):
        if tick > last_tick:
            break
        n_i["read"] += 1
        if imp.time_ms is None:
            n_i["dead"] += 1
            continue
        emitted = takewhile(lambda n: ticks[n] <= tick, range(number, len(ticks)))  # noqa: B023
        row = list(islice((t for n in emitted if (t := impressions[n].time_ms) is not None), s["agree"]))
        log_time = max(log_time, tick * tick_ms - window, min(row))
        start, end = tick * tick_ms, (tick + 1) * tick_ms
        _give_first_words(known, clicks_of_id, end, word, s)
        same = [k.click for k in clicks_of_id.get(imp.id_hash, ()) if k.is_taken(end) and not k.is_gone(start)]
        hits = [click for click in same if in_span(click, imp, s)]
        before = tick_of_id.get(imp.id_hash)
        tick_of_id[imp.id_hash] = tick
        if s["dedupe_ms"] and before is not None and before >= first_tick_remembered(tick, s):
            n_i["duplicates"] += 1
        elif imp.time_ms < start - window - lateness:
            n_i["late"] += 1
        elif s["dedupe_ms"] and any(word[c.offset] == "matched" for c in same):
            n_i["duplicates"] += 1
        else:
            matched = [c.offset for c in hits if word[c.offset] in ("orphans", "late")]
            word.update((offset, "matched") for offset in matched)
            if s["dedupe_ms"]:
                word.update((offset, "duplicates") for offset in matched)
                word.update((offset, "matched") for offset in (matched or [c.offset for c in hits])[:1])
            label = max((c.value for c in hits), default=0.0)
            example = _example_or_sampled_out(imp, log_time, tick, partition, label, s)
            n_i["examples" if example else "sampled_out"] += 1
            if example:
                examples.append(example)
                n_i["positives"] += label > 0
    _give_first_words(known, clicks_of_id, last_end, word, s)
    taken = [k for k in known if k.is_taken(last_end)]
    outcomes = {k.click.offset: word[k.click.offset] if k.is_gone(last_end) else "waiting" for k in taken}
    n_c = Counter(outcomes.values())
    n_c.update(read=len(taken))
    return Joined(examples, n_i, n_c, outcomes, Counter())


def _emitting_ticks(impressions: Sequence[Impression], s: Settings) -> list[int]:
    """The tick that emits each: the first for whose end - window neither it nor one before it waits."""
    times = [imp.time_ms for imp in impressions if imp.time_ms is not None]
    tick, out, place = 0, [], 0
    for imp in impressions:
        if imp.time_ms is not None:
            row = times[place : place + s["agree"]]
            missing = [imp.time_ms] * (s["agree"] - len(row))  # what has not come yet is not before it
            with_half = next(t for t in sorted(row, reverse=True) if sum(r < t for r in row + missing) < s["agree"] / 2)
            tick = max(tick, (min(imp.time_ms, with_half) + s["window_ms"]) // s["tick_ms"])
            place += 1
        out.append(tick)
    return out


def _passed_with(times: Sequence[int | None], agree: int) -> list[int]:
    """How far log time has come with each record: the largest least time of the rows complete by then."""
    log = [t for t in log_times(times, agree) if t is not None]
    complete = iter([BEFORE_ALL] * (agree - 1) + log)
    out, passed = [], BEFORE_ALL
    for time in times:
        passed = passed if time is None else next(complete)
        out.append(passed)
    return out


def _known_clicks(clicks: Sequence[Click], s: Settings) -> list[_Known]:
    """The times at which each click is read (when the row that ends with it is complete) and goes.

    Where the end of the list cuts a row, its clicks are at or past all ends that log time has passed, and wait.
    """
    tick_ms, lateness, length = s["tick_ms"], s["lateness_ms"], 2 * s["agree"] - 1
    memory = s["window_ms"] + s["skew_ms"] + lateness
    seen_with = _passed_with([c.time_ms for c in clicks], s["agree"])
    usable = [(c.time_ms, seen) for c, seen in zip(clicks, seen_with, strict=True) if c.time_ms is not None]
    known, goes, usual, place = [], BEFORE_ALL, BEFORE_ALL, 0
    for click, seen in zip(clicks, seen_with, strict=True):
        if click.time_ms is not None:
            row, is_ahead = usable[place : place + length], click.time_ms > max(0, seen // tick_ms) * tick_ms + lateness
            # So many of its row have been read by the ends after the first moment, up to the second.
            stages = zip(
                range(1, len(row) + 1), (at for _, at in row), [*(at for _, at in row[1:]), -BEFORE_ALL], strict=True
            )
            for read, since, until in stages:
                found = max(usual, usual_time([time for time, _ in row[:read]], length))
                until_time = min(click.time_ms, found + lateness) if is_ahead else click.time_ms
                gone = max(goes, since, until_time + memory)
                if (gone // tick_ms + 1) * tick_ms <= until:
                    break
            usual, goes, place = found, gone, place + 1
        known.append(_Known(click, seen, goes))
    return known


def _give_first_words(
    known: Sequence[_Known], of_id: dict[int, list[_Known]], end: int, word: dict[int, str], s: Settings
) -> None:
    """Give a first word to each click that is taken by a tick which ends at `end`, and has none yet, by its offset."""
    for n in range(len(word), len(known)):
        k = known[n]
        if not k.is_taken(end):
            break
        start = max(0, k.seen_ms // s["tick_ms"]) * s["tick_ms"]
        same = [e for e in of_id[k.click.id_hash] if e.click.offset in word and not e.is_gone(start)]
        word[k.click.offset] = _first_word(k.click, [(e.click, word[e.click.offset]) for e in same], start, s)


def _first_word(click: Click, same: Sequence[tuple[Click, str]], start: int, s: Settings, rules: int = 5) -> str:
    """The first word for a click that is taken after the tick that ends at `start`.

    same: the clicks of its id that have been taken and are not gone, and their words.
    """
    if click.time_ms is None:
        return "dead"
    late = click.time_ms < start
    for other, word in same:
        if other.time_ms is None or abs(click.time_ms - other.time_ms) > s["window_ms"] + s["skew_ms"]:
            continue
        if not late or rules < 5 or word == "matched" or other.time_ms == click.time_ms:
            return "duplicates"
    return "late" if late else "orphans"


def _example_or_sampled_out(
    imp: Impression, log_time: int, tick: int, partition: int, label: float, s: Settings
) -> Example | None:
    weight = imp.weight
    if label == 0 and s["keep_negatives"] < 1.0:
        if mix(imp.id_hash ^ s["sampling_constant"]) / 2**64 >= s["keep_negatives"]:
            return None
        weight /= s["keep_negatives"]
    return Example(tick, partition, imp.offset, log_time, imp.id_hash, label, weight, imp.features)


# --- mark by mark -----------------------------------------------------------------------------------------


class _Kept:
    """A click that has been taken and is not gone; its place counts the clicks that are not dead."""

    def __init__(self, click: Click, place: int, word: str, *, is_ahead: bool) -> None:
        self.click, self.place, self.word, self.is_ahead = click, place, word, is_ahead


class Replay:
    """The state of a partition after some marks; `close` is given one after the other."""

    def __init__(self, impressions: Sequence[Impression], clicks: Sequence[Click], s: Settings, partition: int) -> None:
        self.impressions, self.clicks, self.s, self.partition = impressions, clicks, s, partition
        self.shown = [(i.offset, i.time_ms) for i in impressions if i.time_ms is not None]
        self.clicked = [(c.offset, c.time_ms) for c in clicks if c.time_ms is not None]
        self.stream_tick = -1  # the last one closed
        self.n_emitted = self.n_shown = self.n_taken = self.n_clicked = 0
        self.kept: list[_Kept] = []
        self.kept_of_id: dict[int, list[_Kept]] = {}
        self.emitted_ticks: dict[int, list[int]] = {}
        self.written_ms = self.gone_ms = BEFORE_ALL
        self.passed = _passed_with([c.time_ms for c in clicks], s["agree"])

    def close(self, mark: Mark) -> Joined:
        """Take clicks, emit impressions, let clicks go."""
        n_i: Counter[str] = Counter()
        n_c: Counter[str] = Counter()
        examples: list[Example] = []
        gone: dict[int, str] = {}
        self.early: Counter[str] = Counter()
        last = mark.last_tick if mark.stream_tick is None else mark.stream_tick
        assert self.stream_tick <= last <= mark.last_tick, "stream time never goes back, nor past the mark's last tick"
        if last == self.stream_tick:
            assert not self._emits(mark) and not self._takes(mark), "a mark that closes no window moves no position"
        else:
            gone = self.take_clicks(mark, last, n_c)
            examples = self.emit_impressions(mark, n_i)
            gone |= self.let_clicks_go((last + 1) * self.s["tick_ms"], mark.click_cursor, mark.rules)
        self.stream_tick = last
        n_c.update(gone.values())
        n_c["waiting"] = len(self.kept)
        return Joined(examples, n_i, n_c, gone, +self.early)

    def _emits(self, mark: Mark) -> bool:
        """Whether an impression is left before the border."""
        return self.n_emitted < len(self.impressions) and self.impressions[self.n_emitted].offset < mark.next_impression

    def _takes(self, mark: Mark) -> bool:
        """Whether a click is left before the cursor."""
        return self.n_taken < len(self.clicks) and self.clicks[self.n_taken].offset < mark.click_cursor

    def take_clicks(self, mark: Mark, last: int, n: Counter[str]) -> dict[int, str]:
        """Take the clicks of a mark that closes windows up to tick `last`; the clicks that go meanwhile.

        Only a mark that emits no record is made tick by tick.
        """
        s, gone, tick = self.s, {}, self.stream_tick + 1
        tick_by_tick = mark.rules == 2 or not self._emits(mark)
        while self._takes(mark):
            click = self.clicks[self.n_taken]
            of = min(self.passed[self.n_taken] // s["tick_ms"], last)
            if tick_by_tick and of > tick:
                tick = of
                gone.update(self.let_clicks_go(tick * s["tick_ms"], click.offset, mark.rules))
            self.n_taken += 1
            n["read"] += 1
            self._take(click, tick, mark.rules)
        return gone

    def _take(self, click: Click, tick: int, rules: int) -> None:
        start = tick * self.s["tick_ms"]
        same = self.kept_of_id.setdefault(click.id_hash, [])
        word = _first_word(click, [(e.click, e.word) for e in same], start, self.s, rules)
        if click.time_ms is None:
            self.kept.append(_Kept(click, self.n_clicked, word, is_ahead=False))
            return
        is_ahead = rules < 4 or click.time_ms > start + self.s["lateness_ms"]
        self.kept.append(_Kept(click, self.n_clicked, word, is_ahead=is_ahead))
        same.append(self.kept[-1])
        self.n_clicked += 1

    def emit_impressions(self, mark: Mark, n: Counter[str]) -> list[Example]:
        s, examples = self.s, []
        tick = mark.last_tick if mark.rules == 2 else self.stream_tick + 1  # T
        floor = tick * s["tick_ms"] - s["window_ms"]
        while self._emits(mark):
            imp = self.impressions[self.n_emitted]
            self.n_emitted += 1
            n["read"] += 1
            if imp.time_ms is None:
                n["dead"] += 1
                continue
            row = self._row(self.shown, self.n_shown, mark.next_impression, s["agree"])
            self.written_ms = max(self.written_ms, floor, min(row))
            self.n_shown += 1
            ticks = self.emitted_ticks.setdefault(imp.id_hash, [])
            repeats = s["dedupe_ms"] != 0 and any(t >= first_tick_remembered(tick, s) for t in ticks[-1:])
            ticks.append(tick)
            same = self.kept_of_id.get(imp.id_hash, [])
            hits = [e for e in same if in_span(e.click, imp, s)]
            if repeats:
                n["duplicates"] += 1
            elif imp.time_ms < max(floor - s["lateness_ms"], mark.labels_from_ms):
                n["late"] += 1
            elif s["dedupe_ms"] != 0 and any(e.word == "matched" for e in same):
                n["duplicates"] += 1
            else:
                counting = [e for e in hits if e.word in ("orphans", "late")]
                if s["dedupe_ms"] == 0 or mark.rules < 5:
                    for e in counting:
                        e.word = "matched"
                else:
                    for e in counting[1:]:
                        e.word = "duplicates"
                if s["dedupe_ms"] != 0 and hits:
                    (counting or hits)[0].word = "matched"
                label = max((e.click.value for e in hits), default=0.0)
                example = _example_or_sampled_out(imp, self.written_ms, mark.last_tick, self.partition, label, s)
                n["examples" if example else "sampled_out"] += 1
                if example:
                    examples.append(example)
                    n["positives"] += label > 0
                    last = mark.last_tick if mark.stream_tick is None else mark.stream_tick
                    self.early["examples"] += imp.time_ms + s["window_ms"] >= (last + 1) * s["tick_ms"]
        return examples

    def let_clicks_go(self, end: int, cursor: int, rules: int) -> dict[int, str]:
        """The clicks that go where windows are closed up to `end` and the last click taken lies before `cursor`."""
        s, gone = self.s, {}
        for e in self.kept:
            if e.click.time_ms is not None:
                length = s["agree"] if rules < 4 else 2 * s["agree"] - 1
                row = self._row(self.clicked, e.place, cursor, length)
                usual = max(self.gone_ms, min(row) if rules == 2 else usual_time(row, length))
                until = min(e.click.time_ms, usual + s["lateness_ms"]) if e.is_ahead else e.click.time_ms
                if until + s["window_ms"] + s["skew_ms"] + s["lateness_ms"] >= end:
                    break
                self.gone_ms = usual
                by_its_own_time = e.click.time_ms + s["window_ms"] + s["skew_ms"] + s["lateness_ms"] < end
                self.early["clicks"] += e.word == "orphans" and not by_its_own_time
                self.kept_of_id[e.click.id_hash].remove(e)
            gone[e.click.offset] = e.word
        del self.kept[: len(gone)]
        return gone

    def _row(self, events: list[tuple[int, int]], place: int, end_offset: int, length: int) -> list[int]:
        """The times of an event's row, which also ends where no record may be looked at any more."""
        return [time for offset, time in events[place : place + length] if offset < end_offset]


def replay(
    impressions: Sequence[Impression],
    clicks: Sequence[Click],
    marks: Iterable[Mark],
    s: Settings,
    partition: int = 0,
) -> list[Joined]:
    """The output of each mark, as a pure function of the inputs and the marks up to it."""
    state = Replay(impressions, clicks, s, partition)
    return [state.close(mark) for mark in marks]
