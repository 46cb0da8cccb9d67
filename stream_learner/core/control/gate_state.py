"""What a learner holds, as its gates say: a tick, a model before its publication. `records` has the bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """The finding for which a learner holds at a tick: a bound, its slice ("" for all examples), and the figures.

    since_tick: the first tick of what was found. Numbers are None where they are not finite.
    """

    tick: int
    since_tick: int
    bound: str
    slice: str
    found: float | None
    expected: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class HeldPublication:
    """The finding for which a learner publishes nothing since a tick, -1 where none is folded yet: a bound of its
    publications, and plain words.
    """

    tick: int
    bound: str
    reason: str


@dataclass(frozen=True, slots=True)
class GateState:
    """The state of a model's gate, as its learner reports it.

    holding: None while it learns. late: the decisions that it could not take, since their first tick was folded.
    publication: None while it may publish.
    """

    model: str
    log: str
    policy: str
    holding: Holding | None
    late: tuple[str, ...]
    who: str
    when_ms: int
    note: str = ""
    publication: HeldPublication | None = None

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return b"gate/" + self.model.encode()
