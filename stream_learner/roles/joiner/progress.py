"""The progress of the joiner of one partition, appended and durable, for committed offsets and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from stream_learner.adapters.kafka import ToCommit
from stream_learner.core.join.spec import Cut
from stream_learner.core.log.marks import MarkId, TickCounts
from stream_learner.roles.joiner.log_tail import Hint


@dataclass(frozen=True)
class Appended:
    """A mark that was appended. at_s: when, by the monotonic clock. first_tick: the first one that it closes.
    reads_from: of a resume point, the first impression and the first click that a joiner reads which begins there
    (offsets); None for any other mark.
    """

    at_s: float
    id: MarkId
    predecessor: MarkId
    cut: Cut
    first_tick: int
    counts: TickCounts
    reads_from: tuple[int, int] | None

    @property
    def is_resume_point(self) -> bool:
        """Whether a joiner can begin there."""
        return self.reads_from is not None


@dataclass
class Progress:
    """hint: leads to the last durable resume point. reads_from: of that one, as in `Appended`; None before the first.
    last: the cut of the last durable mark. impressions: how many the durable marks have counted since the partition
    was begun. clicks_waiting: as of the last durable mark.

    The others count since the last report. unreported: the counts of durable marks. append_s: how long each of these
    took to become durable. recovery_s: how long steps 1 and 2 took. ticks: durable ones, without the long empty run
    that a new model begins with. lost: dropped attempts, by cause.
    """

    hint: Hint | None
    reads_from: tuple[int, int] | None = None
    last: Cut | None = None
    impressions: int = 0
    unreported: list[TickCounts] = field(default_factory=list)
    append_s: list[float] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)
    clicks_waiting: int = 0
    ticks: int = 0
    attempts: int = 0
    resume_points: int = 0
    log_bytes: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def to_commit(self, kept: Callable[[Hint], str]) -> ToCommit | None:
        """The offsets after the last durable mark, for the group; None before there is one and a hint.

        kept: makes the metadata from the hint.
        """
        if self.last is None or self.hint is None:
            return None
        return ToCommit(self.last.next_impression, self.last.click_cursor, kept(self.hint))

    def note(self, tick: Appended, now_s: float) -> None:
        """Count a mark that has become durable. now_s: the monotonic clock."""
        self.last = tick.cut
        self.impressions += tick.counts.impressions.read
        self.ticks += tick.id.last_tick - tick.first_tick + 1 if tick.first_tick > 1 else 1
        self.resume_points += tick.is_resume_point
        self.reads_from = tick.reads_from or self.reads_from
        self.unreported.append(tick.counts)
        self.append_s.append(now_s - tick.at_s)
        self.clicks_waiting = tick.counts.clicks.waiting
