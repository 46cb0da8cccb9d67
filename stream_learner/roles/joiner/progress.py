"""The progress of the joiner of one partition, appended and durable, for committed offsets and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stream_learner.adapters.kafka import ToCommit
from stream_learner.core.join.spec import Cut
from stream_learner.core.join.state import NOTHING_EARLY, Early
from stream_learner.core.log.marks import MarkId, TickCounts
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.stream_clock import Remembered


class Kept(NamedTuple):
    """What a joiner keeps for the next owner of a partition, as the metadata of its committed offset.

    All of it may be missing or old: then a little more is read, and a little more waited for. hint: where to read the
    log from. usual_of_all, usual: what was learned of clicks, in all partitions of the process and in this one
    (`click_silence.Usual`). remembered: what the partition's clock has learned.
    """

    hint: Hint | None
    usual_of_all: str = ""
    usual: str = ""
    remembered: Remembered | None = None

    def to_text(self) -> str:
        """The parts of the hint and the others, parted by colons; last the id of the hint's log."""
        hint = "" if self.hint is None else self.hint.to_text()
        clock = "" if self.remembered is None else self.remembered.to_text()
        log_id = "" if self.hint is None else self.hint.log_id
        return ":".join((hint, self.usual_of_all, self.usual, clock, log_id))

    @classmethod
    def from_text(cls, text: str) -> Kept:
        """What a text tells that `to_text` wrote, in this version or before."""
        _, _, _, of_all, own, clock, log_id, *_ = [*text.split(":"), "", "", "", "", "", "", ""]
        hint = Hint.from_text(text)
        return cls(hint and replace(hint, log_id=log_id), of_all, own, Remembered.from_text(clock))


@dataclass(frozen=True)
class Appended:
    """A mark that was appended. at_s: when, by the monotonic clock. first_tick: the first one that it closes.
    reads_from: of a resume point, the first impression and the first click that a joiner reads which begins there
    (offsets); None for any other mark. early: what went before its own time.
    """

    at_s: float
    id: MarkId
    predecessor: MarkId
    cut: Cut
    first_tick: int
    counts: TickCounts
    reads_from: tuple[int, int] | None
    early: Early = NOTHING_EARLY

    @property
    def is_resume_point(self) -> bool:
        """Whether a joiner can begin there."""
        return self.reads_from is not None


@dataclass
class Progress:
    """hint: leads to the last durable resume point. reads_from: of that one, as in `Appended`; None before the first.
    last: the cut of the last durable mark. impressions: how many the durable marks have counted since the partition
    was begun. clicks_waiting: as of the last durable mark.

    The others count since the last report. unreported: the counts of durable marks, and what was early. append_s: how
    long each of these took to become durable. recovery_s: how long steps 1 and 2 took. ticks: durable ones, without the
    long empty run that a new model begins with. lost: dropped attempts, by cause.
    """

    hint: Hint | None
    reads_from: tuple[int, int] | None = None
    last: Cut | None = None
    impressions: int = 0
    unreported: list[tuple[TickCounts, Early]] = field(default_factory=list)
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
        self.unreported.append((tick.counts, tick.early))
        self.append_s.append(now_s - tick.at_s)
        self.clicks_waiting = tick.counts.clicks.waiting
