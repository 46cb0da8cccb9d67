"""The transition table of a joiner's partitions (`stream_learner.roles.joiner`), row by row."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_learner.roles.joiner.owned_partitions import OwnedPartitions


class Joiner:
    """Knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Holder:
    """Holds partition 3 in a state, and says what became of it."""

    def __init__(self, state: str) -> None:
        self.reported: list[object] = []
        self.forgotten: list[int] = []
        self.held = OwnedPartitions(self.reported.extend, self.forgotten.append)
        self.joiner = Joiner()
        if state != "not held":
            self.held.assign({3})
        if state in ("joining", "parked"):
            self.held.begin(3, self.joiner)  # type: ignore[arg-type]
        if state == "parked":
            self.held.park({3})
        self.forgotten.clear()
        assert self.state == state

    @property
    def state(self) -> str:
        """The one state of partition 3."""
        states = [name for name in ("given", "joining", "parked") if 3 in getattr(self.held, name)]
        assert len(states) <= 1
        return states[0] if states else "not held"


Event = Callable[[OwnedPartitions], None]
EVENTS: dict[str, Event] = {
    "assigned": lambda held: held.assign({3}),
    "assigned without it": lambda held: held.assign({5}),
    "revoked": lambda held: held.drop({3}),
    "lost": lambda held: held.park({3}),
    "producer renewed": lambda held: held.begin_again(),
}
TABLE = [
    ("not held", "assigned", "given"),
    ("given", "revoked", "not held"),
    ("given", "lost", "not held"),
    ("given", "producer renewed", "given"),
    ("joining", "assigned", "joining"),
    ("joining", "assigned without it", "joining"),
    ("joining", "revoked", "not held"),
    ("joining", "lost", "parked"),
    ("joining", "producer renewed", "given"),
    ("parked", "assigned", "joining"),
    ("parked", "assigned without it", "not held"),
    ("parked", "revoked", "not held"),
    ("parked", "producer renewed", "not held"),
]


@pytest.mark.parametrize(("state", "event", "becomes"), TABLE)
def test_a_partition_goes_from_state_to_state(state: str, event: str, becomes: str) -> None:
    """A joiner is closed where its partition is held no more or begun anew, and else goes on; so do its metrics."""
    holder = Holder(state)
    EVENTS[event](holder.held)
    assert holder.state == becomes
    had, has = state in ("joining", "parked"), becomes in ("joining", "parked")
    assert holder.joiner.closed == (had and not has)
    assert holder.reported == ([holder.joiner] if state == "joining" and not has else [])
    assert holder.forgotten == ([3] if state == "joining" and becomes != "joining" else [])


def test_what_goes_on_after_a_silence_is_the_joiner_as_it_was() -> None:
    """A parked joiner that is given its partition again is turned again, not made anew."""
    holder = Holder("parked")
    holder.held.assign({3, 4})
    assert holder.held.joining == {3: holder.joiner}
    assert holder.held.given == {4}
