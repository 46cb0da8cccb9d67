"""Bounds the memory of a model: the rows that are not in memory are in an index, which follows the checkpoints.

The index must never stand for a checkpoint that has not committed: a crash would leave rows of the future in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stream_learner.adapters import machine
from stream_learner.adapters.rocksdb.row_index import CheckpointId, ColdStore, IndexWriter, RowIndex
from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.table.bounded import MIB, PROCESS_BYTES, MemoryBudget
from stream_learner.core.snapshots.rows import StateRows
from stream_learner.errors import ConfigError

if TYPE_CHECKING:
    from stream_learner.config import Config

SHOW_EVERY_S = 10.0


def memory_budget(config: Config, learner: Learner) -> MemoryBudget | None:
    """The parts of `learner.memory`, None where the whole model is in memory."""
    total_bytes = config.learner.memory_bytes
    return None if total_bytes is None else MemoryBudget.of(total_bytes, len(learner.optimizer.columns))


def check_memory(configs: Sequence[Config], available: int) -> None:
    """Log how much memory the bounded models of one process, the log read ahead and the process itself take.

    Does nothing if no model is bounded. available: bytes. Raises ConfigError where the sum is larger.
    """
    bounded = [config for config in configs if config.learner.memory_bytes is not None]
    if not bounded:
        return
    model_bytes = sum(config.learner.memory_bytes or 0 for config in bounded)
    buffer_bytes = max(config.learner.buffer_bytes for config in configs)
    needed_bytes = model_bytes + buffer_bytes + PROCESS_BYTES
    parts = {"models": model_bytes, "log_read_ahead": buffer_bytes, "process": PROCESS_BYTES}
    said = {f"{name}_mib": size // MIB for name, size in parts.items()}
    get_logger("learner").info("memory", **said, sum_mib=needed_bytes // MIB, available_mib=available // MIB)
    if needed_bytes > available:
        raise ConfigError(
            f"learner.memory ({model_bytes // MIB} MiB), learner.buffer ({buffer_bytes // MIB} MiB) and the process "
            f"itself ({PROCESS_BYTES // MIB} MiB) take {needed_bytes // MIB} MiB together, and this machine or "
            f"container has {available // MIB} MiB",
            action=f"Lower learner.memory or learner.buffer, or raise the limit to {needed_bytes // MIB} MiB.",
        )


class RowIndexFollower:
    """Brings the index of one learner's rows to each checkpoint. Used by the learner's thread; writes in another."""

    def __init__(self, store: CheckpointStore, index: RowIndex, budget: MemoryBudget, learner: Learner) -> None:
        """Use `beside`."""
        self._store, self._index, self._learner = store, index, learner
        self.budget = budget
        self._writer = IndexWriter(index)
        self._changed: StateRows | None = None
        self._log = get_logger("learner")
        self._bring_up()
        self.table = learner.bound_memory(ColdStore(index, store.changed_after), budget)

    @classmethod
    def beside(cls, store: CheckpointStore, budget: MemoryBudget | None, learner: Learner) -> RowIndexFollower | None:
        """Bound the memory of a learner that has no rows yet. Brings the index to the last checkpoint, or makes it.

        Without a budget it deletes the index, if there is one, and returns None. Raises StateDamaged, DiskFull.
        """
        if budget is None or store.rows is None:
            store.drop_rows()
            return None
        return cls(store, store.rows, budget, learner)

    def _bring_up(self) -> None:
        index, last = self._index, self._store.last
        if index.checkpoint == last:
            return
        began_s = self._said_s = time.monotonic()
        self._log.info("row_index_behind", index_tick=index.checkpoint.tick, checkpoint_tick=last.tick)
        index.bring_up(self._store.pieces_after(index.checkpoint.sequence), last, self._show)
        self._log.info(
            "row_index_ready", tick=last.tick, rows=index.written_rows, seconds=round(time.monotonic() - began_s, 3)
        )

    def _show(self, rows: int) -> None:
        if time.monotonic() - self._said_s >= SHOW_EVERY_S:
            self._said_s = time.monotonic()
            self._log.info("row_index_progress", rows_read=rows)

    def take_over(self, head: Mapping[str, Any]) -> None:
        """Begin with the rows of the last checkpoint, none of them in memory. head: of that checkpoint.

        Raises ValueError where the head has no digest of the rows, and their digest is not that of the model.
        """
        digest = head["learner"].get("rows_digest")
        self.table.adopt(head["rows"], 0 if digest is None else int(digest, 16))
        if digest is None:  # of a checkpoint written before there was an index
            self.table.take_digest(self.table.rows_digest_full())

    @property
    def behind(self) -> bool:
        """Whether the index does not stand for the last checkpoint yet. Raises DiskFull; it then tries again."""
        return self._writer.busy

    @property
    def must_wait(self) -> bool:
        """Whether the fold has to wait: too many rows have changed since the last checkpoint began."""
        return self.table.must_checkpoint

    @property
    def index_tick(self) -> int:
        """The tick that the index stands for."""
        return self._index.checkpoint.tick

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that RocksDB holds, by part."""
        return self._store.memory

    def begin(self, changed: StateRows) -> None:
        """Note that a checkpoint of these rows has begun."""
        self._changed = changed
        machine.give_back()

    def committed(self) -> None:
        """Note that it has committed; begin to write its rows into the index."""
        assert self._changed is not None
        self._writer.begin(self._changed, CheckpointId(*self._store.last))
        self._changed = None

    def wait(self) -> None:
        """Wait until the index stands for the last checkpoint."""
        self._writer.wait()

    def close(self) -> None:
        """Stop writing. The next start adds what the index lacks."""
        self._writer.close()
