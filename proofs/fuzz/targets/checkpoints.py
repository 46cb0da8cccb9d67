"""Checkpoints: the state directory as the learner opens it, and the heads of copies in `<model>.checkpoints`.

Most damaged records get a right checksum, so that they are not all refused there.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rocksdict import WriteBatch

from proofs.fuzz import slow_checkpoints
from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import EXTREMES, json_bytes_mutated, mutated, shuffled
from proofs.fuzz.slow_checkpoints import SlowCheckpoint, SlowCopy
from proofs.fuzz.slow_snapshots import Bad
from proofs.fuzz.target import MIB, Target, Wrong, pack, unpack
from proofs.fuzz.targets.snapshots import damaged_snapshot, sealed_anew
from stream_learner.adapters.rocksdb.copy import piece_ids_of
from stream_learner.adapters.rocksdb.store import CheckpointStore, Loaded
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots.checkpoint_copy import CopyHead, decode_copy
from stream_learner.core.snapshots.pages import PagePolicy, Prefix
from stream_learner.core.snapshots.rows import StateRows, last_of_each_key, rows_between
from stream_learner.errors import NewerFormat, StateDamaged

SHARDS, NCOLS = 2, 2
IDENTITY = {"model": "m"}
POLICY = PagePolicy(page_bytes=640, part_bytes=480, ring=8, delta_share=0.7, lean=True)
LINEAGE = "00ff00ff00ff00ff"
_HEADER = 64
_NEW_DIRECTORY = 2_000
"""The number of inputs after which a new directory is used: each leaves deletions behind."""
_MOST_PIECES = 100_000


def opened(folder: Path) -> CheckpointStore:
    """A store in a directory, with little memory."""
    options: dict[str, Any] = {"shards": SHARDS, "ncols": NCOLS, "policy": POLICY, "memory_bytes": 4 * MIB}
    return CheckpointStore.open(folder, IDENTITY, **options)


def entries_of(store: CheckpointStore) -> list[tuple[int, bytes, bytes]]:
    """The entries of a store without the name of its owner: family (0: the default one), key, value."""
    families = [store.parts.db, *store.parts.families]
    found = [(place, key, value) for place, family in enumerate(families) for key, value in family.items()]
    return [entry for entry in found if entry[1] not in (b"identity", b"lineage")]


def written_checkpoints(ticks: Sequence[int], *, most: int = 24) -> list[list[tuple[int, bytes, bytes]]]:
    """The entries after each of these checkpoints of a small model, with at most so many features."""
    rng, state, found = Random(3), dict[int, tuple[int, float, float]](), []
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as store:
        for tick in range(1, max(ticks) + 1):
            changed = sorted(
                {rng.randrange(1, most) * 0x0BCDEF0123456789 % 2**64 for _ in range(rng.randrange(1, most // 3 + 1))}
            )
            state.update({key: (tick, rng.random(), rng.random() - 0.5) for key in changed})
            whole = _rows(state, sorted(state))

            def below(prefix: Prefix, whole: StateRows = whole) -> StateRows:
                return rows_between(whole, prefix.bits, prefix.last)

            head = {"tick": tick, "positions": [tick, 2**63]}
            options: dict[str, Any] = {"version": tick, "digest": 7 * tick, "head": head}
            store.begin(_rows(state, changed), below, **options).commit()
            if tick in ticks:
                found.append(entries_of(store))
    return found


def _rows(state: dict[int, tuple[int, float, float]], keys: list[int]) -> StateRows:
    columns = np.array([state[key][1:] for key in keys], np.float64).reshape(len(keys), NCOLS)
    return StateRows(np.array(keys, np.uint64), columns, np.array([state[key][0] for key in keys], np.int64))


class Checkpoints(Target):
    """State directories, on RocksDB."""

    name = "checkpoints"
    batch_inputs = 50
    limit_bytes = 512 * MIB

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._packed = [unpack(data) for data in corpus]
        self._values = [value for parts in self._packed for value in parts[1::2]]
        self._store: CheckpointStore | None = None
        self._left = 0

    def make(self, rng: Random) -> bytes:
        parts = rng.choice(self._packed)
        entries = list(zip(parts[::2], parts[1::2], strict=True))
        kind = rng.random()
        for _ in range(rng.choice((1, 1, 1, 2))):
            at, other = rng.randrange(len(entries)), rng.randrange(len(entries))
            place, value = entries[at]
            if kind < 0.1:
                entries = _stamped_anew(rng, entries)
                break
            if kind < 0.7:
                entries[at] = place, damaged_snapshot(rng, value, self._values)
            elif kind < 0.8:
                entries[at] = place, entries[other][1]
            elif kind < 0.9:
                entries[at] = place, rng.choice(self._values)
            else:
                values = shuffled(rng, [value for _, value in entries])
                entries = list(zip([place for place, _ in entries], values, strict=False))
                break
        return pack([part for entry in entries for part in entry])

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(unpack(data)) for data in inputs)

    def _check(self, parts: list[bytes]) -> bool:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        entries = {(place[0] % (1 + SHARDS), place[1:]): value for place, value in pairs if place[1:]}
        try:
            wanted: SlowCheckpoint | str | None = slow_checkpoints.checkpoint(entries, SHARDS, NCOLS)
        except Bad as bad:
            wanted = str(bad)
        got = self._read(entries)
        if got != wanted:
            raise Wrong(f"{str(got)[:400]} is read, not {str(wanted)[:400]}")
        return not isinstance(wanted, str)

    def _read(self, entries: dict[tuple[int, bytes], bytes]) -> SlowCheckpoint | str | None:
        """The checkpoint that the store reads from these entries when it is opened."""
        store = self._empty_store()
        batch = WriteBatch(raw_mode=True)
        for (family, key), value in entries.items():
            batch.put(key, value, store.parts.handles[family - 1] if family else None)
        store.parts.db.write(batch)
        store._head, store._versions = None, []
        try:
            store._recover(POLICY)
            loaded = store.load()
            if loaded is None:
                return None
            blocks = list(loaded.rows)
            rows = {key: row for block in blocks for key, row in _plain(block)}
            self._go_on(store, loaded, blocks)
        except (StateDamaged, NewerFormat) as error:
            return {StateDamaged: "DamagedRecord", NewerFormat: "NewerVersion"}[type(error)]
        return SlowCheckpoint(loaded.version, loaded.digest, loaded.head, rows)

    def _go_on(self, store: CheckpointStore, loaded: Loaded, blocks: list[StateRows]) -> None:
        """Plan the next checkpoint: an accepted state must allow to go on."""
        if sum(int(version.state.slot_parts.sum()) for version in store._versions) > _MOST_PIECES:
            return
        rows = last_of_each_key(blocks)
        store.begin(
            rows.part(0, 1),
            lambda prefix: rows_between(rows, prefix.bits, prefix.last),
            version=loaded.version,
            digest=1,
            head=loaded.head,
        )

    def _empty_store(self) -> CheckpointStore:
        if self._store is None or self._left == 0:
            if self._store is not None:
                self._store.close()
            memory = Path("/dev/shm")
            self._folder = tempfile.TemporaryDirectory(prefix="fuzz-state-", dir=memory if memory.is_dir() else None)
            self._store, self._left = opened(Path(self._folder.name)), _NEW_DIRECTORY
        self._left -= 1
        batch = WriteBatch(raw_mode=True)
        for family, key, _ in entries_of(self._store):
            batch.delete(key, self._store.parts.handles[family - 1] if family else None)
        self._store.parts.db.write(batch)
        return self._store


def _stamped_anew(rng: Random, entries: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Head and version records with one field of their stamps changed alike, some with the same slots in a ring."""
    at, size = rng.choice(((18, 2), (32, 8), (32, 8), (40, 8), (48, 8)))
    number, parts = rng.choice((*EXTREMES, *range(12))), rng.choice(EXTREMES)
    found = []
    for place, value in entries:
        if place[1:] in (b"head", b"version"):
            value = value[:at] + (number % (1 << 8 * size)).to_bytes(size, "little") + value[at + size :]
            if place[1:] == b"version" and number % 2:
                slots = _HEADER + 16 * int.from_bytes(value[12:16], "little")
                value = value[:slots] + (parts % (1 << 32)).to_bytes(4, "little") + value[slots + 4 :]
            value = sealed_anew(value)
        found.append((place, value))
    return found


def _plain(rows: StateRows) -> list[tuple[int, tuple[int, bytes]]]:
    columns = np.ascontiguousarray(rows.columns)
    return [(int(key), (int(rows.touched[i]), columns[i].tobytes())) for i, key in enumerate(rows.keys)]


def written_copy(entries: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """The value of `head` for a copy of a state directory."""
    named = {(family, key): value for family, key, value in entries}
    head = named[0, b"head"]
    content = {
        "copy_format": 1,
        "lineage": LINEAGE,
        "identity": {**IDENTITY, "shards": SHARDS},
        "head": base64.b64encode(head).decode(),
        "versions": [base64.b64encode(named[1 + shard, b"version"]).decode() for shard in range(SHARDS)],
    }
    body = json.dumps(content).encode()
    return sealed_anew(head[:12] + len(body).to_bytes(4, "little") + head[16:_HEADER] + body)


class CheckpointCopies(Target):
    """Values of `head` and `copying` in the topic of checkpoints."""

    name = "checkpoint-copies"
    batch_inputs = 200

    def make(self, rng: Random) -> bytes:
        value = rng.choice(self.corpus)
        if rng.random() < 0.4:
            return damaged_snapshot(rng, value, self.corpus)
        content = json.loads(value[_HEADER:])
        texts = [content["head"], *content["versions"]]
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(texts))
            texts[at] = self._damaged_text(rng, texts[at], texts)
        content.update(head=texts[0], versions=texts[1:])
        body = json.dumps(content).encode()
        body = json_bytes_mutated(rng, body) if rng.random() < 0.2 else body
        return sealed_anew(value[:12] + len(body).to_bytes(4, "little") + value[16:_HEADER] + body)

    def _damaged_text(self, rng: Random, text: str, others: list[str]) -> str:
        if rng.random() < 0.2:
            return mutated(rng, text.encode(), [other.encode() for other in others]).decode("utf-8", "replace")
        if rng.random() < 0.2:
            return rng.choice(others)
        values = [_value_of(other) for other in others]
        return base64.b64encode(damaged_snapshot(rng, _value_of(text), values)).decode()

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(value) for value in inputs)

    def _check(self, value: bytes) -> bool:
        try:
            wanted: SlowCopy | str = slow_checkpoints.copy_head(value)
        except Bad as bad:
            wanted = str(bad)
        try:
            copy: CopyHead | None = decode_copy(value)
            got: SlowCopy | str = _said(copy)  # type: ignore[arg-type]
        except RecordError as error:
            copy, got = None, type(error).__name__
        if got != wanted:
            raise Wrong(f"{value[:400]!r} is {str(got)[:300]}, not {str(wanted)[:300]}")
        if copy is None or isinstance(wanted, str):
            return False
        return self._check_parts(copy, wanted)

    def _check_parts(self, copy: CopyHead, slow: SlowCopy) -> bool:
        """Compare the parts of the copy with those of the slow reader. Returns whether it can be used."""
        try:
            content, states = slow_checkpoints.parts_of(slow)
        except Bad:
            states = None
        try:
            versions = copy.version_records()
            head = copy.head_record()
        except RecordError:
            if states is not None:
                raise Wrong(f"the parts of {copy} were refused") from None
            return False
        if states is None:
            raise Wrong(f"the parts of {copy} were taken")
        got = [
            (
                tuple((prefix.bits, prefix.nbits, at) for prefix, at in version.state.pages),
                tuple(version.state.slot_parts),
            )
            for version in versions
        ]
        if got != states or head.content != content:
            raise Wrong(f"{copy} consists of {got}, not {states}")
        if sum(sum(slots) for _, slots in states) <= _MOST_PIECES:
            places = piece_ids_of(copy)
            if len(set(places)) != len(places):
                raise Wrong(f"{copy} names a piece twice")
        return True


def _value_of(text: str) -> bytes:
    """The bytes that a text encodes; the bytes of the text itself if it is damaged."""
    try:
        return base64.b64decode(text)
    except ValueError:
        return text.encode()


def _said(copy: CopyHead) -> SlowCopy:
    return SlowCopy(tuple(copy.stamp), copy.lineage, copy.identity, copy.head, copy.versions)
