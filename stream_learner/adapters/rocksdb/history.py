"""Kept checkpoints: the state as it was, in `history/` of the state directory, so that a learner can go back to it.

    history/<tick, 20 digits>/          a database of RocksDB with the checkpoint of that tick
    history/<tick, 20 digits>/kept.json what it is, as `KeptCheckpoint.note`
    history/making, history/gone-...    one that is being made, one that is being deleted: neither counts

RocksDB makes such a database in a fraction of a second: it writes out its memtables and links its sorted files, which
never change. A link takes no room until the state itself has dropped the file.

| crash after                   | leaves                                    | the next `kept_in`          |
|-------------------------------|-------------------------------------------|-----------------------------|
| a part of `making`            | a directory that no name of a tick has    | deletes it                  |
| `making` is renamed           | the kept checkpoint, whole                | lists it                    |
| `gone-...`, a part deleted    | a directory that no name of a tick has    | deletes it                  |
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rocksdict import Checkpoint, WriteBatch

from stream_learner.adapters.record_errors import error_in_state
from stream_learner.adapters.rocksdb.copy import LINEAGE
from stream_learner.adapters.rocksdb.database import HasParts, explained
from stream_learner.adapters.rocksdb.layout import HEAD
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots.records import HeadRecord, decode, encode_head
from stream_learner.errors import StateDamaged

FOLDER = "history"
NOTE = "kept.json"
MAKING = "making"
_TICK = re.compile(r"[0-9]{20}\Z")


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A checkpoint that is kept: its tick, its database, and what was noted when it was made."""

    tick: int
    path: Path
    note: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of its files, those included that other checkpoints share."""
        return size_of(self.path)


def size_of(path: Path) -> int:
    """Bytes of the files in a directory, without those that go while they are counted."""
    total = 0
    with suppress(FileNotFoundError):
        for entry in os.scandir(path):
            with suppress(FileNotFoundError):
                total += entry.stat().st_size if entry.is_file() else 0
    return total


def kept_in(state_dir: Path, *, clean: bool = False) -> list[KeptCheckpoint]:
    """The kept checkpoints of a state directory, oldest first; one without a readable note is left out.

    clean: delete what is left of those that were not made or deleted to the end, and those without a readable note.
    Only for the process that has the state open.
    """
    folder, found = state_dir / FOLDER, []
    if not folder.is_dir():
        return []
    for entry in sorted(folder.iterdir()):
        kept = _read(entry)
        if kept is not None:
            found.append(kept)
        elif clean:
            shutil.rmtree(entry, ignore_errors=True)
    return found


def _read(path: Path) -> KeptCheckpoint | None:
    if not _TICK.match(path.name):
        return None
    try:
        note = orjson.loads((path / NOTE).read_bytes())
    except (OSError, ValueError):
        return None
    return KeptCheckpoint(int(path.name), path, note) if isinstance(note, dict) else None


def keep(store: HasParts, tick: int, note: Mapping[str, Any]) -> KeptCheckpoint:
    """Keep the last checkpoint of a store, which is of `tick`. When this returns it survives a power failure.

    note: JSON values. Raises DiskFull and other errors of the disk; nothing is kept then.
    """
    folder = store.parts.path / FOLDER
    making, made = folder / MAKING, folder / f"{tick:020d}"
    with explained(store.parts.path):
        folder.mkdir(exist_ok=True)
        for stale in folder.glob(f"{MAKING}*"):
            shutil.rmtree(stale)
        Checkpoint(store.parts.db).create_checkpoint(str(making))
        _write_durably(making / NOTE, orjson.dumps(dict(note)))
        sync_directory(making)
        making.rename(made)
        sync_directory(folder)
    return KeptCheckpoint(tick, made, dict(note))


def drop(kept: KeptCheckpoint) -> None:
    """Delete a kept checkpoint. From the first moment on it does not count."""
    gone = kept.path.with_name(f"gone-{kept.path.name}")
    kept.path.rename(gone)
    sync_directory(gone.parent)
    shutil.rmtree(gone, ignore_errors=True)


def copy_out(kept: KeptCheckpoint, into: Path) -> None:
    """Make a database in a new directory from a kept checkpoint, which stays as it is.

    Sorted files are linked, for they never change; what RocksDB goes on to write is copied. Raises DiskFull.
    """
    with explained(kept.path):
        into.mkdir()
        for file in kept.path.iterdir():
            if file.suffix == ".sst":
                os.link(file, into / file.name)
            elif file.is_file() and file.name not in (NOTE, "LOCK"):
                _write_durably(into / file.name, file.read_bytes())
        sync_directory(into)


def amend_head(store: HasParts, change: Mapping[str, Any]) -> None:
    """Change fields of the last checkpoint's head, and let the store begin a new lineage of copies.

    Only for a store that is closed next: what it has read stays as it was. Raises StateDamaged, DiskFull.
    """
    parts = store.parts
    with explained(parts.path):
        found = parts.db.get(HEAD)
    try:
        record = decode(HEAD, found or b"")
    except RecordError as error:
        raise error_in_state(error, parts.path) from error
    if not isinstance(record, HeadRecord):
        raise StateDamaged(f"{parts.path}: the head of the checkpoint says nothing that can be used")
    batch = WriteBatch(raw_mode=True)
    batch.put(HEAD, encode_head(record.stamp, {"head": {**record.content["head"], **change}}))
    batch.delete(LINEAGE)
    parts.write(batch, durable=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power failure."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
