"""What a model must show before its first version: that it has learned enough, and that it understands its topics.

Topics that do not fit are joined without an error: keys that differ, an id taken from another field, clocks that are
apart. Then clicks do not find their impressions, and what is learned is that hardly anybody clicks.

    examples, positives   of all that was learned
    matched               the share of the last clicks that found their impression
    unique                the impressions whose id came before, for each one whose id did not: of the last ones
    clicks_begin_late     the examples before the first positive, where chance does not explain so many
    features              the features of all examples
    entropy               the normalized entropy of the last predictions, from the last half to three quarters of all
                          examples: 1 is what a constant has

Clicks that were collected later than impressions leave a beginning without a positive. If k positives were spread
evenly over n examples, the first b of which have none, that would have the probability (1 - b / n)^k.

The share of matched clicks is found twice, from the counts of marks. Early: a click is *settled* when windows are
closed a window (and `skew`) beyond what was closed when it was read: an impression that it belongs to has been emitted
by then, and with it one more positive. That is not so where clicks are read far ahead, as of old topics: a share by
settled clicks alone may let a model through, and only outcomes say that too few clicks match. Those are final after
`lateness`, and know duplicates. The larger share counts.

A model that has been published loses the right to it when its share falls below half of what it was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from stream_learner.core.gate.publication import Sums
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import Mark
from stream_learner.wording import moment_of

SETTLED: Final = 20
"""So few clicks, settled or final, tell no share."""
MEMORY: Final = 2_000
"""The counts are halved when they pass this, so that they are about the last clicks."""
STEPS: Final = 64
"""Of each partition at most so many spans of clicks are waiting to be settled."""
REPEATED: Final = 0.5
"""More impressions than this, for each new one, whose id came before: an id that is not one, or events that are sent
twice."""
CHANCE: Final = 1e-9
"""Less likely than this, no positive at the beginning is not chance."""
LITTLE: Final = 0.05
"""A beginning without positives that is a smaller part of all examples hardly matters any more."""
NOISE_NATS: Final = 20.0
"""So much more loss than a constant has, over all of the last predictions, may be chance: where both are as good, twice
the difference is distributed as a chi-square of few degrees of freedom."""
ENOUGH_TIMES: Final = 10
"""A model within chance of a constant after so many times the examples that are needed is published: it is as good."""
SEEN_AT: Final = 500
"""The sums are noted for the first time at so many examples, and then at twice as many each time."""


class Needed(NamedTuple):
    """What a first version needs. examples: 0 asks for nothing at all. matched: a share of clicks, 0 for none."""

    examples: int
    positives: int
    matched: float


class Unearned(NamedTuple):
    """What is missing, and in plain words. is_wrong: whether more of the same would not help."""

    bound: str
    found: float
    limit: float
    message: str
    is_wrong: bool

    def figures(self) -> dict[str, Any]:
        """The bound and its figures, as fields of a log event."""
        return {"bound": self.bound, "found": self.found, "limit": self.limit}


class Matches:
    """The last clicks, and how many of them found their impression; from the marks of a training log.

    span_ms: a window and the skew.
    """

    def __init__(self, span_ms: int, tick_ms: int) -> None:
        self._span = -(-span_ms // tick_ms)
        self._read: dict[int, deque[tuple[int, int]]] = {}
        """By partition: the stream time in ticks that was closed when clicks were read, and how many those are."""
        self._settled = self._positives = self._matched = self._final = 0

    def count(self, mark: Mark) -> None:
        """Take in the next mark of its partition."""
        clicks = mark.counts.clicks
        read = self._read.setdefault(mark.partition, deque())
        if mark.begins_anew:
            read.clear()
        self._positives += mark.counts.impressions.positives
        self._matched += clicks.matched
        self._final += clicks.matched + clicks.orphans + clicks.late
        while read and read[0][0] + self._span <= mark.stream_tick:
            self._settled += read.popleft()[1]
        if clicks.read:
            if read and mark.stream_tick - read[-1][0] <= self._span // STEPS:
                read[-1] = mark.stream_tick, read[-1][1] + clicks.read
            else:
                read.append((mark.stream_tick, clicks.read))
        while max(self._settled, self._final) > MEMORY:
            self._settled, self._positives = self._settled // 2, self._positives // 2
            self._matched, self._final = self._matched // 2, self._final // 2

    @property
    def clicks(self) -> int:
        """How many clicks `share` is about."""
        return max(self._settled, self._final)

    @property
    def is_final(self) -> bool:
        """Whether the outcomes of enough clicks are known, so that a share that is too small is no matter of time."""
        return self._final >= SETTLED

    @property
    def share(self) -> float | None:
        """The share of the last clicks that found their impression, at most 1; None where there are too few."""
        found = []
        if self._settled >= SETTLED:
            found.append(min(1.0, self._positives / self._settled))
        if self.is_final:
            found.append(self._matched / self._final)
        return max(found, default=None)

    def state(self) -> dict[str, Any]:
        """All state in JSON's types."""
        return {
            "counts": [self._settled, self._positives, self._matched, self._final],
            "read": [[partition, [list(one) for one in read]] for partition, read in sorted(self._read.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Raises KeyError, TypeError or ValueError for what is no such state."""
        settled, positives, matched, final = (int(count) for count in state["counts"])
        read = {int(one): deque((int(tick), int(n)) for tick, n in spans) for one, spans in state["read"]}
        self._settled, self._positives, self._matched, self._final = settled, positives, matched, final
        self._read = read


class FirstVersion:
    """Judges whether a model that was never published may be, and whether one that was still may."""

    def __init__(self, needed: Needed, span_ms: int, tick_ms: int) -> None:
        """span_ms: a window and the skew."""
        self._needed = needed
        self._span_ms, self._tick_ms = span_ms, tick_ms
        self._matches = Matches(span_ms, tick_ms)
        self._closed: dict[int, tuple[int, int, int]] = {}
        """By partition, of the last mark: its last tick, that of stream time, and the last tick when this one moved."""
        self._seen: list[tuple[int, Sums]] = [(0, Sums())]
        """The sums at two numbers of examples: the last one noted, and the one before."""
        self._shown = 0.0
        """The largest share of matched clicks with which the model was published."""
        self._new = self._repeated = 0
        """The last impressions: those with a new id, and those with one that came before."""
        self._before = self._since = self._positives = 0
        """Examples before the first positive, those since, and how many of these are positive."""

    def count(self, mark: Mark) -> None:
        """Take in the next accepted mark of its partition."""
        self._matches.count(mark)
        _, stream, moved = self._closed.get(mark.partition, (0, mark.stream_tick, mark.last_tick))
        moved = moved if mark.stream_tick == stream else mark.last_tick
        self._closed[mark.partition] = mark.last_tick, mark.stream_tick, moved
        counts = mark.counts.impressions
        self._new += counts.examples + counts.sampled_out
        self._repeated += counts.duplicates
        while self._new + self._repeated > MEMORY:
            self._new, self._repeated = self._new // 2, self._repeated // 2

    def learn(self, records: Sequence[ExampleRecord]) -> None:
        """Take in the examples of the next tick."""
        if self._positives and self._before <= LITTLE * (self._before + self._since):
            return
        labels = np.concatenate([record.label for record in records])
        positives = int(np.count_nonzero(labels))
        if positives and not self._positives:
            in_time = labels[np.argsort(np.concatenate([record.log_time_ms for record in records]), kind="stable")]
            self._before += int(np.argmax(in_time > 0))
            self._since += len(labels) - int(np.argmax(in_time > 0))
        elif self._positives:
            self._since += len(labels)
        else:
            self._before += len(labels)
        self._positives += positives

    def note(self, examples: int, sums: Sums) -> None:
        """Take in the sums over all examples so far."""
        if examples >= max(SEEN_AT, 2 * self._seen[-1][0]):
            self._seen = [self._seen[-1], (examples, sums)]

    @property
    def asks(self) -> bool:
        """Whether anything is needed."""
        return self._needed.examples > 0

    def missing(self, summary: Mapping[str, Any], features: int, *, ends: bool) -> Unearned | None:
        """What a model lacks that was never published, None for nothing.

        summary: of all examples (`Progress.summary`). features: of all examples. ends: whether no more examples will
        come; then their number is enough, and what cannot be told by so few is not asked.
        """
        if not self.asks:
            return None
        unmatched = self._unmatched(self._needed.matched, ends=ends)
        wrong = unmatched if unmatched is not None and unmatched.is_wrong else self._not_unique()
        wrong = wrong or self._clicks_begin_late()
        if wrong is not None:
            return wrong
        lacking = self._too_few(summary) or unmatched
        if features == 0 and summary["examples"] and (lacking is None or lacking.bound != "examples" or ends):
            words = f"none of its {summary['examples']:,} examples has a feature: see features.include and exclude"
            return Unearned("features", 0, 1, words, is_wrong=True)
        if lacking is None:
            return self._as_a_constant(summary, ends=ends)
        return None if ends else lacking

    def _not_unique(self) -> Unearned | None:
        """More repeats of ids than new ones explain; asked where there are as many as need be learned."""
        if self._new + self._repeated < min(self._needed.examples, MEMORY // 2):
            return None
        found = self._repeated / max(self._new, 1)
        if found <= REPEATED:
            return None
        words = (
            f"{self._repeated:,} of the last {self._new + self._repeated:,} impressions have the id of an earlier one: "
            "input.impressions.id is not unique, or each event is sent several times"
        )
        return Unearned("unique", found, REPEATED, words, is_wrong=True)

    def _clicks_begin_late(self) -> Unearned | None:
        """Whether clicks were collected later than impressions, so that the first examples are negatives by that."""
        before, examples = self._before, self._before + self._since
        if self._positives == 0 or before <= LITTLE * examples:
            return None
        if self._positives * math.log(self._since / examples) > math.log(CHANCE):
            return None
        words = (
            f"the first {before:,} of {examples:,} examples have no click, of the {self._since:,} after them "
            f"{self._positives:,} have: the clicks begin later than the impressions. Begin again where the clicks "
            "begin: `stream-learner delete --write`, then join.start: a moment"
        )
        return Unearned("clicks_begin_late", before / examples, LITTLE, words, is_wrong=True)

    def _too_few(self, summary: Mapping[str, Any]) -> Unearned | None:
        """What there is too little of to tell anything."""
        for bound in ("examples", "positives"):
            found, limit = summary[bound], getattr(self._needed, bound)
            if found < limit:
                words = f"it has learned {found:,} of {limit:,} {bound}{self._open_windows()}"
                return Unearned(bound, found, limit, words, is_wrong=False)
        clicks = self._matches.clicks
        if self._needed.positives > 0 and self._needed.matched > 0 and clicks < SETTLED:
            words = f"the windows of {clicks:,} of {SETTLED} clicks are over{self._open_windows()}"
            return Unearned("clicks", clicks, SETTLED, words, is_wrong=False)
        return None

    def _open_windows(self) -> str:
        """Which windows do not close, for the message, where none has for longer than a window takes; else ""."""
        stands = [
            stream for last, stream, moved in self._closed.values() if (last - moved) * self._tick_ms > self._span_ms
        ]
        if not stands:
            return ""
        since = f" that ends after {moment_of((min(stands) + 1) * self._tick_ms)}" if min(stands) >= 0 else ""
        return (
            f"; no window{since} is closed yet: clicks have stopped, or events come late (the joiner's log has "
            "`windows_wait`, `stream_lags` or `clicks_lag`)"
        )

    def lost(self) -> Unearned | None:
        """What a model has lost that has been published, None for nothing."""
        return self._unmatched(self._shown / 2) if self._needed.examples > 0 and self._needed.matched > 0 else None

    def _unmatched(self, least: float, *, ends: bool = True) -> Unearned | None:
        share, is_wrong = self._matches.share, ends or self._matches.is_final
        if share is None or share >= least:
            return None
        words = (
            f"{share:.1%} of the last {self._matches.clicks:,} clicks found their impression, {least:.0%} are needed"
        )
        words += "" if is_wrong else "; what the others are is known after join.lateness"
        return Unearned("matched", share, least, words, is_wrong=is_wrong)

    def _as_a_constant(self, summary: Mapping[str, Any], *, ends: bool) -> Unearned | None:
        since, then = self._seen[0]
        last = Sums.of(summary).minus(then)
        if summary["log_loss"] is None or not 0.0 < last.label < last.importance:
            return None
        found, enough = last.normalized_entropy, ENOUGH_TIMES * self._needed.examples
        may_be_chance = last.loss * (1 - 1 / found) <= NOISE_NATS
        if found < 1.0 or (may_be_chance and (ends or summary["examples"] >= enough)):
            return None
        words = (
            f"the normalized entropy of its last {summary['examples'] - since:,} predictions is {found:.3f}; a "
            "constant has 1"
        )
        if may_be_chance:
            words += (
                f". So little more may be chance: it has learned {summary['examples']:,} of up to {enough:,} examples"
            )
        return Unearned("entropy", found, 1.0, words, is_wrong=not may_be_chance)

    def published(self) -> None:
        """Note that the model is published: its share of matched clicks is what it has shown."""
        self._shown = max(self._shown, self._matches.share or 0.0)

    def accept(self) -> None:
        """Let the model through by decision: its share of matched clicks is right as it is."""
        self._shown = self._matches.share or 0.0

    def state(self) -> dict[str, Any]:
        """All state in JSON's types."""
        return {
            "matches": self._matches.state(),
            "seen": [[examples, list(sums)] for examples, sums in self._seen],
            "shown": self._shown,
            "counts": [self._new, self._repeated, self._before, self._since, self._positives],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Raises KeyError, TypeError or ValueError for what is no such state."""
        seen = [(int(examples), Sums(*map(float, sums))) for examples, sums in state["seen"]]
        if not 1 <= len(seen) <= 2:
            raise ValueError(f"the sums at {len(seen)} numbers of examples")
        counts = map(int, state.get("counts", [0] * 5))  # not in checkpoints of earlier versions
        self._matches.restore(state["matches"])
        self._new, self._repeated, self._before, self._since, self._positives = counts
        self._seen, self._shown = seen, float(state["shown"])
