"""How often a model went back to a kept checkpoint, and which states of it are of before that.

A rewind takes a model's state back to a tick, and from there it is learned again, perhaps with a span left out. A state
that was folded on past that tick without the rewind is another model: it must not be published or copied any more. So
every rewind has a record in the control topic, a state carries the rewinds that it went through, and the states of one
model are compared by how many these are.

>>> missed_by(((100, 250),), known=0, tick=180), missed_by(((100, 250),), known=0, tick=80)
((100, 250), None)
>>> missed_by(((100, 250),), known=1, tick=180) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]
"""The note that a state has of one rewind: `to_tick` and `from_tick` of it."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """One rewind. to_tick: the last tick of the state gone back to. from_tick: the last one learned or published."""

    to_tick: int
    from_tick: int
    who: str
    when_ms: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rewinds:
    """All rewinds of a model, oldest first; there is at least one."""

    model: str
    history: tuple[Rewind, ...]

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return b"rewind/" + self.model.encode()

    @property
    def spans(self) -> tuple[Span, ...]:
        """The notes of a state that went through all of them."""
        return tuple((rewind.to_tick, rewind.from_tick) for rewind in self.history)


def missed_by(spans: Sequence[Span], *, known: int, tick: int) -> Span | None:
    """The rewind of a model that a state of it has missed, the one furthest back; None if none concerns it.

    known: how many it went through. tick: the last that it holds. A rewind to that tick or a later one does not concern
    it: what it holds is what the rewind left.
    """
    return min((span for span in spans[known:] if span[0] < tick), default=None)
