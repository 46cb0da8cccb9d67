"""The decisions of operators about ticks of a training log: to learn them all the same, or to leave them out.

A decision is of the log: every model that is learned from it takes it, in a replay too. So nothing here depends on the
order in which decisions arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from stream_learner.core.machine.hashing import hash_texts, mix

What = Literal["accept", "skip"]
WHATS: Final = ("accept", "skip")
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Decision:
    """Learn (`accept`) or leave out (`skip`) the examples of the ticks `from_tick..to_tick`, both included.

    id: 16 hexadecimal digits, a function of everything else, so that the same decision written twice is one.
    """

    id: str
    what: What
    from_tick: int
    to_tick: int
    who: str
    when_ms: int
    why: str

    def __post_init__(self) -> None:
        if self.what not in WHATS:
            raise ValueError(f"a decision is {' or '.join(WHATS)}, not {self.what!r}")
        if not 0 <= self.from_tick <= self.to_tick:
            raise ValueError(f"a decision about ticks {self.from_tick}..{self.to_tick}")
        if self.id != _id_of(self):
            raise ValueError(f"decision {self.id} does not have the id of its content, {_id_of(self)}")

    @classmethod
    def make(cls, what: What, from_tick: int, to_tick: int, *, who: str, when_ms: int, why: str) -> Decision:
        """A decision with the id that belongs to it. Raises ValueError for ticks that are none."""
        named = _id_text(what, from_tick, to_tick, who, when_ms, why)
        return cls(named, what, from_tick, to_tick, who, when_ms, why)

    def covers(self, tick: int) -> bool:
        """Whether it is about this tick."""
        return self.from_tick <= tick <= self.to_tick


class Decisions:
    """All decisions about one training log; immutable."""

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        by_id = {decision.id: decision for decision in decisions}
        self._sorted = tuple(sorted(by_id.values(), key=_order))

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._sorted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decisions) and self._sorted == other._sorted

    def __hash__(self) -> int:
        return hash(self._sorted)

    def at(self, tick: int) -> Decision | None:
        """The decision that counts for a tick: a skip before an accept, of equals the one with the smallest id."""
        return next((decision for decision in self._sorted if decision.covers(tick)), None)

    def covering(self, first: int, last: int) -> Decision | None:
        """The first of those, in the order in which they count, that is about all ticks `first..last`."""
        return next((one for one in self._sorted if one.covers(first) and one.covers(last)), None)

    def instead_of(self, decision: Decision) -> Decision | None:
        """The decision that counts for every tick of this one, None if this one counts for any or none counts."""
        found = self.covering(decision.from_tick, decision.to_tick)
        return found if found is not None and found.id != decision.id else None


def decisions_digest(applied: Iterable[Decision]) -> int:
    """u64 of the decisions that took effect, in any order; 0 if there are none."""
    words = {decision.id: int(mix(np.uint64(int(decision.id, 16)))) for decision in applied}
    return sum(words.values()) & _MASK


def other_course(mine: Mapping[str, int], theirs: Mapping[str, int], tick: int) -> list[str]:
    """The decisions that took effect in only one of two folds of a log, or at another tick, up to a tick; by id.

    mine, theirs: the first tick at which each decision took effect.
    """
    in_mine = {one for one in mine.items() if one[1] <= tick}
    in_theirs = {one for one in theirs.items() if one[1] <= tick}
    return sorted({name for name, _ in in_mine ^ in_theirs})


def _order(decision: Decision) -> tuple[bool, str]:
    return decision.what != "skip", decision.id


def _id_of(decision: Decision) -> str:
    return _id_text(decision.what, decision.from_tick, decision.to_tick, decision.who, decision.when_ms, decision.why)


def _id_text(what: str, from_tick: int, to_tick: int, who: str, when_ms: int, why: str) -> str:
    # The lengths keep two contents apart whose texts would join to the same one.
    text = f"decision 1: {what} {from_tick} {to_tick} {when_ms} {len(who)} {who} {why}"
    return f"{int(hash_texts([text.encode('utf-8', 'surrogatepass')])[0]):016x}"
