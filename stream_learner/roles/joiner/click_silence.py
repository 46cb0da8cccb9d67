"""The rule by which clicks count as silent: they have stopped although impressions go on, for longer than chance and
the usual lulls explain.

The rule counts the records that come into both topics, in all partitions of this process. It never looks at events that
were read: reading late, catching up and full buffers must mean nothing to it. Times are arguments.

Time is cut into slots of `SLOT_MS`. A slot in which clicks came, however many, is an *arrival*: a burst or a batch
counts once. A *lull* is a run of slots with impressions and no click; its length is counted in impressions, so that a
quiet night is no lull. The usual rate is arrivals / impressions over about the last `MEMORY` arrivals. A lull lowers
that rate only when it has ended.

Clicks are *waited for* while a lull is unlikely: with n arrivals among N impressions before, one of k impressions has
the probability (1 + k / N)^-n, and below `LIKELY` windows wait for the next click. That costs freshness where chance
explains the lull after all, and truth where nobody waits; so it needs no warm-up, and no regard for longer lulls.

The join is *held*, with an alarm, when a lull reaches both
  1. `NEEDED` expected arrivals (the rate times its impressions, but no more than its slots). Were arrivals independent,
     chance would do that with probability exp(-30) = 1e-13 for each arrival;
  2. `LONGEST` times the longest lull that ended in the last day or two: where arrivals come in bursts, or fewer people
     click at night, earlier lulls show it.
It is not held before `ARRIVALS` arrivals and `LEARN_MS` have been seen. The hold ends with the next click in any
partition. The lull of a hold counts with at most twice the length that it had when the hold began: so an outage hardly
changes what is usual, and a long lull that is no outage counts as usual after one or two times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stream_learner.adapters.kafka import End, TopicAndPartition
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.wording import moment_of

SLOT_MS = 1_000
LIKELY = 1 / 1000
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
    """Tells a silence of clicks from a lull. Times are those of one clock, ms.

    held: whether the join is to be held. waits_since_ms: since when clicks are waited for, None while they are not.
    since_ms: when the last click came, or the first look was made. impressions: how many have come since.
    """

    def __init__(self) -> None:
        self.held = False
        self.waits_since_ms: int | None = None
        self.since_ms = -1
        self.impressions = 0
        self._slots = 0
        self._slot = -1
        self._held_at = 0
        self._arrivals = 0
        self._arrival_slot = -1
        self._recent = 0.0
        self._exposed = 0.0
        self._longest = (0, 0)
        self._day = 0
        self._learned_ms = -1

    @property
    def expected(self) -> float:
        """How many arrivals the present lull would have had at the usual rate."""
        rate = self._recent / self._exposed if self._exposed else 0.0
        return min(rate * self.impressions, float(self._slots))

    @property
    def usual(self) -> Usual:
        """The experience up to now."""
        rate = self._recent / self._exposed if self._exposed else 0.0
        return Usual(self._arrivals, rate, max(self._longest), self.held, self.impressions, self._slots)

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
        self._learned_ms = 0
        self.held, self._held_at = usual.held, 0
        self.impressions, self._slots = usual.lull, usual.slots
        if self._is_unlikely:
            self.waits_since_ms = at_ms

    def note(self, came: Arrived) -> None:
        """Count the records that came."""
        if self.since_ms < 0:
            self.since_ms = came.at_ms
        if self._learned_ms < 0:
            self._learned_ms = came.at_ms + LEARN_MS
        self._turn_day(came.at_ms // DAY_MS)
        if came.clicks:
            self._end_lull(came)
        elif came.impressions:
            self._lengthen_lull(came)

    def _turn_day(self, day: int) -> None:
        if day > self._day:
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
        return bool(self._exposed) and self._recent * math.log1p(self.expected / self._recent) > -math.log(LIKELY)

    def _is_silence(self, at_ms: int) -> bool:
        return (
            self._arrivals >= ARRIVALS
            and at_ms >= self._learned_ms
            and self.expected >= NEEDED
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
        self.waits_since_ms = None


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
    ) -> None:
        """time_of: the moment, ms since the epoch, of a time of the clock by which ends are asked for."""
        self._topic = clicks_topic
        self._new = NewRecords(impressions_topic, clicks_topic)
        self._all = ClickSilence()
        self._partitions: dict[int, ClickSilence] = {}
        self._log = log
        self._time_of = time_of
        self._said: dict[int | None, Episode] = {}

    def is_held(self, partition: int) -> bool:
        """Whether the clock may close no window of a partition."""
        own = self._partitions.get(partition)
        return self._all.held or (own is not None and own.held)

    def waits_since(self, partition: int) -> int | None:
        """Since when clicks are waited for in a partition; None where they are not."""
        own = self._partitions.get(partition)
        since = [self._all.waits_since_ms, None if own is None else own.waits_since_ms]
        return min((at for at in since if at is not None), default=None)

    def look(self, ends: Mapping[TopicAndPartition, End]) -> None:
        """Take the present ends of the partitions, and log it where partitions are held from now on, or no more."""
        found = self._new.look(ends)
        if not found:
            return
        at_ms = next(iter(found.values())).at_ms
        self._note(
            None,
            self._all,
            Arrived(at_ms, *(sum(counts) for counts in zip(*(one[1:] for one in found.values()), strict=True))),
        )
        for partition, came in found.items():
            self._note(partition, self._partitions.setdefault(partition, ClickSilence()), came)

    def _note(self, partition: int | None, silence: ClickSilence, came: Arrived) -> None:
        since_ms = silence.since_ms
        silence.note(came)
        where = {"topic": self._topic} if partition is None else {"topic": self._topic, "partition": partition}
        said = self._said.setdefault(partition, Episode(self._log, "clicks_silent", "clicks_again", note=SILENT))
        if not silence.held:
            said.end(**where, since=moment_of(max(self._time_of(since_ms), 0)))
        elif partition is None or not self._all.held:
            said.begin(
                **where,
                since=moment_of(max(self._time_of(silence.since_ms), 0)),
                impressions=silence.impressions,
                clicks_expected=round(silence.expected),
            )

    def recall(self, partition: int, of_all: str, own: str, at_ms: int) -> None:
        """Begin, at `at_ms`, with what an earlier process learned: of all its partitions, and of this one."""
        for silence, text in ((self._all, of_all), (self._partitions.setdefault(partition, ClickSilence()), own)):
            usual = Usual.from_text(text)
            if usual is not None:
                silence.recall(usual, at_ms)

    def to_texts(self, partition: int) -> tuple[str, str]:
        """What this process has learned, of all its partitions and of one, as `recall` takes it."""
        own = self._partitions.get(partition) or ClickSilence()
        return self._all.usual.to_text(), own.usual.to_text()
