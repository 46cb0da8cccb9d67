"""How often a model went back to a kept checkpoint, and which states of it are of before that.

A rewind takes a model's state back to a tick, and from there it is learned again, perhaps with a span left out. A state
that was folded on past that tick without the rewind is another model: it must not be published or copied any more. So
every rewind has a record in the control topic, a state carries the rewinds that it went through, and the states of one
model are compared by how many these are.

>>> first = Rewind(100, 250, "ann@host", 1, "dead clicks")
>>> Rewinds("ctr", (first,)).missed_by(known=0, tick=180), Rewinds("ctr", (first,)).missed_by(known=0, tick=80)
(Rewind(to_tick=100, from_tick=250, who='ann@host', when_ms=1, note='dead clicks'), None)
>>> Rewinds("ctr", (first,)).missed_by(known=1, tick=180) is None
True
"""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]
"""What a state says of one rewind: `to_tick` and `from_tick` of it."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """One rewind. to_tick: the last tick of the state gone back to. from_tick: the last one learned or published."""

    to_tick: int
    from_tick: int
    who: str
    when_ms: int
    note: str = ""

    @property
    def span(self) -> Span:
        """What the state says of it."""
        return self.to_tick, self.from_tick


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
        """What a state that went through all of them says."""
        return tuple(rewind.span for rewind in self.history)

    def missed_by(self, *, known: int, tick: int) -> Rewind | None:
        """The rewind that a state has missed, which goes back furthest; None if it has missed none that concerns it.

        known: how many it went through. tick: the last that it holds. A rewind to that tick or a later one does not
        concern it: what it holds is what the rewind left.
        """
        missed = [rewind for rewind in self.history[known:] if rewind.to_tick < tick]
        return min(missed, key=lambda rewind: rewind.to_tick, default=None)
