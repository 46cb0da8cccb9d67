"""Decides when one learner writes a checkpoint, and when its disk has no room for one: step 6 of the learner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.errors import DiskFull
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.gate import ModelGate
from stream_learner.roles.learner.history import History
from stream_learner.roles.learner.leadership import Leadership
from stream_learner.roles.learner.log_follower import LogFeatures, LogPosition
from stream_learner.roles.learner.publication_gate import ModelPublicationGate
from stream_learner.roles.learner.state_dir import DiskRoom

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config

Positions = Mapping[int, LogPosition]


class CheckpointSchedule:
    """The checkpoints of one learner. Used by the learner's thread, between two ticks.

    In every call `tick` is the last that was folded, and `positions` say where each partition of the log goes on after
    it.
    """

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        log: Logger,
        leadership: Leadership,
        log_features: LogFeatures,
        gate: ModelGate,
        publication_gate: ModelPublicationGate,
    ) -> None:
        """leadership: has the copies that are told of every checkpoint. log_features, gate: go into all of them."""
        self._metrics, self._log = metrics, log
        self._leadership, self._log_features, self._gate = leadership, log_features, gate
        self._publication_gate = publication_gate
        self._interval_s = config.learner.checkpoint_interval_ms / 1000
        self._room = DiskRoom(config.state_dir, config.learner.min_free_bytes, log)
        self._history = History(config, metrics, log)
        self._keep_tick = -1
        self._began_s = time.monotonic()

    @property
    def trouble(self) -> str:
        """The reason why nothing is written, "" while the disk has room."""
        return self._room.reason

    def begin(self, checkpoints: Checkpoints) -> None:
        """Look at the kept checkpoints, once the state is loaded."""
        self._history.begin(checkpoints)

    def last_before_kept(self, tick: int, *, folded: int, known: int) -> int:
        """The last kept checkpoint before a tick, by `History.last_before`."""
        return self._history.last_before(tick, folded=folded, known=known)

    def keep_when_due(self, tick: int, checkpoints: Checkpoints, positions: Positions, *, known: int) -> None:
        """Begin a checkpoint that is to be kept, if this tick was the last before a boundary of the history.

        known: the last tick known to be in the log.

        Raises StateDamaged, and DiskFull where RocksDB would not go on by itself.
        """
        if not self._history.is_due(tick, known=known) or not self._room.may_write():
            return
        try:
            self._finish_checkpoint(checkpoints)
            if tick > checkpoints.tick:
                self._began_s = time.monotonic()
                self._keep_tick = tick
                self._begin(tick, checkpoints, positions)
            elif tick == checkpoints.tick:
                self._history.keep(checkpoints)
        except DiskFull as error:
            self._refused(error, tick, checkpoints)

    def must_wait(self, checkpoints: Checkpoints) -> bool:
        """Whether the fold waits: the disk is full, or changed rows fill the memory until the next checkpoint."""
        row_index = checkpoints.row_index
        return bool(self._room.reason) or (row_index is not None and row_index.must_wait)

    def write_when_due(self, tick: int, checkpoints: Checkpoints, positions: Positions, *, at_end: bool) -> bool:
        """Write a piece of a checkpoint, or begin one if it is time; whether there was anything to write.

        at_end: whether all is folded that was to be; then it is time. Raises StateDamaged, and DiskFull where RocksDB
        would not go on by itself.
        """
        if not self._room.may_write():
            self._history.make_room()
            return False
        try:
            if checkpoints.writing:
                if checkpoints.step():
                    self._note(checkpoints)
                return True
            if not self._is_due(tick, checkpoints, at_end=at_end):
                return False
            self._began_s = time.monotonic()
            self._begin(tick, checkpoints, positions)
            return True
        except DiskFull as error:
            self._refused(error, tick, checkpoints)
            return False

    def _refused(self, error: DiskFull, tick: int, checkpoints: Checkpoints) -> None:
        """Give up a checkpoint that the disk has no room for. Raises the error if RocksDB would not go on by itself."""
        self._history.give_room()
        self._room.refused(error)
        term = self._leadership.term
        checkpoints.drop(tick if term is None else term.publication.version)

    def _is_due(self, tick: int, checkpoints: Checkpoints, *, at_end: bool) -> bool:
        if tick <= checkpoints.tick:
            return False
        is_time = time.monotonic() - self._began_s >= self._interval_s
        if not (at_end or is_time or self.must_wait(checkpoints)):
            return False
        return checkpoints.row_index is None or not checkpoints.row_index.behind

    def finish(self, tick: int, checkpoints: Checkpoints, positions: Positions) -> None:
        """Write what is folded, and copy it, if the disk has room: so the next start is quick."""
        if self._room.reason:
            self._log.warning("last_checkpoint_left_out", tick=checkpoints.tick, reason=self._room.reason)
            return
        self._finish_checkpoint(checkpoints)
        if tick > checkpoints.tick:
            self._begin(tick, checkpoints, positions)
            self._finish_checkpoint(checkpoints)
        if self._leadership.copies is not None:
            self._leadership.copies.finish()

    def _begin(self, tick: int, checkpoints: Checkpoints, positions: Positions) -> None:
        gates = self._gate.state(), self._publication_gate.state()
        checkpoints.begin(tick, positions, self._log_features.by_partition, *gates)

    def _finish_checkpoint(self, checkpoints: Checkpoints) -> None:
        if checkpoints.writing:
            checkpoints.finish()
            self._note(checkpoints)

    def _note(self, checkpoints: Checkpoints) -> None:
        """Tell the copies, the metrics and the log of a checkpoint that counts now."""
        learner, copies = checkpoints.learner, self._leadership.copies
        self._room.wrote()
        if checkpoints.tick == self._keep_tick:
            self._history.keep(checkpoints)
        if copies is not None:
            copies.committed(checkpoints.tick)
        self._metrics.inc(names.LEARNER_CHECKPOINTS)
        self._metrics.observe(names.LEARNER_CHECKPOINT, checkpoints.seconds)
        if self._leadership.term is None:  # else every publication counts
            learner.count_nonzero()
        self._log.info(
            "checkpoint",
            tick=checkpoints.tick,
            features=learner.table.count,
            seconds=round(checkpoints.seconds, 3),
        )
