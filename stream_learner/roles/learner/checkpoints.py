"""Loads a learner's state from its directory, and writes it there piece by piece while the fold goes on.

The rows and the positions of a checkpoint must be of the same tick: else the next start folds ticks twice, or never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from stream_learner.adapters.kafka import TopicInfo
from stream_learner.adapters.rocksdb.store import CheckpointStore, CheckpointWriter
from stream_learner.core.control.rewinds import Span, missed_by
from stream_learner.core.log.marks import MarkId
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.pages import Prefix
from stream_learner.core.snapshots.rows import StateRows
from stream_learner.errors import ModelRewound, StateDamaged, StateOfAnotherModel, TopicRecreated
from stream_learner.roles.learner.log_follower import LOG_BEGINNING, LogPosition
from stream_learner.roles.learner.row_brake import check_bound
from stream_learner.roles.learner.row_index import RowIndexFollower, memory_budget
from stream_learner.roles.learner.state_dir import noting_damage

if TYPE_CHECKING:
    from stream_learner.config import Config


GivesWay: TypeAlias = Callable[[Sequence[str], Mapping[str, Any] | None], bool]
RISING = frozenset({"partitions"})
"""The numbers of a state's identity that may grow: a training log may be given partitions (`operations.begin_anew`).
The positions of a checkpoint say which partitions it has seen."""


def state_identity(config: Config, learner: Learner, partitions: int) -> dict[str, Any]:
    """The identity of a model's state, without its shards and columns. partitions: of the training log."""
    return {
        "model": config.model,
        **learner.kind(),
        "log": config.examples_topic,
        "partitions": partitions,
        "tick_ms": config.join.tick_ms,
    }


def open_store(
    config: Config,
    learner: Learner,
    partitions: int,
    *,
    piece_bytes: int | None = None,
    gives_way: GivesWay = lambda differing, head: False,
) -> CheckpointStore:
    """Open the state directory of a model; make it if it does not exist.

    piece_bytes: bounds the pieces of checkpoints to come, None for what the store finds best. gives_way: as of
    `CheckpointStore.open`.

    Raises StateInUse, StateOfAnotherModel, NewerFormat, StateDamaged, DiskFull.
    """
    budget = memory_budget(config, learner)
    return CheckpointStore.open(
        config.state_dir,
        state_identity(config, learner, partitions),
        shards=config.snapshots.shards,
        ncols=len(learner.optimizer.columns),
        rows_bytes=None if budget is None else budget.rocksdb_bytes,
        piece_bytes=piece_bytes,
        rising=RISING,
        gives_way=gives_way,
    )


def spans_of(head: Mapping[str, Any]) -> tuple[Span, ...]:
    """The rewinds that the head of a checkpoint, or a model record, names."""
    return tuple((int(to_tick), int(from_tick)) for to_tick, from_tick in head.get("rewinds", ()))


def rewinds_field(spans: Iterable[Span]) -> dict[str, Any]:
    """The field that `spans_of` reads."""
    return {"rewinds": [list(span) for span in spans]}


def has_learned(head: Mapping[str, Any] | None) -> bool:
    """Whether the state of a checkpoint with this head holds an example; not without one."""
    return head is not None and bool(head["learner"]["examples"])


class Checkpoints:
    """Checkpoints of one learner. Used by the learner's thread."""

    def __init__(
        self,
        config: Config,
        learner: Learner,
        log: TopicInfo,
        *,
        subset_of_features: Mapping[str, Any] | None = None,
        piece_bytes: int | None = None,
        gives_way: GivesWay = lambda differing, head: False,
    ) -> None:
        """Open the state directory. log: the training log that positions are in. Raises what `open_store` raises.

        subset_of_features: the feature specification that the log's examples are cut down to, None if they are not.
        piece_bytes, gives_way: as of `open_store`.
        """
        self._path = config.state_dir
        self._learner = learner
        self._partitions = log.partitions
        self._log_topic_id = log.id.hex()
        self._subset = subset_of_features
        self._store = open_store(config, learner, log.partitions, piece_bytes=piece_bytes, gives_way=gives_way)
        self._budget = memory_budget(config, learner)
        self._row_index: RowIndexFollower | None = None
        self._writer: CheckpointWriter | None = None
        self._writing_tick = -1
        self._began_s = 0.0
        self.tick = -1
        self.seconds = 0.0
        self.positions: Mapping[int, LogPosition] = {}
        """Where each partition of the log goes on after the last checkpoint."""
        self._writing_positions: Mapping[int, LogPosition] = {}
        self.log_features: dict[int, int] = {}
        """In the checkpoint that was loaded: by partition, the fingerprint of the features that the examples before its
        position were made with."""
        self.rewinds: tuple[Span, ...] = ()
        """The rewinds that the state went through, as every checkpoint says from now on."""
        self.gate: dict[str, Any] | None = None
        """In the checkpoint that was loaded: the state of the gate, None where it has none."""
        self.publication_gate: dict[str, Any] | None = None
        """The same of the gate before publications."""

    def follow_rewinds(self, spans: tuple[Span, ...], tick: int, said_by: str) -> None:
        """Take over the rewinds of the model that this state, folded up to `tick`, has not gone through.

        said_by: who names them, for the error. Raises ModelRewound where the state holds what one of them left behind.
        """
        missed = missed_by(spans, known=len(self.rewinds), tick=tick)
        if missed is not None:
            raise ModelRewound(
                f"{said_by} says that the model was taken back to tick {missed[0]}; {self._path} is of tick {tick}"
            )
        if len(spans) > len(self.rewinds):
            self.rewinds = spans

    @property
    def learner(self) -> Learner:
        """The learner whose state this is."""
        return self._learner

    @property
    def store(self) -> CheckpointStore:
        """The state directory, for copies of it."""
        return self._store

    def load(self) -> dict[int, LogPosition]:
        """Put the last checkpoint into the learner; returns its positions, or the log's beginning without a checkpoint.

        Raises StateDamaged if the rows do not have the digest of the head, TopicRecreated if the positions are of
        another training log, StateOfAnotherModel if the model was learned from other features of the log.
        """
        self._row_index = RowIndexFollower.beside(self._store, self._budget, self._learner)
        loaded = self._store.load()
        if loaded is None:
            self.positions = dict.fromkeys(range(self._partitions), LOG_BEGINNING)
            return dict(self.positions)
        head = loaded.head
        if head["log_topic_id"] != self._log_topic_id:
            raise TopicRecreated(
                f"{self._path} holds positions of another training log: the topic was deleted and made anew"
            )
        if head.get("subset_of_features") != self._subset:
            raise StateOfAnotherModel(
                f"{self._path} holds a model that was learned from other features of the same training log"
            )
        check_bound(head["learner"], head["rows"], self._learner, str(self._path))
        try:
            if self._row_index is not None:
                self._row_index.take_over(head)
            else:
                self._load_rows(head["rows"], loaded.rows)
            self._learner.restore(head["learner"])
        except ValueError as error:
            raise StateDamaged(f"{self._path}: {error}") from error
        self.tick = loaded.version
        self._learner.table.restart_changes(self.tick, self.tick)
        self.log_features = {int(partition): int(text, 16) for partition, text in head.get("features", {}).items()}
        self.rewinds = spans_of(head)
        self.gate, self.publication_gate = head.get("gate"), head.get("publication_gate")
        positions = {
            int(partition): LogPosition(offset, MarkId(attempt, last_tick))
            for partition, (offset, attempt, last_tick) in head["positions"].items()
        }
        self.positions = dict(positions)
        return positions

    def _load_rows(self, count: int, blocks: Iterable[StateRows]) -> None:
        self._learner.table.expect(count)
        for rows in blocks:
            self._learner.table.load(rows)

    @property
    def row_index(self) -> RowIndexFollower | None:
        """The index of the rows that are not in memory, None where the whole model is in memory."""
        return self._row_index

    def begin(
        self,
        tick: int,
        positions: Mapping[int, LogPosition],
        log_features: Mapping[int, int] | None = None,
        gate: Mapping[str, Any] | None = None,
        publication_gate: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin a checkpoint of the state as it is now, after `tick`.

        positions: where each partition of the log goes on after `tick`. log_features, gate, publication_gate: as the
        attributes.
        """
        table = self._learner.table
        self._began_s = time.monotonic()
        self._writing_tick, self._writing_positions = tick, dict(positions)
        if self._row_index is not None:
            self._row_index.wait()
        changed = table.take_changed_for_checkpoint(tick)
        if self._row_index is not None:
            self._row_index.begin(changed)
        head = {
            "log_topic_id": self._log_topic_id,
            "subset_of_features": self._subset,
            "rows": table.count,
            "learner": self._learner.state_scalars(),
            "positions": {
                str(partition): [position.offset, *position.mark] for partition, position in positions.items()
            },
            "features": {str(partition): f"{of_log:016x}" for partition, of_log in (log_features or {}).items()},
            "gate": gate,
        }
        if publication_gate is not None:
            head["publication_gate"] = publication_gate
        if self.rewinds:
            head |= rewinds_field(self.rewinds)
        digest = self._learner.digest()
        with noting_damage(self._path):
            self._writer = self._store.begin(changed, self._rows_of, version=tick, digest=digest, head=head)

    @property
    def writing(self) -> bool:
        """Whether a checkpoint is under way: it has begun, and its head is not written."""
        return self._writer is not None

    def step(self) -> bool:
        """Write the next piece, or the head after the last piece; True once the head is written. Raises DiskFull."""
        assert self._writer is not None
        with noting_damage(self._path):
            if self._writer.step():
                return False
            self._writer.commit()
        self._writer = None
        self.tick, self.positions = self._writing_tick, self._writing_positions
        if self._row_index is not None:
            self._row_index.committed()
        self.seconds = time.monotonic() - self._began_s
        return True

    def drop(self, published_tick: int) -> None:
        """Give up a checkpoint that cannot be written. The next one has all changes since the one before.

        published_tick: of the last publication; the next publication has all changes since.
        """
        self._writer = None
        self._learner.table.restart_changes(self.tick, published_tick)

    def finish(self) -> None:
        """Write the rest of a checkpoint that is under way."""
        while self.writing:
            self.step()

    def _rows_of(self, prefix: Prefix) -> StateRows:
        return self._learner.table.rows_with_prefix(prefix.number, prefix.nbits)

    def close(self) -> None:
        """Close the state directory. Damage that shows only now is noted for the next start."""
        if self._row_index is not None:
            self._row_index.close()
        with suppress(StateDamaged), noting_damage(self._path):
            self._store.close()
