"""The rule by which clicks count as silent: they have stopped although impressions go on, for longer than chance and
the usual lulls explain.

The rule counts the records that come into both topics, in all partitions of this process. It does not look at events
that are read: reading late, catching up and full buffers must mean nothing to it. But where the last record of clicks
that was read is dead, only clicks that are read count. And what was there before all had been read for the first time
is counted by the events' own times: `Backlog`. Times are arguments.

Time is cut into slots of `SLOT_MS`. A slot in which clicks came, however many, is an *arrival*: a burst or a batch
counts once. A *lull* is a run of slots with impressions and no click; its length is counted in impressions, so that a
quiet night is no lull. The usual rate is arrivals / impressions over about the last `MEMORY` arrivals. A lull lowers
that rate only when it has ended.

Clicks are *waited for* while a lull is unlikely: with n arrivals among N impressions before, one of k impressions has
the probability (1 + k / N)^-n, and below `LIKELY` windows wait for the next click, of the first `FIRST` arrivals below
`FIRST_LIKELY`. That costs freshness where chance explains the lull after all, and truth where nobody waits; so it needs
no warm-up, and no regard for longer lulls.

The join is *held*, with an alarm, when a lull reaches both
  1. `NEEDED` expected arrivals (the rate times its impressions, but no more than its slots). Were arrivals independent,
     chance would do that with probability exp(-30) = 1e-13 for each arrival;
  2. `LONGEST` times the longest lull that ended in the last day or two: where arrivals come in bursts, or fewer people
     click at night, earlier lulls show it.
It is not held before `ARRIVALS` arrivals and `LEARN_MS` have been seen. The hold ends with the next click in any
partition. Of a lull that began in a backlog only what was watched, here or by an earlier process, counts for the first
condition: clicks of the last impressions of a backlog may be on their way. The lull of a hold counts with at most twice
the length that it had when the hold began. So an outage hardly changes what is usual, and a long lull that is no outage
counts as usual after one or two times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.kafka import End, TopicAndPartition
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.wording import moment_of

SLOT_MS = 1_000
LIKELY = 1 / 1000
FIRST, FIRST_LIKELY = 10, 1 / 100
NEEDED = 30.0
LONGEST = 3.0
ARRIVALS = 50
LEARN_MS = 15 * 60_000
MEMORY = 200
DAY_MS = 86_400_000
SILENT = (
    "impressions go on and no click comes, for longer than chance explains: until one comes, the clock closes no "
    "window. See whether clicks are still written to the topic. If it is right that there are none, set "
    "join.hold_on_silence to false and start the joiner again"
)
LEARNED = (
    "impressions go on and no click comes, for longer than chance explains. This joiner ends by itself and waits for "
    "none: what comes after the last click is learned as not clicked. See whether clicks are missing in the topic"
)


class Arrived(NamedTuple):
    """The number of records that came since the look before, as of `at_ms`."""

    at_ms: int
    impressions: int
    clicks: int


class Usual(NamedTuple):
    """The experience that a process has had with its clicks and hands on to the next one.

    arrivals: how many were seen. rate: arrivals for each impression. longest: the length of the longest of the last
    lulls, impressions. held: whether the join is held. lull, slots: the length of the present lull.
    """

    arrivals: int
    rate: float
    longest: int
    held: bool
    lull: int = 0
    slots: int = 0

    def to_text(self) -> str:
        """The values as text without a colon."""
        return f"{self.arrivals},{self.rate:.6g},{self.longest},{self.held:d},{self.lull},{self.slots}"

    @classmethod
    def from_text(cls, text: str) -> Usual | None:
        """The values of a text that `to_text` wrote; None for any other text."""
        try:
            arrivals, rate, longest, held, *lull = text.split(",")
            found = cls(int(arrivals), float(rate), int(longest), held == "1", *map(int, lull))
        except (ValueError, TypeError):
            return None
        counts = found.arrivals, found.longest, found.lull, found.slots
        return found if min(counts) >= 0 and 0 <= found.rate <= 1e9 else None


class ClickSilence:
    """Tells a silence of clicks from a lull. Times are those of one clock, ms; they may be below 0.

    held: whether the join is to be held. waits_since_ms: since when clicks are waited for, None while they are not.
    since_ms: when the last click came, or the first look was made. began_before: whether the lull began before that, in
    an earlier process. impressions: how many have come since.
    """

    def __init__(self) -> None:
        self.held = False
        self.waits_since_ms: int | None = None
        self.since_ms: int | None = None
        self.began_before = False
        self.impressions = 0
        self._slots = 0
        self._unwatched = (0, 0)
        self._slot: int | None = None
        self._held_at = 0
        self._arrivals = 0
        self._arrival_slot: int | None = None
        self._recent = 0.0
        self._exposed = 0.0
        self._longest = (0, 0)
        self._day: int | None = None
        self._learned_ms: int | None = None

    @property
    def expected(self) -> float:
        """How many arrivals the present lull would have had at the usual rate."""
        return self._expected(self.impressions, self._slots)

    def _expected(self, impressions: int, slots: int) -> float:
        return min(self._rate * impressions, float(slots))

    @property
    def _rate(self) -> float:
        return self._recent / self._exposed if self._exposed else 0.0

    @property
    def usual(self) -> Usual:
        """The experience up to now."""
        return Usual(self._arrivals, self._rate, max(self._longest), self.held, self.impressions, self._slots)

    def recall(self, usual: Usual, at_ms: int) -> None:
        """Begin with what an earlier process had learned, unless this one has seen more already.

        Where that one waited for clicks, this one does from `at_ms` on.
        """
        if usual.arrivals <= self._arrivals or not usual.rate:
            return
        self._arrivals = usual.arrivals
        self._recent = float(min(usual.arrivals, MEMORY))
        self._exposed = self._recent / usual.rate
        self._longest = (usual.longest, 0)
        self._learned_ms = at_ms
        self.held, self._held_at = usual.held, 0
        self.impressions, self._slots = usual.lull, usual.slots
        self.began_before = usual.lull > 0
        if self._is_unlikely:
            self.waits_since_ms = at_ms

    def note_backlog(self, came: Sequence[Arrived], *, is_all: bool = False) -> None:
        """Count what came before this process had read to the end, also before it began, in the order of its times.

        What was waited for before begins within it: it is read again. is_all: nothing is watched after it.
        """
        if not came:
            return
        lull, slots, since = self.impressions, self._slots, self.since_ms
        self.impressions, self._slots, self.waits_since_ms, self.since_ms = 0, 0, None, came[0].at_ms
        learned = came[0].at_ms + LEARN_MS
        self._learned_ms = learned if self._learned_ms is None else min(self._learned_ms, learned)
        for one in came:
            if not is_all:
                self._unwatched = max(self.impressions + one.impressions - lull, 0), max(self._slots + 1 - slots, 0)
            self.note(one)
        if not any(one.clicks for one in came):
            self.impressions, self._slots = max(self.impressions, lull), max(self._slots, slots)
            if since is not None:
                self.since_ms = min(came[0].at_ms, since)
            if self.waits_since_ms is None and self._is_unlikely:
                self.waits_since_ms = came[0].at_ms

    def note(self, came: Arrived) -> None:
        """Count the records that came."""
        if self.since_ms is None:
            self.since_ms = came.at_ms
        if self._learned_ms is None:
            self._learned_ms = came.at_ms + LEARN_MS
        self._turn_day(came.at_ms // DAY_MS)
        if came.clicks:
            self._end_lull(came)
        elif came.impressions:
            self._lengthen_lull(came)

    def _turn_day(self, day: int) -> None:
        if self._day is None or day > self._day:
            if self._day is not None:
                self._longest = (0, self._longest[0])
            self._day = day

    def _lengthen_lull(self, came: Arrived) -> None:
        self.impressions += came.impressions
        slot = came.at_ms // SLOT_MS
        self._slots += slot != self._slot
        self._slot = slot
        if self.waits_since_ms is None and self._is_unlikely:
            self.waits_since_ms = came.at_ms
        if not self.held and self._is_silence(came.at_ms):
            self.held, self._held_at = True, self.impressions

    @property
    def _is_unlikely(self) -> bool:
        likely = LIKELY if self._arrivals >= FIRST else FIRST_LIKELY
        return bool(self._exposed) and self._recent * math.log1p(self.expected / self._recent) > -math.log(likely)

    def _is_silence(self, at_ms: int) -> bool:
        return (
            self._arrivals >= ARRIVALS
            and self._learned_ms is not None
            and at_ms >= self._learned_ms
            and self._expected(self.impressions - self._unwatched[0], self._slots - self._unwatched[1]) >= NEEDED
            and self.impressions >= LONGEST * max(self._longest)
        )

    def _end_lull(self, came: Arrived) -> None:
        lull = min(self.impressions, 2 * self._held_at) if self.held else self.impressions
        self._longest = (max(self._longest[0], lull), self._longest[1])
        slot = came.at_ms // SLOT_MS
        if slot != self._arrival_slot:
            keep = 1 - 1 / MEMORY
            self._recent, self._exposed = self._recent * keep + 1, self._exposed * keep
            self._arrivals += 1
            self._arrival_slot = slot
        self._exposed += lull + came.impressions
        self.held, self.impressions, self._slots, self.since_ms = False, 0, 0, came.at_ms
        self.began_before = False
        self._unwatched = (0, 0)
        self.waits_since_ms = None


class Backlog:
    """Counts the events of a partition's backlog, as they are read, in slots of their own time.

    Impressions and clicks may be read in any order. Where there are more than `MOST_SLOTS`, those before the last
    `ENOUGH` with clicks are forgotten, and impressions between two of these become one slot, as do those long after the
    last: the rule asks only how many there are. While there are only impressions, the oldest are forgotten. As the last
    click counts the second latest of the last `LAST` that were read: so one clock that is ahead hides no silence.
    """

    MOST_SLOTS = 4096
    ENOUGH = 2 * MEMORY
    LAST = 3

    def __init__(self) -> None:
        self._slots = np.empty(0, np.int64)
        self._counts = np.empty((0, 2), np.int64)
        self._last = np.empty(0, np.int64)

    def note(self, times_ms: NDArray[np.int64], *, clicks: bool = False) -> None:
        """Count impressions, or clicks, by their times (ms)."""
        slots, found = np.unique(times_ms // SLOT_MS, return_counts=True)
        counts = np.zeros((len(slots), 2), np.int64)
        counts[:, int(clicks)] = found
        self._add(slots, counts)
        if clicks:
            self._last = np.concatenate([self._last, times_ms])[-self.LAST :]

    def until(self, log_time_ms: int) -> Backlog:
        """What it holds without impressions after the slot of `log_time_ms`, and clicks after that of the last one."""
        found = Backlog()
        last_ms = int(np.sort(self._last)[-2:][0]) if len(self._last) else 0
        ends = np.array([log_time_ms, last_ms]) // SLOT_MS
        found._add(self._slots, np.where(self._slots[:, None] <= ends, self._counts, 0))
        return found

    def add(self, other: Backlog) -> None:
        """Count what the other one has counted."""
        self._add(other._slots, other._counts)

    def _add(self, slots: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        counts = np.concatenate([self._counts, counts])
        self._slots, places = np.unique(np.concatenate([self._slots, slots]), return_inverse=True)
        self._counts = np.zeros((len(self._slots), 2), np.int64)
        np.add.at(self._counts, places, counts)
        if len(self._slots) > self.MOST_SLOTS:
            self._shorten()

    def _shorten(self) -> None:
        clicked = np.flatnonzero(self._counts[:, 1])
        first = int(clicked[-self.ENOUGH :][0]) if len(clicked) else len(self._slots) - self.MOST_SLOTS // 2
        slots, counts = self._slots[first:], self._counts[first:]
        begins = np.ones(len(slots), bool)
        if len(clicked):
            has_clicks, last = counts[:, 1] > 0, int(clicked[-1]) - first
            begins[1:] = has_clicks[1:] | has_clicks[:-1]
            begins[last : last + self.MOST_SLOTS // 4] = True
        starts = np.flatnonzero(begins)
        self._slots, self._counts = slots[starts], np.add.reduceat(counts, starts, axis=0)

    def arrived(self, offset_ms: int) -> list[Arrived]:
        """What came, in the order of time, by a clock that is so far ahead of the events'. Impressions before the first
        click are left out, if there is one.
        """
        clicked = np.flatnonzero(self._counts[:, 1])
        first = int(clicked[0]) if len(clicked) else 0
        at_ms = (self._slots[first:] * SLOT_MS + offset_ms).tolist()
        return [Arrived(at, *both) for at, both in zip(at_ms, self._counts[first:].tolist(), strict=True)]


class NewRecords:
    """Counts the records that come, by the high watermarks of the partitions that are watched.

    Where a broker does not tell the ends of both inputs of a partition, the impressions that came up to the next such
    answer are not counted: nobody knows whether clicks came too.
    """

    def __init__(self, impressions_topic: str, clicks_topic: str) -> None:
        self._topics = impressions_topic, clicks_topic
        self._before: dict[int, tuple[End, End]] = {}
        self._at_ms = -1
        self._seen: Mapping[TopicAndPartition, End] = {}

    def look(self, ends: Mapping[TopicAndPartition, End]) -> dict[int, Arrived]:
        """The records that came since the last look, by partition; none if the ends are the same object as then."""
        if not ends or ends is self._seen:
            return {}
        self._seen = ends
        at_ms = max(end.asked_at_ms for end in ends.values())
        before_ms, self._at_ms = self._at_ms, at_ms
        before, self._before = self._before, self._pairs(ends)
        found = {}
        for partition, pair in self._before.items():
            if partition not in before:
                continue
            known = all(end.asked_at_ms == at_ms for end in pair)
            known &= all(end.asked_at_ms == before_ms for end in before[partition])
            came = [
                max(end.high_watermark - then.high_watermark, 0)
                for end, then in zip(pair, before[partition], strict=True)
            ]
            found[partition] = Arrived(at_ms, came[0] if known else 0, came[1])
        return found

    def _pairs(self, ends: Mapping[TopicAndPartition, End]) -> dict[int, tuple[End, End]]:
        impressions, clicks = self._topics
        return {
            partition: (end, ends[clicks, partition])
            for (topic, partition), end in ends.items()
            if topic == impressions and (clicks, partition) in ends
        }


class SilenceWatch:
    """Decides for which partitions of a process clicks are waited for, and which are held: applies the rule to all
    partitions together and to each, and logs what it decides. While the join is held the clock closes no window; newer
    clicks do, as ever.
    """

    def __init__(
        self,
        impressions_topic: str,
        clicks_topic: str,
        log: Logger,
        time_of: Callable[[int], int] = lambda at_ms: at_ms,
        *,
        waits: bool = True,
    ) -> None:
        """time_of: the moment, ms since the epoch, of a time of the clock by which ends are asked for. waits: if false,
        a silence is logged, and neither waited for nor held.
        """
        self._topic = clicks_topic
        self._new = NewRecords(impressions_topic, clicks_topic)
        self._all = ClickSilence()
        self._partitions: dict[int, ClickSilence] = {}
        self._counted_all = False
        self._backlogs: dict[int, Backlog] = {}
        self._log_times: dict[int, int] = {}
        self._read: dict[int | None, tuple[int, int]] = {}
        self._dead: set[int] = set()
        self._usable: dict[int, int] = {}
        self._log = log
        self._waits = waits
        self._time_of = time_of
        self._said: dict[int | None, Episode] = {}

    def is_held(self, partition: int) -> bool:
        """Whether the clock may close no window of a partition."""
        own = self._partitions.get(partition)
        return self._waits and (self._all.held or (own is not None and own.held))

    def waits_since(self, partition: int) -> int | None:
        """Since when clicks are waited for in a partition; None where they are not."""
        if not self._waits:
            return None
        own = self._partitions.get(partition)
        since = [self._all.waits_since_ms, None if own is None else own.waits_since_ms]
        return min((at for at in since if at is not None), default=None)

    def look(self, ends: Mapping[TopicAndPartition, End]) -> None:
        """Take the present ends of the partitions, and log it where partitions are held from now on, or no more."""
        found = self._new.look(ends)
        if not found:
            return
        for number in self._usable.keys() & found.keys():
            found[number] = found[number]._replace(clicks=self._usable[number])
        self._usable = dict.fromkeys(self._dead, 0)
        at_ms = next(iter(found.values())).at_ms
        of_all = Arrived(at_ms, *(sum(counts) for counts in zip(*(one[1:] for one in found.values()), strict=True)))
        for partition, came in ((None, of_all), *found.items()):
            silence = self._of(partition)
            since = self._since(partition, silence)
            silence.note(came)
            self._say(partition, silence, since)

    def note_read(self, partition: int, times_ms: NDArray[np.int64], *, clicks: bool = False) -> None:
        """Impressions of a partition, or clicks, with these times were read."""
        if partition in self._backlogs and len(times_ms):
            self._backlogs[partition].note(times_ms, clicks=clicks)

    def note_usable(self, partition: int, usable: NDArray[np.bool_]) -> None:
        """These records of clicks were read: which of them are events. Where the last one is none, clicks that come
        count only as far as they have been read.
        """
        if not len(usable):
            return
        if not usable[-1]:
            self._dead.add(partition)
            self._usable.setdefault(partition, 0)
        else:
            self._dead.discard(partition)
        if partition in self._usable and partition not in self._backlogs:
            self._usable[partition] += int(np.count_nonzero(usable))

    def end_backlog(self, partition: int, at_ms: int, log_time_ms: int) -> None:
        """Both inputs of a partition have been read to their ends of `at_ms`: what was read until then is counted. Once
        that is true of all, it is counted for all of them together. log_time_ms: of the impressions.
        """
        if partition not in self._backlogs:
            return
        is_first = partition not in self._log_times
        self._log_times[partition] = log_time_ms
        if is_first:
            self._note_backlog(partition, self._backlogs[partition].until(log_time_ms), at_ms, log_time_ms)
        if len(self._log_times) < len(self._backlogs):
            return
        if not self._counted_all:
            whole = Backlog()
            for each, backlog in self._backlogs.items():
                whole.add(backlog.until(self._log_times[each]))
            self._note_backlog(None, whole, at_ms, max(self._log_times.values()))
            self._counted_all = True
        self._backlogs.clear()
        self._log_times.clear()

    def _note_backlog(self, partition: int | None, backlog: Backlog, at_ms: int, log_time_ms: int) -> None:
        self._read[partition] = at_ms, at_ms - log_time_ms
        self._of(partition).note_backlog(backlog.arrived(at_ms - log_time_ms), is_all=not self._waits)

    def forget(self, partition: int) -> None:
        """A partition is not joined here any more: the others need not wait for it."""
        self._dead.discard(partition)
        self._usable.pop(partition, None)
        self._backlogs.pop(partition, None)
        self._log_times.pop(partition, None)

    def _of(self, partition: int | None) -> ClickSilence:
        return self._all if partition is None else self._partitions.setdefault(partition, ClickSilence())

    def _say(self, partition: int | None, silence: ClickSilence, since: Mapping[str, str]) -> None:
        """Log it where a silence has begun, or is over. since: the last click before it."""
        where = {"topic": self._topic} if partition is None else {"topic": self._topic, "partition": partition}
        note = SILENT if self._waits else LEARNED
        said = self._said.setdefault(partition, Episode(self._log, "clicks_silent", "clicks_again", note=note))
        if not silence.held:
            said.end(**where, **since)
        elif partition is None or not self._all.held:
            said.begin(
                **where,
                **self._since(partition, silence),
                impressions=silence.impressions,
                clicks_expected=round(silence.expected),
            )

    def _since(self, partition: int | None, silence: ClickSilence) -> dict[str, str]:
        """In a backlog by the events' times, later by the clock."""
        since_ms, (read_ms, ahead_ms) = silence.since_ms or 0, self._read.get(partition, (-1, 0))
        moment_ms = since_ms - ahead_ms if since_ms <= read_ms else self._time_of(since_ms)
        return {"since_before" if silence.began_before else "since": moment_of(max(moment_ms, 0))}

    def recall(self, partition: int, of_all: str, own: str, at_ms: int) -> None:
        """A partition begins, at `at_ms`, with what an earlier process learned: of all its partitions, and of it."""
        self._backlogs[partition] = Backlog()
        for silence, text in ((self._all, of_all), (self._of(partition), own)):
            usual = Usual.from_text(text)
            if usual is not None:
                silence.recall(usual, at_ms)

    def to_texts(self, partition: int) -> tuple[str, str]:
        """What this process has learned, of all its partitions and of one, as `recall` takes it."""
        own = self._partitions.get(partition) or ClickSilence()
        return self._all.usual.to_text(), own.usual.to_text()
