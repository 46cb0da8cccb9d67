"""Keeps checkpoints of a learner by their age, so that `stream-learner rewind` can go back to one of them.

For each age one is kept that is at least that old, and little older. Ages are spans of log time, so a log that is
folded again keeps the same ones. For each age a learner keeps the state at every multiple of half of it (the *step* of
the age) until that is one and a half ages old. At any moment the newest one that is at least as old as the age is then
younger than one and a half ages, and three are kept for each age.

A boundary is a tick before which a state is kept: that state holds every tick up to the one before.

What is kept where: `adapters/rocksdb/history.py`. The fold stops once before each boundary, a checkpoint of that very
tick is written, and kept when it counts. So which states are kept does not depend on the clock. A history is a help,
never a need: where the disk is short the oldest ones are deleted, and if one cannot be kept, the learner says so and
goes on.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from stream_learner.adapters.machine import free_bytes_of
from stream_learner.adapters.rocksdb.history import KeptCheckpoint, drop, keep, kept_in
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.errors import StreamLearnerError
from stream_learner.roles.learner.state_dir import MIB, database_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.roles.learner.checkpoints import Checkpoints

STEPS = 2
"""So many steps make an age."""


def _database_bytes(path: Path) -> int:
    """How large a database is that is in use: RocksDB may delete a file while this looks at it."""
    total = 0
    for file in database_files(path):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


class HistoryAges:
    """The ages of one learner, in ticks. `steps`: for each age its step, and how old a boundary of it may get.

    >>> ages = HistoryAges([3_600_000, 86_400_000], tick_ms=1_000)
    >>> [step for step, _ in ages.steps], ages.next_boundary(after=1_799, up_to=10_000, known=10_000)
    ([1800, 43200], 5400)
    >>> ages.kept([1_800, 3_600, 5_400, 7_200], tick=7_300)
    [3600, 5400, 7200]
    """

    def __init__(self, ages_ms: Sequence[int], *, tick_ms: int) -> None:
        self.steps: list[tuple[int, int]] = []
        for age_ms in sorted(set(ages_ms)):
            age = -(-age_ms // tick_ms)
            step = -(-age // STEPS)
            self.steps.append((step, age + step))

    def next_boundary(self, *, after: int, up_to: int, known: int) -> int | None:
        """The first boundary with after < boundary <= up_to that is still to be kept after the tick `known`."""
        firsts = [max(after, known + 1 - oldest) // step * step + step for step, oldest in self.steps]
        return min((first for first in firsts if first <= up_to), default=None)

    def is_kept(self, boundary: int, *, tick: int) -> bool:
        """Whether the state before this boundary is to be kept after a tick."""
        return any(boundary % step == 0 and tick + 1 - boundary < oldest for step, oldest in self.steps)

    def kept(self, boundaries: Iterable[int], *, tick: int) -> list[int]:
        """The boundaries that are to be kept after a tick."""
        return [boundary for boundary in boundaries if self.is_kept(boundary, tick=tick)]

    @property
    def most(self) -> int:
        """How many are kept at one time, at most."""
        return (STEPS + 1) * len(self.steps)


class History:
    """The kept checkpoints of one learner. Used by the learner's thread."""

    def __init__(
        self, config: Config, metrics: Metrics, log: Logger, *, free_bytes: Callable[[Path], int] = free_bytes_of
    ) -> None:
        self._path = config.state_dir
        self._ages = HistoryAges(config.learner.history_ms, tick_ms=config.join.tick_ms)
        self._tick_ms, self._floor_bytes = config.join.tick_ms, config.learner.min_free_bytes
        self._metrics, self._log, self._free_bytes = metrics, log, free_bytes
        self._kept: list[KeptCheckpoint] = []
        self._failing = False

    def begin(self, checkpoints: Checkpoints) -> None:
        """Look at what is kept, once the state is loaded.

        What is later than the state is of a course that was left. A state that was to be kept, and was not because of a
        crash, is kept now.
        """
        kept = kept_in(self._path, clean=True)
        self._kept = [one for one in kept if one.tick <= checkpoints.tick]
        self._delete([one for one in kept if one.tick > checkpoints.tick])
        if checkpoints.learner.examples and self._ages.is_kept(checkpoints.tick + 1, tick=checkpoints.tick):
            self.keep(checkpoints)
        self._thin(checkpoints.tick)

    def last_before(self, tick: int, *, folded: int, known: int) -> int:
        """The last tick to fold in one go: `tick`, or an earlier one, after which a state is to be kept.

        folded: the last tick that is folded. known: the last tick known to be in the log.
        """
        if folded < 0:
            return tick
        boundary = self._ages.next_boundary(after=folded + 1, up_to=tick, known=max(known, tick))
        return tick if boundary is None else boundary - 1

    def is_due(self, tick: int, *, known: int) -> bool:
        """Whether the state after this tick, which was just folded, is to be kept. known: as of `last_before`."""
        return self._ages.is_kept(tick + 1, tick=max(tick, known)) and not (self._kept and self._kept[-1].tick >= tick)

    def keep(self, checkpoints: Checkpoints) -> None:
        """Keep the checkpoint that was committed last; it may be older than what is folded."""
        if self._kept and self._kept[-1].tick >= checkpoints.tick:
            return
        self.make_room(_database_bytes(self._path))
        try:
            self._kept.append(keep(checkpoints.store, checkpoints.tick, self._note(checkpoints)))
            self._failing = False
        except (StreamLearnerError, OSError) as error:
            if not self._failing:
                self._log.warning("history_not_kept", tick=checkpoints.tick, reason=str(error))
            self._failing = True
        self._thin(checkpoints.tick)

    def _note(self, checkpoints: Checkpoints) -> dict[str, object]:
        loaded = checkpoints.store.load()
        assert loaded is not None, "a checkpoint was committed"
        return {
            "digest": f"{loaded.digest:016x}",
            "examples": loaded.head["learner"]["examples"],
            "rows": loaded.head["rows"],
            "rewinds": len(checkpoints.rewinds),
            "tick_ms": self._tick_ms,
        }

    def make_room(self, size_bytes: int = 0) -> None:
        """Delete the oldest ones while the disk has less free than `learner.min_free` and so many bytes."""
        while self._kept and self._free_bytes(self._path) < self._floor_bytes + size_bytes:
            self.give_room()

    def give_room(self) -> None:
        """Delete the oldest one because the disk is short."""
        if self._kept:
            oldest = self._kept.pop(0)
            self._delete([oldest])
            free_mib = self._free_bytes(self._path) // MIB
            self._log.warning("history_dropped", tick=oldest.tick, reason="the disk is short", free_mib=free_mib)
            self._show(oldest.tick)

    def _thin(self, tick: int) -> None:
        """Delete what no age asks for any more."""
        wanted = set(self._ages.kept([one.tick + 1 for one in self._kept], tick=tick))
        self._delete([one for one in self._kept if one.tick + 1 not in wanted])
        self._kept = [one for one in self._kept if one.tick + 1 in wanted]
        self._show(tick)

    def _show(self, tick: int) -> None:
        oldest = self._kept[0].tick if self._kept else tick
        self._metrics.set(names.LEARNER_HISTORY, len(self._kept))
        self._metrics.set(names.LEARNER_HISTORY_AGE, max(tick - oldest, 0) * self._tick_ms / 1000)

    def _delete(self, kept: list[KeptCheckpoint]) -> None:
        for one in kept:
            try:
                drop(one)
            except OSError as error:
                self._log.warning("history_not_deleted", tick=one.tick, reason=str(error))
                shutil.rmtree(one.path, ignore_errors=True)
