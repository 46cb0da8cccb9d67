"""Checkpoints of the learner's state in RocksDB.

After a restart a store gives back exactly the rows and the head (positions, tick, scalars) of the last committed
checkpoint. The package's docstring explains pages, deltas, sequences, and what makes a checkpoint count. No second copy
of the state is kept in memory.

  Step 1. `begin` plans: what the checkpoint consists of is fixed, and referred to until it is written. Beside an index
          of rows it writes the pages at once, each under a key with the new sequence: their rows come from disk.
  Step 2. Each `step` writes at most 1 MiB of it, not synced, under keys with the new sequence.
  Step 3. `commit` writes one small batch, synced: head, version records, and the deletion of what they supersede.

| crash after | what is found at the next open                                                                  |
|-------------|-------------------------------------------------------------------------------------------------|
| Step 1      | the checkpoint before; pages with a sequence above the head's are deleted                       |
| Step 2      | the checkpoint before; pieces with a sequence above the head's are deleted                      |
| Step 3      | this checkpoint: the write-ahead log is synced with the head, and holds every piece before it   |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from rocksdict import Rdict, WriteBatch, WriteOptions

from stream_learner.adapters.record_errors import error_in_state
from stream_learner.adapters.rocksdb.database import (
    MIB,
    ROWS_FAMILY,
    Database,
    StoreParts,
    destroy_database,
    explained,
    family_name,
    holds,
    open_database,
)
from stream_learner.adapters.rocksdb.layout import (
    HEAD,
    IDENTITY,
    PIECE_BYTES,
    PIECES,
    PIECES_END,
    VERSION,
    Piece,
    StoredPiece,
    delta_keys,
    key_of,
    page_key,
    pieces_of,
    plan_pieces,
    u64,
)
from stream_learner.adapters.rocksdb.row_index import NOTE, CheckpointId, RowIndex
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots.pages import PagePlan, PagePlanner, PagePolicy, PageState, Prefix, shard_prefix
from stream_learner.core.snapshots.records import (
    DeltaRecord,
    HeadRecord,
    PageRecord,
    Record,
    Stamp,
    VersionRecord,
    decode,
    encode_head,
    encode_page,
    encode_version,
)
from stream_learner.core.snapshots.rows import StateRows, rows_between
from stream_learner.errors import NewerFormat, StateDamaged, StateOfAnotherModel

STORE_FORMAT = 1
SETTINGS = {
    "optimizer": "learner.optimizer",
    "loss": "learner.loss",
    "tick_ms": "join.tick in ms",
    "shards": "snapshots.shards",
    "log": "topics.examples",
}
"""The settings that some names of an identity stand for."""
POLICY = PagePolicy(page_bytes=512 * 1024, part_bytes=960 * 1024, ring=64, delta_share=1.0, lean=True)
ROWS_POLICY = replace(POLICY, ring=1024, lean=False, part_bytes=240 * 1024)
"""The policy for a model larger than memory.

A checkpoint reads the pages that it writes from disk, so it writes a small share of them. Deltas are views of the rows
changed; not lean, because leaving out the few rows that pages hold would cost a copy of all rows. Their parts are
small, because RocksDB holds one part of every file that it merges.
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The last checkpoint: its version (a tick), digest, head as it was given, and its rows.

    `rows` can be iterated once, before anything is written: blocks of rows, whose keys rise within a block. A key may
    come again in a later block; its last row counts. Iterating raises StateDamaged.
    """

    version: int
    digest: int
    head: dict[str, Any]
    rows: Iterator[StateRows]


class CheckpointStore:
    """The checkpoints of one model. One thread at a time may use it."""

    def __init__(self, path: Path, identity: Mapping[str, Any], ncols: int, database: Database, shards: int) -> None:
        """Use `open`."""
        db, names = database.db, [family_name(shard) for shard in range(shards)]
        self._database, self._ncols = database, ncols
        self.parts = StoreParts(
            path,
            dict(identity),
            db,
            [db.get_column_family(name) for name in names],
            [db.get_column_family_handle(name) for name in names],
        )
        """Lent to the writer of a checkpoint and to copies; of no use after `close`."""
        self._planners: list[PagePlanner[StateRows]] = []
        self._versions: list[VersionRecord] = []
        self._head: HeadRecord | None = None
        self._unfinished = True
        self.rows: RowIndex | None = None
        """The index of single rows; None if the store was opened without."""
        if database.rows is not None:
            family, rows_bytes = db.get_column_family(ROWS_FAMILY), database.cache_bytes
            self.rows = RowIndex(path, db, family, database.rows, ncols, rows_bytes)

    @classmethod
    def open(
        cls,
        path: str | Path,
        identity: Mapping[str, Any],
        *,
        shards: int,
        ncols: int,
        policy: PagePolicy | None = None,
        memory_bytes: int = 64 * MIB,
        rows_bytes: int | None = None,
        piece_bytes: int | None = None,
        rising: frozenset[str] = frozenset(),
        gives_way: Callable[[Sequence[str], Mapping[str, Any] | None], bool] = lambda differing, head: False,
    ) -> CheckpointStore:
        """Open the state directory, or make it.

        identity: JSON values that must equal those the state was made with (model name, optimizer, topics). shards,
        ncols: must equal those of the state too. memory_bytes: bound of RocksDB's write buffers; its block cache is
        small. rows_bytes: if given, keep the index `rows`, and bound write buffers and block cache together. policy:
        by default `POLICY`, or `ROWS_POLICY` with that index; a state made with a larger ring keeps its ring.
        piece_bytes: bound of a page or part, if smaller than the policy's; pieces written before keep their size until
        they are written anew. rising: names in the identity whose number may have risen since the state was made.
        gives_way: asked whether the database that is there may be deleted, and a new one made, with the names in which
        the identity differs, and the head of its last checkpoint, None without one.
        Raises StateInUse, StateOfAnotherModel, NewerFormat, StateDamaged, DiskFull.
        """
        directory = Path(path)
        whole = {**identity, "shards": shards, "ncols": ncols, "store_format": STORE_FORMAT}
        whole = orjson.loads(orjson.dumps(whole))
        policy = policy or (POLICY if rows_bytes is None else ROWS_POLICY)
        if piece_bytes is not None:
            smaller = {name: min(getattr(policy, name), piece_bytes) for name in ("page_bytes", "part_bytes")}
            policy = replace(policy, **smaller)
        with explained(directory):
            directory.mkdir(parents=True, exist_ok=True)
            database = open_database(directory, shards, memory_bytes, rows_bytes)
            if _makes_room(database.db, whole, rising, gives_way):
                database.db.close()
                destroy_database(directory)
                database = open_database(directory, shards, memory_bytes, rows_bytes)
            try:
                theirs = _check_identity(directory, database.db, whole, rising)
                store = cls(directory, theirs, ncols, database, shards)
                store._recover(policy)
            except BaseException:
                database.db.close()
                raise
        return store

    def load(self) -> Loaded | None:
        """The last committed checkpoint; None in a new directory."""
        if self._head is None:
            return None
        version = self._versions[0]
        return Loaded(version.stamp.version, version.digest, self._head.content["head"], self._load_rows())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that RocksDB holds, by part."""
        return self._database.memory()

    @property
    def last(self) -> CheckpointId:
        """Sequence and tick of the last committed checkpoint."""
        return (
            CheckpointId(0, -1)
            if self._head is None
            else CheckpointId(self._head.stamp.sequence, self._head.stamp.version)
        )

    def pieces_after(self, sequence: int) -> Iterator[tuple[CheckpointId, StateRows]]:
        """The pages and deltas of the last checkpoint with a higher sequence than this, oldest first.

        They hold every row that changed after the checkpoint of that sequence, and others too.
        """
        for piece in sorted(self._stored_pieces(), key=lambda piece: piece.order):
            if piece.sequence > sequence:
                yield self._read_piece(piece)

    def changed_after(self, tick: int) -> NDArray[np.uint64]:
        """The keys of all rows of the last checkpoint that were touched after a tick, each once, ordered."""
        found = [np.empty(0, np.uint64)]
        with explained(self.parts.path):
            for piece in sorted(self._stored_pieces(), key=lambda piece: piece.order, reverse=True):
                written, rows = self._read_piece(piece)
                if written.tick <= tick:
                    break
                found.append(rows.keys[rows.touched > tick])
        return np.unique(np.concatenate(found))

    def _stored_pieces(self) -> Iterator[StoredPiece]:
        """The pieces that the last checkpoint consists of."""
        for shard, version in enumerate(self._versions):
            for sequence, key in delta_keys(version.state):
                yield StoredPiece(sequence, shard, key, DeltaRecord)
            for prefix, sequence in version.state.pages:
                yield StoredPiece(sequence, shard, page_key(sequence, prefix), PageRecord)

    def _read_piece(self, piece: StoredPiece) -> tuple[CheckpointId, StateRows]:
        stamp = self._versions[piece.shard].stamp._replace(sequence=piece.sequence)
        record = self._record(self.parts.families[piece.shard], piece.key, piece.kind, stamp)
        return CheckpointId(piece.sequence, record.stamp.version), record.rows

    def drop_rows(self) -> None:
        """Delete the index of single rows that an earlier process has left, if this process keeps none."""
        if self._database.leftover:
            with explained(self.parts.path):
                self.parts.db.delete(NOTE)
                self.parts.db.drop_column_family(ROWS_FAMILY)

    def begin(
        self,
        changed: StateRows,
        rows_of: Callable[[Prefix], StateRows],
        *,
        version: int,
        digest: int,
        head: Mapping[str, Any],
    ) -> CheckpointWriter:
        """Begin the next checkpoint. An earlier writer that was not committed must not be used any more.

        changed: all rows changed since the last committed checkpoint (before the first one: any rows), sorted by key,
        each key once, with their present columns. rows_of: gives all rows with a prefix, sorted by key, as of now; it
        is called only within this call. The arrays of both must not change before the commit. head: JSON values, given
        back as they are by `load`. Raises ValueError for a head that JSON cannot hold; DiskFull, with an index of rows.
        """
        with explained(self.parts.path):
            if self._unfinished:
                self._delete_unfinished()
            self._unfinished = True
        plans = [
            planner.plan(
                rows_between(changed, planner.root.bits, planner.root.last), rows_of, self._page_writer(shard, version)
            )
            for shard, planner in enumerate(self._planners)
        ]
        stamps = [Stamp(shard, len(plans), plan.sequence, 0, version) for shard, plan in enumerate(plans)]
        batch = WriteBatch(raw_mode=True)
        batch.put(HEAD, encode_head(stamps[0], {"head": dict(head)}))
        for shard, (plan, stamp) in enumerate(zip(plans, stamps, strict=True)):
            batch.put(VERSION, encode_version(stamp, digest, 0, plan.state), self.parts.handles[shard])
            for key in pieces_of(self._planners[shard].state) - pieces_of(plan.state):
                batch.delete(key, self.parts.handles[shard])
        pieces = [piece for plan, stamp in zip(plans, stamps, strict=True) for piece in plan_pieces(plan, stamp)]
        return CheckpointWriter(self.parts, deque(pieces), batch, lambda: self._committed(plans))

    def _committed(self, plans: list[PagePlan[StateRows]]) -> None:
        """Go on from a checkpoint that is on disk now."""
        for planner, plan in zip(self._planners, plans, strict=True):
            planner.commit(plan)
        self._unfinished = False
        self._read_head()

    def _page_writer(self, shard: int, version: int) -> Callable[[int, Prefix, StateRows], None] | None:
        """A function that writes a page as soon as it is planned; None if the rows of pages are in memory anyhow."""
        if self.rows is None:
            return None

        def write(sequence: int, prefix: Prefix, rows: StateRows) -> None:
            batch = WriteBatch(raw_mode=True)
            stamp = Stamp(shard, len(self._planners), sequence, 0, version)
            batch.put(page_key(sequence, prefix), encode_page(stamp, prefix, rows), self.parts.handles[shard])
            self.parts.write(batch)

        return write

    def close(self) -> None:
        """Close the database. Raises StateDamaged, DiskFull; the last checkpoint is whole on disk even then."""
        if self.rows is not None:
            self.rows.close()
        self.parts.families.clear()
        self.parts.handles.clear()
        with explained(self.parts.path):
            self.parts.db.close()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_head(self) -> None:
        head = self.parts.db.get(HEAD)
        if head is None:
            return
        self._head = _expect(HeadRecord, self._decode(HEAD, head))
        if not _is_head(self._head.content):
            raise StateDamaged(f"{self.parts.path}: the head of the checkpoint says nothing that can be used")
        self._versions = [
            _expect(VersionRecord, self._decode(VERSION, family.get(VERSION) or b"")) for family in self.parts.families
        ]
        for shard, version in enumerate(self._versions):
            if version.stamp != self._head.stamp._replace(shard=shard):
                raise StateDamaged(f"{self.parts.path}: shard {shard} is not of the checkpoint of the head")

    def _recover(self, policy: PagePolicy) -> None:
        """Go on from the last head, and delete pieces that are newer than it."""
        self._read_head()
        shards = len(self.parts.families)
        ring = max([policy.ring, *(len(version.state.slot_parts) for version in self._versions)])
        policy = replace(policy, ring=ring)
        states: Sequence[PageState | None] = [_with_ring(v.state, ring) for v in self._versions] or [None] * shards
        self._planners = [PagePlanner(shard_prefix(shard, shards), policy, state) for shard, state in enumerate(states)]
        self._delete_unfinished()

    def _delete_unfinished(self) -> None:
        sequence = u64(self._planners[0].state.sequence + 1)
        batch = WriteBatch(raw_mode=True)
        for family, handle in zip(self.parts.families, self.parts.handles, strict=True):
            if holds(family, PIECES + sequence, PIECES_END):
                batch.delete_range(PIECES + sequence, PIECES_END, handle)
        if len(batch):
            self.parts.db.write(batch)
        self._unfinished = False

    def _load_rows(self) -> Iterator[StateRows]:
        with explained(self.parts.path):
            for family, version in zip(self.parts.families, self._versions, strict=True):
                yield from self._load_shard(family, version)

    def _load_shard(self, family: Rdict, version: VersionRecord) -> Iterator[StateRows]:
        """The rows of a shard: its pages in the order of keys, then the changes since they were written, in order."""
        state, stamp = version.state, version.stamp
        for prefix, sequence in state.pages:
            yield self._rows(family, page_key(sequence, prefix), PageRecord, stamp._replace(sequence=sequence))
        firsts = np.array([prefix.bits for prefix, _ in state.pages], np.uint64)
        written = np.array([sequence for _, sequence in state.pages], np.int64)
        for sequence, key in delta_keys(state):
            rows = self._rows(family, key, DeltaRecord, stamp._replace(sequence=sequence))
            in_page = np.diff(np.searchsorted(rows.keys, firsts), append=len(rows))
            newer = np.repeat(written < sequence, in_page)
            yield rows if newer.all() else rows.where(newer)

    def _rows(self, family: Rdict, key: bytes, kind: type[DeltaRecord | PageRecord], stamp: Stamp) -> StateRows:
        rows: StateRows = self._record(family, key, kind, stamp).rows
        return rows

    def _record(self, family: Rdict, key: bytes, kind: type[DeltaRecord | PageRecord], stamp: Stamp) -> Any:
        """The record of one piece. Raises StateDamaged if it is missing, or is not what its key says."""
        value = family.get(key)
        if value is None:
            raise StateDamaged(f"{self.parts.path}: piece {key.hex()} of the checkpoint is missing")
        record = _expect(kind, self._decode(None, value))
        rows = record.rows
        whose = (record.stamp.shard, record.stamp.sequence, rows.ncols)
        whole = whose == (stamp.shard, stamp.sequence, self._ncols) and key_of(record) == key
        if not isinstance(rows, StateRows) or not whole:
            raise StateDamaged(f"{self.parts.path}: piece {key.hex()} holds rows of another place")
        return record

    def _decode(self, key: bytes | None, value: bytes) -> Record:
        try:
            return decode(key, value)
        except RecordError as error:
            raise error_in_state(error, self.parts.path) from error


class CheckpointWriter:
    """A checkpoint being written. One that is dropped before `commit` leaves nothing that counts."""

    def __init__(
        self, parts: StoreParts, pieces: deque[Piece], last_batch: WriteBatch, committed: Callable[[], None]
    ) -> None:
        """Use `CheckpointStore.begin`. committed: called once the checkpoint is on disk."""
        self._parts, self._pieces, self._last_batch, self._committed = parts, pieces, last_batch, committed

    def step(self) -> bool:
        """Write up to 1 MiB (always one value at least); false once there is nothing left but to commit.

        Raises DiskFull.
        """
        batch, size_bytes = WriteBatch(raw_mode=True), 0
        while self._pieces and (not size_bytes or size_bytes + self._pieces[0].size_bytes <= PIECE_BYTES):
            piece = self._pieces.popleft()
            batch.put(piece.key, piece.encode(), self._parts.handles[piece.shard])
            size_bytes += piece.size_bytes
        if size_bytes:
            self._parts.write(batch)
        return bool(self._pieces)

    def commit(self) -> None:
        """Write what is left, then make the checkpoint count; when this returns it survives a power failure.

        Raises DiskFull; the checkpoint then does not count.
        """
        while self.step():
            pass
        self._parts.write(self._last_batch, durable=True)
        self._committed()


def stored_identity(path: Path) -> Mapping[str, Any] | None:
    """The identity in a state directory, None in one without a database. Raises StateInUse, StateDamaged, DiskFull."""
    if not (path / "CURRENT").exists():
        return None
    with explained(path):
        database = open_database(path, 0, MIB)
        try:
            found = database.db.get(IDENTITY)
        finally:
            database.db.close()
    return None if found is None else orjson.loads(found)


def _makes_room(
    db: Rdict,
    identity: Mapping[str, Any],
    rising: frozenset[str],
    gives_way: Callable[[Sequence[str], Mapping[str, Any] | None], bool],
) -> bool:
    """Whether `gives_way` says that the database may be deleted; not if this program cannot read what it holds."""
    found, head = db.get(IDENTITY), db.get(HEAD)
    theirs = {} if found is None else orjson.loads(found)
    if found is None or theirs.get("store_format", 0) > STORE_FORMAT:
        return False
    differing = differing_identity(theirs, identity, rising)
    if head is None:
        return gives_way(differing, None)
    try:
        record = decode(HEAD, head)
    except RecordError:
        return False
    if not isinstance(record, HeadRecord) or not _is_head(record.content):
        return False
    return gives_way(differing, record.content["head"])


def _check_identity(path: Path, db: Rdict, identity: Mapping[str, Any], rising: frozenset[str]) -> Mapping[str, Any]:
    """Store the identity in a new directory, compare it in any other. Returns the identity that is stored."""
    found = db.get(IDENTITY)
    if found is None:
        durable = WriteOptions()
        durable.sync = True
        db.put(IDENTITY, orjson.dumps(identity), durable)
        return identity
    theirs: Mapping[str, Any] = orjson.loads(found)
    if theirs.get("store_format", 0) > STORE_FORMAT:
        raise NewerFormat(f"{path} has format {theirs['store_format']}, this program knows {STORE_FORMAT}")
    differing = differing_identity(theirs, identity, rising)
    if differing:
        details = identity_differences(theirs, identity, differing)
        own_directory = "Give each model its own `learner.state_dir`." if "model" in differing else ""
        raise StateOfAnotherModel(f"{path} holds the state of another model ({details})", action=own_directory)
    return theirs


def differing_identity(theirs: Mapping[str, Any], mine: Mapping[str, Any], rising: frozenset[str]) -> list[str]:
    """The names in which two identities differ. rising: names whose number may be smaller in `theirs`.

    >>> differing_identity({"model": "m", "partitions": 2}, {"model": "m", "partitions": 4}, frozenset({"partitions"}))
    []
    >>> differing_identity({"model": "m", "partitions": 4}, {"model": "m", "partitions": 2}, frozenset({"partitions"}))
    ['partitions']
    """
    return sorted(
        name
        for name in {*theirs, *mine}
        if theirs.get(name) != mine.get(name)
        and not (name in rising and isinstance(theirs.get(name), int) and theirs[name] < mine[name])
    )


def identity_differences(theirs: Mapping[str, Any], mine: Mapping[str, Any], differing: Sequence[str]) -> str:
    """What differs in two identities, by the settings' names, with both values.

    >>> identity_differences({"optimizer": {"alpha": 0.1}}, {"optimizer": {"alpha": 0.5}}, ["optimizer"])
    'learner.optimizer.alpha: there 0.1, here 0.5'
    """
    found = []
    for name in differing:
        setting, there, here = SETTINGS.get(name, name), theirs.get(name), mine.get(name)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            inner = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
            found += [f"{setting}.{key}: there {there.get(key)!r}, here {here.get(key)!r}" for key in inner]
        elif name != "ncols" or len(differing) == 1:
            found.append(f"{setting}: there {there!r}, here {here!r}")
    return "; ".join(found)


def _with_ring(state: PageState, ring: int) -> PageState:
    """A state with a ring of another size, at least as large.

    No delta is written again: keys do not depend on the ring.
    """
    held, last = state.slot_parts, state.sequence
    numbers = np.arange(max(0, last - len(held) + 1), last + 1)
    slot_parts = np.zeros(ring, np.int64)
    slot_parts[numbers % ring] = held[numbers % len(held)]
    return replace(state, slot_parts=slot_parts)


def _is_head(content: Mapping[str, Any]) -> bool:
    """Whether a head record has the form that `begin` gives it."""
    return isinstance(content.get("head"), dict)


def _expect(kind: type[Any], record: Record) -> Any:
    if not isinstance(record, kind):
        raise StateDamaged(f"a {type(record).__name__} where a {kind.__name__} should be")
    return record
