"""The partitions that a joiner owns, by their state, and when they are turned: at once while there is work or news,
else seldom. `roles.joiner` has the table of the states.

News is a record that came, a new answer of the brokers about where partitions end, and, for its own partition only, a
delivery; nothing else can give a partition work at once. A record that waits for another topic is no news. What waits
for a moment on the clock, such as a rest before the next attempt, is looked at every `LOOK_S`; what `join.max_rate`
holds back, at once. So a joiner whose inputs are quiet hardly costs anything, however many partitions it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set

from stream_learner.adapters.kafka import EndWatch, ReaderPools
from stream_learner.roles.joiner.partition import PartitionJoiner

LOOK_S = 1.0
"""Without news, partitions are turned so often."""


class OwnedPartitions:
    """given, joining, parked: a partition is in one of them at most. Used by one thread; others may look."""

    def __init__(self, report: Callable[[Sequence[PartitionJoiner]], None], forget: Callable[[int], None]) -> None:
        """report: called with joiners before they are closed. forget: called when a partition is joined no more."""
        self.given: set[int] = set()
        self.joining: dict[int, PartitionJoiner] = {}
        self.parked: dict[int, PartitionJoiner] = {}
        self._report = report
        self._forget = forget

    def assign(self, partitions: Set[int]) -> None:
        """The group has given these: parked ones among them go on as they are, the others are to be begun."""
        parked, self.parked = self.parked, {}
        for partition, joiner in parked.items():
            if partition in partitions:
                self.joining[partition] = joiner
            else:
                joiner.close()
        self.given |= partitions - self.joining.keys()

    def begin(self, partition: int, joiner: PartitionJoiner) -> None:
        """Join a partition that was given."""
        self.given.discard(partition)
        self.joining[partition] = joiner

    def park(self, partitions: Set[int]) -> None:
        """The group has taken these from a member that was silent for too long, and may give them back."""
        self.given -= partitions
        for partition in partitions & self.joining.keys():
            self.parked[partition] = self.joining.pop(partition)
            self._forget(partition)

    def drop(self, partitions: Set[int]) -> None:
        """These are taken: close their joiners."""
        self.given -= partitions
        for partition in partitions & self.parked.keys():
            self.parked.pop(partition).close()
        for partition in partitions & self.joining.keys():
            joiner = self.joining.pop(partition)
            self._report([joiner])
            joiner.close()
            self._forget(partition)

    def begin_again(self) -> None:
        """Close all joiners; those that joined are to be begun anew."""
        joined = frozenset(self.joining)
        self.drop_all()
        self.given |= joined

    def drop_all(self) -> None:
        """Close all joiners."""
        self.drop(frozenset({*self.joining, *self.parked}))


class Turns:
    """Turns the partitions of one joiner; used by one thread."""

    def __init__(
        self,
        pools: ReaderPools,
        ends: EndWatch,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        paced: bool = False,
    ) -> None:
        """paced: whether there is a `join.max_rate`, so that records which came before may be read later."""
        self._paced = paced
        self._pools = pools
        self._ends = ends
        self._clock_s = clock_s
        self._seen: object = None
        self._is_working = True
        self._look_at_s = 0.0
        self._first = 0

    @property
    def may_wait(self) -> bool:
        """Whether only news and `LOOK_S` give work now, and every kind of news wakes the thread."""
        return not self._is_working and self._pools.wakes

    def turn(self, joiners: Sequence[PartitionJoiner], *, news: bool) -> bool:
        """Turn each partition once, if there is work, news or the time for a look. Returns whether any did anything.

        Another partition is the first every time, because they share what `join.max_rate` allows. news: whether there
        is some that the caller knows of. If only deliveries have come, those that have one are turned.
        """
        came = not self._is_working and self._pools.poll(held=self._paced)
        seen, self._seen = self._seen, self._ends.snapshot
        now_s = self._clock_s()
        if not (came or news or self._is_working or self._seen is not seen or now_s >= self._look_at_s):
            told = [joiner for joiner in joiners if joiner.has_deliveries]
            return bool(told) and self._turn(told)
        self._look_at_s = now_s + LOOK_S
        did = self._turn(joiners)
        self._is_working = did or came  # a partition goes by where it was read up to before its turn
        return did

    def _turn(self, joiners: Sequence[PartitionJoiner]) -> bool:
        self._is_working = True  # also after an error, which may be the news of another partition
        self._first = (self._first + 1) % len(joiners) if joiners else 0
        did = [joiner.turn() for joiner in (*joiners[self._first :], *joiners[: self._first])]
        self._is_working = any(did)
        return self._is_working
