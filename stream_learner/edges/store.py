"""Checkpoints of the learner's state in RocksDB.

In: the rows changed since the last checkpoint, a function that gives the rows below a key prefix, a head (positions, tick,
scalars). Out: after a restart, exactly the rows and the head of the last checkpoint that was committed.
This file must never let a checkpoint count before all of it is on disk, or keep a second copy of the state in memory.

A checkpoint consists of pages and deltas, planned and encoded as those of the snapshots (`core/pages.py`,
`core/snapshots.py`), with all state columns. A column family per shard; the default one for what belongs to all.

    shard     "p" <sequence u64> "d" <part u32>              a part of the delta
    shard     "p" <sequence u64> "p" <prefix u64> <bits u8>  a page
    shard     "version"                                      version record: which of these count
    default   "a" <sequence u64> <name> 0 <part u32>         a piece of an attachment
    default   "head"                                         head record
    default   "identity"                                     whose state this is, JSON
(numbers in keys big-endian, so that a family read in order is read in the order it was written).

  Step 1. `begin` plans: what the checkpoint consists of is fixed, and referred to until it is written.
  Step 2. Each `step` writes at most 1 MiB of it, not synced, under keys with the new sequence.
  Step 3. `commit` writes one small batch, synced: head, version records, and the deletion of what they supersede.

| crash after | what is found at the next open                                                                  |
|-------------|-------------------------------------------------------------------------------------------------|
| Step 1      | the checkpoint before                                                                           |
| Step 2      | the checkpoint before; pieces with a sequence above the head's are deleted                      |
| Step 3      | this checkpoint: the write-ahead log is synced with the head, and holds every piece before it   |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

from stream_learner.core.errors import NewerVersion, RecordError
from stream_learner.core.pages import PagePlan, PagePlanner, PagePolicy, PageState, Prefix, shard_prefix
from stream_learner.core.rows import StateRows, row_bytes, rows_between
from stream_learner.core.snapshots import (
    HEADER_BYTES,
    DeltaRecord,
    HeadRecord,
    PageRecord,
    Record,
    Stamp,
    VersionRecord,
    decode,
    encode_delta,
    encode_head,
    encode_page,
    encode_version,
)
from stream_learner.errors import DiskFull, NewerFormat, StateDamaged, StateInUse, StateOfAnotherModel, Stop

PIECE_BYTES = 1 << 20
STORE_FORMAT = 1
POLICY = PagePolicy(page_bytes=512 * 1024, part_bytes=960 * 1024, ring=64, delta_share=1.0, lean=True)

_HEAD, _VERSION, _IDENTITY = b"head", b"version", b"identity"
_PIECES, _PIECES_END = b"p", b"q"
_ATTACHMENTS, _ATTACHMENTS_END = b"a", b"b"
_MIB = 1 << 20
_FULL = ("No space left on device", "Disk quota exceeded", "File too large", "Space limit reached")
_IN_USE = ("lock hold by current process", "While lock file", "LOCK: Resource temporarily unavailable")

Piece = tuple[int, bytes, int, Callable[[], bytes]]
"""A value to write: its shard (-1 for the default family), its key, about how many bytes, and what makes them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The last checkpoint: its version (a tick), digest, head and attachments as they were given, and its rows.

    `rows` can be gone through once, before anything is written: blocks sorted by key, to be put one after the other
    into an empty table, a later row replacing an earlier one with its key. Raises StateDamaged.
    """

    version: int
    digest: int
    head: dict[str, Any]
    attachments: dict[str, bytes]
    rows: Iterator[StateRows]


class CheckpointStore:
    """The checkpoints of one model. For one thread at a time."""

    def __init__(self, path: Path, identity: Mapping[str, Any], ncols: int, db: Rdict, shards: int) -> None:
        """Use `open`."""
        self._path, self._identity, self._ncols, self._db = path, dict(identity), ncols, db
        self._families = [db.get_column_family(_family(shard)) for shard in range(shards)]
        self._handles = [db.get_column_family_handle(_family(shard)) for shard in range(shards)]
        self._planners: list[PagePlanner[StateRows]] = []
        self._versions: list[VersionRecord] = []
        self._head: HeadRecord | None = None
        self._unfinished = True

    @classmethod
    def open(
        cls,
        path: str | Path,
        identity: Mapping[str, Any],
        *,
        shards: int,
        ncols: int,
        policy: PagePolicy = POLICY,
        memory_bytes: int = 64 * _MIB,
    ) -> CheckpointStore:
        """Open the state directory, or make it.

        identity: JSON values that must be those the state was made with (model name, optimizer, topics). shards, ncols:
        the same. memory_bytes: bound of RocksDB's write buffers; its block cache is small besides.
        Raises StateInUse, StateOfAnotherModel, NewerFormat, StateDamaged, DiskFull.
        """
        place = Path(path)
        whole = {**identity, "shards": shards, "ncols": ncols, "store_format": STORE_FORMAT}
        whole = orjson.loads(orjson.dumps(whole))
        with _explained(place):
            place.mkdir(parents=True, exist_ok=True)
            db = _open_database(place, shards, memory_bytes)
            try:
                _check_identity(place, db, whole)
                store = cls(place, whole, ncols, db, shards)
                store._recover(policy)
            except BaseException:
                db.close()
                raise
        return store

    def load(self) -> Loaded | None:
        """The last checkpoint that was committed, None in a new directory."""
        if self._head is None:
            return None
        with _explained(self._path):
            attachments = dict(self._load_attachments(self._head))
        version = self._versions[0]
        return Loaded(
            version.stamp.version, version.digest, self._head.content["head"], attachments, self._load_rows()
        )

    def begin(
        self,
        changed: StateRows,
        rows_of: Callable[[Prefix], StateRows],
        *,
        version: int,
        digest: int,
        head: Mapping[str, Any],
        attachments: Mapping[str, bytes] | None = None,
    ) -> CheckpointWriter:
        """Begin the next checkpoint; a writer begun before and not committed must not be used any more.

        changed: all rows changed since the last committed checkpoint (the first time: any), sorted by key, each key
        once, with their columns now. rows_of: all rows with a prefix, sorted by key, as of now; called here only.
        The arrays of both must not change before the commit. head: JSON values, given back as they are.
        attachments: bytes by name, written anew each time.
        Raises ValueError for a head that JSON cannot keep.
        """
        with _explained(self._path):
            if self._unfinished:
                self._delete_unfinished()
            self._unfinished = True
        plans = [
            planner.plan(rows_between(changed, planner.root.bits, planner.root.last), rows_of)
            for planner in self._planners
        ]
        stamps = [
            Stamp(shard, len(plans), plan.sequence, 0, version) for shard, plan in enumerate(plans)
        ]
        attached = dict(attachments or {})
        content = {"head": dict(head), "attachments": {name: len(data) for name, data in attached.items()}}
        batch = WriteBatch(raw_mode=True)
        batch.put(_HEAD, encode_head(stamps[0], content))
        for shard, (plan, stamp) in enumerate(zip(plans, stamps, strict=True)):
            batch.put(_VERSION, encode_version(stamp, digest, 0, plan.state), self._handles[shard])
            for key in _pieces_of(self._planners[shard].state) - _pieces_of(plan.state):
                batch.delete(key, self._handles[shard])
        batch.delete_range(_ATTACHMENTS, _ATTACHMENTS + _u64(plans[0].sequence))
        pieces = [piece for plan, stamp in zip(plans, stamps, strict=True) for piece in _pieces(plan, stamp)]
        pieces += list(_attachment_pieces(plans[0].sequence, attached))
        return CheckpointWriter(self, deque(pieces), batch, plans)

    def close(self) -> None:
        """Let go of the directory."""
        self._families.clear()
        self._handles.clear()
        self._db.close()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_head(self) -> None:
        head = self._db.get(_HEAD)
        if head is None:
            return
        self._head = _expect(HeadRecord, self._decode(_HEAD, head))
        self._versions = [
            _expect(VersionRecord, self._decode(_VERSION, family.get(_VERSION) or b""))
            for family in self._families
        ]
        for shard, version in enumerate(self._versions):
            if version.stamp != self._head.stamp._replace(shard=shard):
                raise StateDamaged(f"{self._path}: shard {shard} is not of the checkpoint of the head")

    def _recover(self, policy: PagePolicy) -> None:
        """Read what the last head says, and delete what is newer than it."""
        self._read_head()
        shards = len(self._families)
        states: Sequence[PageState | None] = [v.state for v in self._versions] or [None] * shards
        self._planners = [
            PagePlanner(shard_prefix(shard, shards), policy, state) for shard, state in enumerate(states)
        ]
        self._delete_unfinished()

    def _delete_unfinished(self) -> None:
        sequence = _u64(self._planners[0].state.sequence + 1)
        batch = WriteBatch(raw_mode=True)
        for family, handle in zip(self._families, self._handles, strict=True):
            if _holds(family, _PIECES + sequence, _PIECES_END):
                batch.delete_range(_PIECES + sequence, _PIECES_END, handle)
        if _holds(self._db, _ATTACHMENTS + sequence, _ATTACHMENTS_END):
            batch.delete_range(_ATTACHMENTS + sequence, _ATTACHMENTS_END)
        if len(batch):
            self._db.write(batch)
        self._unfinished = False

    def _load_attachments(self, head: HeadRecord) -> Iterator[tuple[str, bytes]]:
        for name, size in head.content["attachments"].items():
            begin = _ATTACHMENTS + _u64(head.stamp.sequence) + name.encode() + b"\0"
            data = b"".join(value for _, value in _between(self._db, begin, begin + b"\xff" * 5))
            if len(data) != size:
                raise StateDamaged(f"{self._path}: attachment {name} has {len(data)} of {size} bytes")
            yield name, data

    def _load_rows(self) -> Iterator[StateRows]:
        with _explained(self._path):
            for family, version in zip(self._families, self._versions, strict=True):
                yield from self._load_shard(family, version)

    def _load_shard(self, family: Rdict, version: VersionRecord) -> Iterator[StateRows]:
        """Pages and deltas in the order they were written, deltas without what a page replaces."""
        expected = _pieces_of(version.state)
        firsts = np.array([prefix.bits for prefix, _ in version.state.pages], np.uint64)
        written = np.array([sequence for _, sequence in version.state.pages], np.int64)
        for key, value in _between(family, _PIECES, _PIECES_END):
            if key not in expected:
                raise StateDamaged(f"{self._path}: {key.hex()} belongs to no checkpoint")
            expected.discard(key)
            record = self._decode(None, value)
            if not isinstance(record, DeltaRecord | PageRecord) or not isinstance(record.rows, StateRows):
                raise StateDamaged(f"{self._path}: {key.hex()} holds no rows of state")
            rows = record.rows
            if rows.ncols != self._ncols or record.stamp.shard != version.stamp.shard:
                raise StateDamaged(f"{self._path}: {key.hex()} holds rows of another table")
            if isinstance(record, DeltaRecord) and len(rows):
                page = np.searchsorted(firsts, rows.keys, side="right") - 1
                newer = written[page] < record.stamp.sequence
                rows = rows if newer.all() else rows.where(newer)
            yield rows
        if expected:
            raise StateDamaged(f"{self._path}: {len(expected)} pieces of the checkpoint are missing")

    def _decode(self, key: bytes | None, value: bytes) -> Record:
        try:
            return decode(key, value)
        except NewerVersion as error:
            raise NewerFormat(f"{self._path}: {error.what}") from error
        except RecordError as error:
            raise StateDamaged(f"{self._path}: {error.what}") from error


class CheckpointWriter:
    """A checkpoint being written. Dropped before `commit`, it never was."""

    def __init__(
        self,
        store: CheckpointStore,
        pieces: deque[Piece],
        last_batch: WriteBatch,
        plans: list[PagePlan[StateRows]],
    ) -> None:
        """Use `CheckpointStore.begin`."""
        self._store, self._pieces, self._last_batch, self._plans = store, pieces, last_batch, plans

    @property
    def steps_left(self) -> int:
        """Values not written yet, an upper bound of the steps."""
        return len(self._pieces)

    def step(self) -> bool:
        """Write up to 1 MiB (always one value at least); false once there is nothing left but to commit.

        Raises DiskFull.
        """
        store, size = self._store, 0
        batch = WriteBatch(raw_mode=True)
        while self._pieces and (not size or size + self._pieces[0][2] <= PIECE_BYTES):
            shard, key, value_bytes, make = self._pieces.popleft()
            batch.put(key, make(), store._handles[shard] if shard >= 0 else None)
            size += value_bytes
        if size:
            with _explained(store._path):
                store._db.write(batch)
        return bool(self._pieces)

    def commit(self) -> None:
        """Write what is left, then make the checkpoint count; when this returns it survives a power failure.

        Raises DiskFull; the checkpoint then does not count.
        """
        while self.step():
            pass
        store = self._store
        durable = WriteOptions()
        durable.sync = True
        with _explained(store._path):
            store._db.write(self._last_batch, durable)
        for planner, plan in zip(store._planners, self._plans, strict=True):
            planner.commit(plan)
        store._unfinished = False
        store._read_head()


def _open_database(path: Path, shards: int, memory_bytes: int) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_db_write_buffer_size(memory_bytes)
    options.set_max_total_wal_size(4 * memory_bytes)
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(4 * _MIB)
    options.set_bytes_per_sync(_MIB)
    options.set_wal_bytes_per_sync(_MIB)
    cache = Cache(4 * _MIB)
    names = {_family(shard) for shard in range(shards)}
    if (path / "CURRENT").exists():
        names |= set(Rdict.list_cf(str(path), options))
    names.discard("default")
    buffer = max(_MIB, memory_bytes // 4)
    families = {name: _family_options(cache, buffer) for name in ("default", *sorted(names))}
    return Rdict(str(path), options, column_families=families)


def _family_options(cache: Cache, buffer_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(2)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    options.set_block_based_table_factory(table)
    return options


def _check_identity(path: Path, db: Rdict, identity: Mapping[str, Any]) -> None:
    """Note whose state this is in a new directory; compare in any other."""
    found = db.get(_IDENTITY)
    if found is None:
        durable = WriteOptions()
        durable.sync = True
        db.put(_IDENTITY, orjson.dumps(identity), durable)
        return
    theirs = orjson.loads(found)
    if theirs.get("store_format", 0) > STORE_FORMAT:
        raise NewerFormat(f"{path} has format {theirs['store_format']}, this program knows {STORE_FORMAT}")
    differing = sorted(name for name in {*theirs, *identity} if theirs.get(name) != identity.get(name))
    if differing:
        details = "; ".join(f"{n}: there {theirs.get(n)!r}, here {identity.get(n)!r}" for n in differing)
        raise StateOfAnotherModel(f"{path} holds the state of another model ({details})")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """RocksDB's errors, told apart by their text, which is all there is."""
    try:
        yield
    except OSError as error:
        raise _explain(path, f"{error}") from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise _explain(path, f"{error}") from error


def _explain(path: Path, text: str) -> Stop:
    if any(sign in text for sign in _FULL):
        return DiskFull(f"no room left in the state directory {path} ({text})")
    if any(sign in text for sign in _IN_USE):
        return StateInUse(f"another process has the state directory {path} open")
    if "Corruption" in text or "Invalid argument" in text:
        return StateDamaged(f"{path} cannot be read ({text})")
    return Stop(
        f"the state directory {path} cannot be used ({text})",
        action="Check that the directory exists, can be written by this user, and that its disk works.",
    )


def _family(shard: int) -> str:
    return f"shard-{shard:03d}"


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _delta_key(sequence: int, part: int) -> bytes:
    return _PIECES + _u64(sequence) + b"d" + part.to_bytes(4, "big")


def _page_key(sequence: int, prefix: Prefix) -> bytes:
    return _PIECES + _u64(sequence) + b"p" + _u64(prefix.bits) + bytes([prefix.nbits])


def _pieces_of(state: PageState) -> set[bytes]:
    """Keys of the pages and deltas that a state is made of."""
    ring = len(state.slot_parts)
    keys = {_page_key(sequence, prefix) for prefix, sequence in state.pages if sequence}
    for sequence in range(max(1, state.sequence - ring + 1), state.sequence + 1):
        keys |= {_delta_key(sequence, part) for part in range(int(state.slot_parts[sequence % ring]))}
    return keys


def _pieces(plan: PagePlan[StateRows], stamp: Stamp) -> Iterator[Piece]:
    sequence, parts = plan.sequence, len(plan.parts)
    for part, rows in enumerate(plan.parts):
        make = partial(encode_delta, stamp, part, parts, rows)
        yield stamp.shard, _delta_key(sequence, part), _value_bytes(rows), make
    for prefix, rows in plan.pages:
        make = partial(encode_page, stamp, prefix, rows)
        yield stamp.shard, _page_key(sequence, prefix), _value_bytes(rows), make


def _value_bytes(rows: StateRows) -> int:
    return HEADER_BYTES + len(rows) * row_bytes(rows.ncols)


def _attachment_pieces(sequence: int, attachments: Mapping[str, bytes]) -> Iterator[Piece]:
    for name, data in attachments.items():
        for part, start in enumerate(range(0, len(data), PIECE_BYTES)):
            key = _ATTACHMENTS + _u64(sequence) + name.encode() + b"\0" + part.to_bytes(4, "big")
            piece = data[start : start + PIECE_BYTES]
            yield -1, key, len(piece), partial(bytes, piece)


def _between(family: Rdict, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    entries: Iterator[tuple[Any, Any]] = family.items(from_key=begin)
    for key, value in entries:
        if key >= end:
            return
        yield key, value


def _holds(family: Rdict, begin: bytes, end: bytes) -> bool:
    return next(_between(family, begin, end), None) is not None


def _expect(kind: type[Any], record: Record) -> Any:
    if not isinstance(record, kind):
        raise StateDamaged(f"a {type(record).__name__} where a {kind.__name__} should be")
    return record
