"""The index of single rows beside the checkpoints, for models larger than memory.

The pages and deltas of the last checkpoint are the source of truth. The index can be made from them at any time.

    rows      <key u64, big-endian>   touched i64, columns f64[ncols], little-endian
    default   "rows"                  the checkpoint that the index stands for, JSON {"sequence", "tick"}

After a checkpoint's commit a thread writes the rows that it changed into sorted files, and RocksDB ingests the files as
they are (no memtable, no write-ahead log). Then it stores under "rows" which checkpoint the index stands for.

| crash after    | what is found at the next open                                                                |
|----------------|-----------------------------------------------------------------------------------------------|
| the commit     | an index of an earlier checkpoint: what was written since is read from its pages and deltas   |
| some files     | the same; rows that are in the index already are written again, to the same bytes             |
| "rows"         | an index that stands for the last checkpoint                                                  |
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter, WriteBatch

from stream_learner.adapters.rocksdb.database import explained
from stream_learner.core.model.table.rows import joined
from stream_learner.core.snapshots.rows import StateRows, last_of_each_key

NOTE: Final = b"rows"
FEWEST_FILE_ROWS: Final = 1 << 14
ROCKSDB_BYTES_PER_FILE_ROW: Final = 256
"""A sorted file holds one row for so many bytes of RocksDB's memory: a small share of it, and still few files."""
SLICE_ROWS: Final = 256
REST_S: Final = 0.00005
"""How long the writing thread sleeps after each slice, so that the fold gets the interpreter."""
BUSY_FILES: Final = 24
"""With more files than these in level 0 the thread waits until RocksDB has merged some."""
READERS: Final = 8
"""Threads that look rows up, so that a disk serves several reads at once."""
KEYS_AT_ONCE: Final = 128
"""Most keys of one look-up: RocksDB keeps a block of 4 KiB for each key until it has found all, cached or not."""
SCAN_ROWS: Final = 4096


class CheckpointId(NamedTuple):
    """A committed checkpoint: its sequence and its tick; (0, -1) for none."""

    sequence: int
    tick: int


class RowIndex:
    """Rows by key. Reading is for one thread; `write` may run in another."""

    def __init__(self, path: Path, db: Rdict, family: Rdict, options: Options, ncols: int, rows_bytes: int) -> None:
        """family: the column family of the rows, made with `options`. rows_bytes: RocksDB's memory."""
        self._path, self._db, self._family, self._options, self._ncols = path, db, family, options, ncols
        self._new = path / "rows-new"
        self.file_rows = max(FEWEST_FILE_ROWS, rows_bytes // ROCKSDB_BYTES_PER_FILE_ROW)
        """Most rows of one sorted file, and of those that `bring_up` gathers before it writes."""
        self._readers = ThreadPoolExecutor(READERS, "rows")
        shutil.rmtree(self._new, ignore_errors=True)
        found = db.get(NOTE)
        self.checkpoint = CheckpointId(0, -1) if found is None else CheckpointId(**orjson.loads(found))
        self.written_rows = 0

    def fetch(self, keys: NDArray[np.uint64]) -> StateRows:
        """The rows that exist of u64[r] different keys, ordered by key."""
        ordered = np.sort(keys)
        packed = ordered.astype(">u8").tobytes()
        names = [packed[at : at + 8] for at in range(0, len(packed), 8)]
        with explained(self._path):
            values = self._get(names)
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return self._rows(ordered[there], b"".join(value for value in values if value is not None))

    def _get(self, names: list[Any]) -> list[bytes | None]:
        if len(names) <= KEYS_AT_ONCE // 2:
            return self._multi_get(names)
        size = min(KEYS_AT_ONCE, -(-len(names) // READERS))
        parts = self._readers.map(self._multi_get, (names[at : at + size] for at in range(0, len(names), size)))
        return [value for part in parts for value in part]

    def _multi_get(self, names: list[Any]) -> list[bytes | None]:
        values: list[bytes | None] = self._family.get(names) or []
        return values

    def between(self, low: int, high: int) -> StateRows:
        """The rows with low <= key <= high, ordered by key."""
        blocks, last = [self._rows(np.empty(0, np.uint64), b"")], low
        with explained(self._path):
            entries: Iterator[tuple[Any, Any]] = self._family.items(from_key=low.to_bytes(8, "big"))
            while last <= high and (block := list(islice(entries, SCAN_ROWS))):
                keys = np.frombuffer(b"".join([key for key, _ in block]), ">u8").astype(np.uint64)
                rows = self._rows(keys, b"".join([value for _, value in block]))
                stop = int(np.searchsorted(keys, np.uint64(high), side="right"))
                blocks.append(rows.part(0, stop))
                last = int(keys[-1]) if stop == len(keys) else high + 1
        return joined(blocks)

    def _rows(self, keys: NDArray[np.uint64], values: bytes) -> StateRows:
        table = np.frombuffer(values, "<i8").reshape(len(keys), 1 + self._ncols)
        return StateRows(keys, table[:, 1:].view("<f8"), table[:, 0])

    def write(self, rows: StateRows, stopping: Callable[[], bool] = lambda: False, *, rest_s: float = 0.0) -> None:
        """Put rows, ordered by key, into the index; idempotent. If `stopping()`, returns with a part of them written.

        rest_s: how long to sleep after every `SLICE_ROWS` rows, so that other threads get the interpreter.
        """
        for start in range(0, len(rows), self.file_rows):
            while self._files_waiting() > BUSY_FILES and not stopping():
                time.sleep(0.05)
            if stopping():
                return
            self._write_file(rows.part(start, start + self.file_rows), rest_s)
            self.written_rows += min(self.file_rows, len(rows) - start)

    def _write_file(self, rows: StateRows, rest_s: float) -> None:
        self._new.mkdir(exist_ok=True)
        name = str(self._new / "rows.sst")
        keys = rows.keys.astype(">u8").tobytes()
        table = np.column_stack([rows.touched.astype("<i8"), np.ascontiguousarray(rows.columns, "<f8").view("<i8")])
        values, width = table.tobytes(), 8 * (1 + self._ncols)
        with explained(self._path):
            writer = SstFileWriter(self._options)
            writer.open(name)
            for start in range(0, len(rows), SLICE_ROWS):
                for i in range(start, min(start + SLICE_ROWS, len(rows))):
                    writer[keys[8 * i : 8 * i + 8]] = values[width * i : width * i + width]
                if rest_s:
                    time.sleep(rest_s)
            writer.finish()
            options = IngestExternalFileOptions()
            options.set_move_files(True)
            self._family.ingest_external_file([name], options)

    def _files_waiting(self) -> int:
        return int(self._family.property_value("rocksdb.num-files-at-level0") or 0)

    def stands_for(self, checkpoint: CheckpointId) -> None:
        """Record that the index has every row as of a checkpoint."""
        with explained(self._path):
            batch = WriteBatch(raw_mode=True)
            batch.put(NOTE, orjson.dumps(checkpoint._asdict()))
            self._db.write(batch)
        self.checkpoint = checkpoint

    def bring_up(
        self,
        pieces: Iterable[tuple[CheckpointId, StateRows]],
        last: CheckpointId,
        progress: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """Put rows of pages and deltas, in the order of their checkpoints, into the index: it then stands for `last`.

        progress: called now and then with the number of rows read so far.
        """
        blocks: list[StateRows] = []
        held, read, before = 0, 0, self.checkpoint.tick
        for _, rows in pieces:
            read += len(rows)
            # The index has the older rows of a page already.
            blocks.append(rows.where(rows.touched > before))
            held += len(blocks[-1])
            if held >= self.file_rows:
                self.write(last_of_each_key(blocks))
                blocks, held = [], 0
                progress(read)
        if held:
            self.write(last_of_each_key(blocks))
        self.stands_for(last)
        progress(read)

    def close(self) -> None:
        """Stop the reading threads and release the column family."""
        self._readers.shutdown()
        del self._family


class IndexWriter:
    """Writes the rows of one checkpoint after the other into the index, in a thread of its own."""

    def __init__(self, index: RowIndex) -> None:
        self._index = index
        self._thread: threading.Thread | None = None
        self._job: tuple[StateRows, CheckpointId] | None = None
        self._failure: Exception | None = None
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether the index does not stand for the last checkpoint given to `begin` yet.

        If writing failed, raises the failure once; the next call tries again.
        """
        if self._job is None:
            return False
        if self._thread is not None and self._thread.is_alive():
            return True
        if self._failure is not None:
            failure, self._failure, self._thread = self._failure, None, None
            raise failure
        if self._thread is None:
            self._start()
            return True
        self._job = self._thread = None
        return False

    def begin(self, rows: StateRows, checkpoint: CheckpointId) -> None:
        """Write the rows that a committed checkpoint has changed. Call it only when it is not `busy`."""
        assert self._job is None
        self._job = (rows, checkpoint)
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="row-index", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._job is not None
        rows, checkpoint = self._job
        try:
            self._index.write(rows, lambda: self._stopping, rest_s=REST_S)
            if not self._stopping:
                self._index.stands_for(checkpoint)
        except Exception as error:  # noqa: BLE001 - it goes to the learner's thread
            self._failure = error

    def wait(self) -> None:
        """Wait until the index stands for the last checkpoint. Raises what `busy` raises."""
        while self.busy:
            if self._thread is not None:
                self._thread.join()

    def close(self) -> None:
        """Give up the checkpoint that is being written: the next open writes it again."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()


class ColdStore:
    """The rows that a bounded weight table does not hold (`core.model.table.bounded.ColdRows`).

    Rows come from the index, the keys changed after a tick from the pieces of the last checkpoint.
    """

    def __init__(self, index: RowIndex, changed_after: Callable[[int], NDArray[np.uint64]]) -> None:
        self._index = index
        self.fetch = index.fetch
        self.between = index.between
        self.changed_after = changed_after

    @property
    def tick(self) -> int:
        """The tick that the index stands for."""
        return self._index.checkpoint.tick
