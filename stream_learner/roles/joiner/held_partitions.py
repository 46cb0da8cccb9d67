"""The partitions that a joiner holds, by their state: the transition table of `roles.joiner`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from stream_learner.roles.joiner.partition import PartitionJoiner


class HeldPartitions:
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
