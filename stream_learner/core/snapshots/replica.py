"""A scorer's copy of the model: it follows the records of `<model>.snapshots`, and predicts.

Before the first whole version, records go straight into the table. After it, changes are kept until every shard is
whole at the same version, and then made for all readers at once: no reader waits, and none sees a mixture of versions.

When a publication cannot be applied (a gap, a torn transaction, a damaged record), the last whole version is served on,
`ready` is false, and `why_not_ready` names the first shard in trouble. It is ready again by itself once the pages of
that shard have been published anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.model.losses import LOSSES
from stream_learner.core.snapshots.follower import NOTHING, Follower, VersionId
from stream_learner.core.snapshots.kernels import BAD_ROWS, NO_VERSION
from stream_learner.core.snapshots.pages import shard_prefix
from stream_learner.core.snapshots.predictor import EventPredictor
from stream_learner.core.snapshots.records import ModelRecord, Record, decode
from stream_learner.core.snapshots.table import Change, ReplicaTable, RowPredictions

_U64, _F64, _I64 = np.dtype(np.uint64), np.dtype(np.float64), np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Served:
    """The version that is served.

    version: a tick. digest: of the learner's state after it. sequence: the smallest number of its publications over the
    shards. model: content of the model record.
    """

    version: int
    digest: int
    sequence: int
    model: dict[str, Any]


class Replica:
    """The model in memory. One thread feeds it (`take`, `reached`); any thread may use everything else."""

    def __init__(
        self, ends: Sequence[int], *, topic: str | None = None, pause: Callable[[], None] = lambda: None
    ) -> None:
        """A copy that holds nothing yet.

        ends: for each partition (one a shard) the offset that must be reached before the copy can be ready: the last
        stable offset now. topic: for messages. pause: called again and again while a new version waits for readers of
        the old one to finish; a short sleep is right.

        Raises ValueError if the number of partitions is not a power of two up to 256.
        """
        shard_prefix(0, len(ends))
        self._topic = topic
        self._ends = list(ends)
        self._followers = [Follower(shard) for shard in range(len(ends))]
        self._table = ReplicaTable(pause)
        self.served: Served | None = None
        self.last_version: int | None = None
        """Versions after this one are kept and not served; None for no limit. Without the limit the last is served.

        To be set by the thread that feeds, or while that thread is held back."""
        for partition in range(len(ends)):
            self.reached(partition, 0)

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> int | None:
        """Take in the next record of a partition; returns the version served from now on, if it is a new one.

        Raises ForeignRecord, NewerVersion or DamagedRecord, which name the record. It is passed over then, the copy is
        not ready, and further records may be given.
        """
        if value is None:
            # A deletion does not show that the end is reached: compaction may have taken the version records before it.
            return None
        where = Where(offset, partition, self._topic)
        follower = self._followers[partition]
        try:
            record = decode(key or b"", value, where)
            self._check_shards(record, where)
            _check_loss(record, where)
            self._make(follower.take(key or b"", record, where))
        except RecordError as error:
            follower.fail(str(error))
            raise
        return self.reached(partition, offset + 1)

    def reached(self, partition: int, position: int) -> int | None:
        """Note that a partition was read up to a position, the offset after the last record or at its end.

        Returns the version served from now on, if it is a new one.
        """
        if position >= self._ends[partition]:
            self._followers[partition].reach_end()
        return self._serve()

    @property
    def ready(self) -> bool:
        """Whether a whole version is served and every shard was whole at its last version record."""
        return self.served is not None and not any(follower.trouble for follower in self._followers)

    @property
    def why_not_ready(self) -> str:
        """The reason why the copy is not ready, "" if it is."""
        for follower in self._followers:
            if follower.trouble:
                return f"partition {follower.shard}: {follower.trouble}"
        if self.served is not None:
            return ""
        held, limit = self._first_whole(), self.last_version
        if held is not None and limit is not None and held > limit:
            return f"version {limit} is no longer in the topic: it holds {held}"
        return "the shards have no version in common yet"

    @property
    def is_unpublished(self) -> bool:
        """Whether a partition holds no version at all, as before the first one."""
        return any(follower.trouble == NOTHING for follower in self._followers)

    @property
    def version(self) -> int:
        """The version served, -1 before the first."""
        return self.served.version if self.served is not None else NO_VERSION

    @property
    def sequence(self) -> int:
        """Number of the publication served (the smallest, if shards differ), 0 before the first."""
        return self.served.sequence if self.served is not None else 0

    @property
    def digest(self) -> int:
        """Digest of the learner's state at the version served, 0 before the first."""
        return self.served.digest if self.served is not None else 0

    @property
    def model(self) -> dict[str, Any]:
        """Content of the model record of the version served, empty before the first."""
        return self.served.model if self.served is not None else {}

    @property
    def rows(self) -> int:
        """Keys held, with a few whose weight became 0 lately."""
        return self._table.rows

    @property
    def bytes(self) -> int:
        """Memory of the rows, in bytes."""
        return self._table.nbytes

    def predict(
        self, keys: NDArray[np.uint64], values: NDArray[np.float64], row_start: NDArray[np.int64]
    ) -> RowPredictions:
        """Predictions of n hashed events, by the link of the model's loss, all of one version.

        keys u64[m], values f64[m], row_start i64[n+1]: event i has the features row_start[i] to row_start[i+1] - 1.
        A key without a weight counts as weight 0. The version is -1, and the predictions mean nothing, before the
        first whole version. Raises ValueError if the arrays do not fit together.
        """
        arrays = _plain(keys, _U64), _plain(values, _F64), _plain(row_start, _I64)
        found = self._table.predict(*arrays)
        if found.version == BAD_ROWS:
            raise ValueError("row_start must begin at 0 or later, never fall, and end within keys and values")
        return found

    def predictor(self, features: FeatureSpec, ignore_fields: tuple[str, ...]) -> EventPredictor:
        """What predicts events with these weights, for one thread at a time (`EventPredictor`)."""
        return EventPredictor(self._table, features, ignore_fields)

    def weight(self, key: int) -> float:
        """The weight of a key in the version served, 0.0 if it has none."""
        return self._table.weight(key)

    def largest_weights(self, count: int) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Keys u64 and weights f32 of the `count` weights of largest magnitude in the version served, largest first.

        Of equal ones the smaller key comes first. Fewer where fewer are not 0, none before the first version.
        """
        return self._table.largest_weights(count)

    @property
    def shards(self) -> int:
        """Shards of the model."""
        return len(self._followers)

    def all_rows(self) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Keys u64, rising, and weights f32 of all rows of the version served that have a weight.

        Only while nothing is taken in.
        """
        return self._table.all_rows()

    def _check_shards(self, record: Record, where: Where) -> None:
        shards = len(self._followers)
        if record.stamp.shards != shards:
            raise ForeignRecord(f"a record of {record.stamp.shards} shards in a topic of {shards}", where)

    def _make(self, changes: list[Change]) -> None:
        """Make changes while loading, when nobody predicts."""
        for span, keys, weights in changes:
            if span is None:
                self._table.load(keys, weights)
            else:
                self._table.load_range(*span, keys, weights)

    def _serve(self) -> int | None:
        """Serve the last version that every shard has, if it is not the one served."""
        wanted = self._last_common()
        if wanted is None:
            return None
        changes = [change for follower in self._followers for change in follower.advance(wanted)]
        current = [follower.versions()[wanted] for follower in self._followers]
        model = current[0].model or {}
        self._table.apply(changes, wanted.version, LOSSES[_loss_of(model)])
        sequence = min(version.sequence for version in current)
        self.served = Served(wanted.version, wanted.digest, sequence, model)
        return wanted.version

    def _last_common(self) -> VersionId | None:
        if any(follower.loading or (self.served and not follower.queue) for follower in self._followers):
            return None
        first, *others = (follower.versions() for follower in self._followers)
        limit = self.last_version
        for wanted in reversed(first):
            if (limit is None or wanted.version <= limit) and all(wanted in other for other in others):
                served = self.served
                return wanted if served is None or wanted != (served.version, served.digest) else None
        return None

    def _first_whole(self) -> int | None:
        """The first version that could be served without the limit; None while a shard is loading."""
        held = [follower.current.id.version for follower in self._followers if follower.current is not None]
        return max(held) if len(held) == len(self._followers) else None


def _loss_of(model: dict[str, Any]) -> str:
    """The loss of a model by the content of its model record."""
    name: str = model.get("loss", {}).get("name", "logistic")
    return name


def _check_loss(record: Record, where: Where) -> None:
    """Raise NewerVersion for an unknown loss, whose link is unknown too; DamagedRecord for what is no loss."""
    if not isinstance(record, ModelRecord):
        return
    loss = record.content.get("loss", {})
    if not isinstance(loss, dict) or not isinstance(loss.get("name", ""), str):
        raise DamagedRecord(f"a model whose loss is {str(loss)[:80]!r}", where)
    if _loss_of(record.content) not in LOSSES:
        raise NewerVersion(f"a model of the loss {_loss_of(record.content)!r}, which this program does not know", where)


def _plain(array: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array as the kernel takes it: of this type, C-contiguous, writeable, one-dimensional."""
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == 1 and array.flags.carray:
        return array
    return np.require(np.atleast_1d(array), dtype, ["C", "W", "A"])
