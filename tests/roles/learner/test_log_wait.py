"""The log says once for which partitions the fold waits, and once that it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.roles.learner.log_follower import AFTER_S, LogFollower, LogWait


@dataclass
class Passed:
    """A follower by what it says of its partitions."""

    ticks: list[int] = field(default_factory=lambda: [-1, -1])

    @property
    def passed(self) -> int:
        return min(self.ticks)

    def holding_back(self) -> list[int]:
        """Partitions that are behind the furthest."""
        return [n for n, tick in enumerate(self.ticks) if tick == self.passed and self.passed < max(self.ticks)]


def events_of(history: list[tuple[float, list[int]]], tick_ms: int = 1000) -> list[tuple[str, list[int]]]:
    """The events logged in a history of (seconds, last ticks of the partitions), with the partitions they name."""
    now_s, follower = [0.0], Passed()
    with capture_logs() as logged:
        wait = LogWait(get_logger("learner"), tick_ms, clock_s=lambda: now_s[0])
        for at_s, ticks in history:
            now_s[0], follower.ticks = at_s, ticks
            wait.look(cast(LogFollower, follower))
    return [(event["event"], event["partitions"]) for event in logged]


def test_a_partition_that_holds_the_others_back_is_logged_once_and_when_it_goes_on() -> None:
    """Not before the time has passed, and once however long it lasts; the next wait is logged again."""
    late = AFTER_S + 1
    history = [(0, [5, 5]), (1, [9, 5]), (late - 2, [11, 5]), (late, [12, 5]), (3 * late, [13, 5]), (3 * late, [13, 6])]
    assert events_of(history[:3]) == []
    assert events_of(history[:5]) == [("waiting_for_log", [1])]
    assert events_of(history) == [("waiting_for_log", [1]), ("log_goes_on", [1])]
    again = [*history, (4 * late, [13, 13]), (5 * late, [13, 14]), (6 * late, [13, 14])]
    assert events_of(again)[2:] == [("waiting_for_log", [0])]


def test_a_log_in_which_nothing_waits_is_quiet() -> None:
    """All partitions are equally far, as at night."""
    assert events_of([(0, [5, 5]), (1000, [5, 5]), (2000, [5, 5])]) == []


def test_long_ticks_are_waited_for() -> None:
    """Three of them."""
    history = [(0.0, [5, 5]), (100.0, [6, 5]), (179.0, [6, 5])]
    assert events_of(history, tick_ms=60_000) == []
    assert events_of([*history, (181.0, [6, 5])], tick_ms=60_000) == [("waiting_for_log", [1])]
