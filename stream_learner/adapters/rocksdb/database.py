"""RocksDB itself: how a database is opened, what bounds its memory, and what its errors mean.

RocksDB tells its errors apart only by their text; `explain` turns the text into an error that a person can act on.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from stream_learner.adapters import machine
from stream_learner.errors import DiskFull, StateDamaged, StateInUse, StateUnusable, Stop

MIB = 1 << 20
ROWS_FAMILY = "rows"
"""The column family of single rows. It exists only if the model is larger than memory."""

OPEN_FILES = 256
MOST_OPEN_FILES = 4096
MERGED_AT_ONCE_BYTES = 128 * 1024
"""How much a merge reads ahead from each of its files, which may be dozens. These reads do not go through the cache."""

_FULL = ("No space left on device", "Disk quota exceeded", "File too large", "Space limit reached")
_GONE = re.compile(r"No such file or directory: While opening? a file for .*/(?:MANIFEST-\d+|\d+\.(?:sst|log))")
_IN_USE = ("lock hold by current process", "While lock file", "LOCK: Resource temporarily unavailable")


@dataclass(frozen=True)
class Database:
    """An open database, and what bounds its memory.

    rows: the options of the column family of single rows, None if this process keeps none. leftover: whether an earlier
    process has left such a family that this one does not use.
    """

    db: Rdict
    cache: Cache
    cache_bytes: int
    buffers: WriteBufferManager
    rows: Options | None
    leftover: bool

    def memory(self) -> dict[str, int]:
        """Bytes held, by part: block cache (which counts the memtables in), memtables, readers of open files."""
        readers = 0
        if self.rows is not None:
            family = self.db.get_column_family(ROWS_FAMILY)
            readers = int(family.property_int_value("rocksdb.estimate-table-readers-mem") or 0)
        return {"cache": self.cache.get_usage(), "memtables": self.buffers.get_usage(), "readers": readers}


def open_database(path: Path, shards: int, memory_bytes: int, rows_bytes: int | None = None) -> Database:
    """Open the database in a directory, or make it, with a column family per shard and those it has already.

    memory_bytes: bound of the write buffers; the block cache is small. rows_bytes: if given, make the column family of
    single rows too, and bound write buffers and block cache together, with the indexes and filters of files.
    """
    if rows_bytes is None:
        cache_bytes, buffer_bytes, open_files = 4 * MIB, memory_bytes, OPEN_FILES
        cache = Cache(cache_bytes)
        buffers = WriteBufferManager(buffer_bytes, False)
    else:
        machine.keep_little()
        cache_bytes, buffer_bytes, open_files = rows_bytes, min(memory_bytes, rows_bytes // 2), _files_for_rows()
        cache = Cache(cache_bytes)
        buffers = WriteBufferManager.new_write_buffer_manager_with_cache(buffer_bytes, False, cache)
    options = _database_options(buffer_bytes, buffers, open_files)
    if rows_bytes is not None:
        options.set_compaction_readahead_size(MERGED_AT_ONCE_BYTES)
        options.set_writable_file_max_buffer_size(MERGED_AT_ONCE_BYTES)
    names = {family_name(shard) for shard in range(shards)}
    if (path / "CURRENT").exists():
        names |= set(Rdict.list_cf(str(path), options))
    names -= {"default", ROWS_FAMILY} if rows_bytes is not None else {"default"}
    buffer = max(MIB, buffer_bytes // 4)
    families = {name: _family_options(cache, buffer) for name in ("default", *sorted(names))}
    rows = None
    if rows_bytes is not None:
        rows = families[ROWS_FAMILY] = _rows_options(cache)
    db = Rdict(str(path), options, column_families=families)
    return Database(db, cache, cache_bytes, buffers, rows, leftover=rows is None and ROWS_FAMILY in families)


def destroy_database(path: Path) -> None:
    """Delete the database in a directory, which nobody has open, and nothing else there. It may be opened anew then."""
    Rdict.destroy(str(path), Options(raw_mode=True))


def _files_for_rows() -> int:
    """Keep every file of the index open if the limit of open files allows it: opening a file takes several reads."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(OPEN_FILES, min(MOST_OPEN_FILES, allowed // 2))


def _database_options(buffer_bytes: int, buffers: WriteBufferManager, open_files: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_manager(buffers)
    options.set_max_total_wal_size(4 * buffer_bytes)
    options.set_max_background_jobs(2)
    options.set_max_open_files(open_files)
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(4 * MIB)
    options.set_bytes_per_sync(MIB)
    options.set_wal_bytes_per_sync(MIB)
    return options


def _family_options(cache: Cache, buffer_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(2)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    options.set_block_based_table_factory(table)
    return options


def _rows_options(cache: Cache) -> Options:
    """Options for many small values that are looked up by key.

    Filters and partitioned indexes lie in the cache, so that their memory is bounded.
    """
    options = Options(raw_mode=True)
    options.set_write_buffer_size(MIB)
    options.set_compression_type(DBCompressionType.none())
    options.set_bytes_per_sync(MIB)
    options.set_target_file_size_base(64 * MIB)
    # Whole files are ingested, so RocksDB has no writes to slow down; `RowIndex.write` watches level 0 instead.
    options.set_level_zero_slowdown_writes_trigger(1000)
    options.set_level_zero_stop_writes_trigger(2000)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_bloom_filter(10, False)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    return options


@dataclass(frozen=True)
class StoreParts:
    """The open database, as a store lends it to a checkpoint's writer and to copies of checkpoints.

    path: the state directory. identity: whose state it is. families, handles: the column families, by shard. Of no use
    after the store is closed.
    """

    path: Path
    identity: Mapping[str, Any]
    db: Rdict
    families: list[Rdict]
    handles: list[Any]

    def write(self, batch: WriteBatch, *, durable: bool = False) -> None:
        """Write all of a batch or nothing; a durable one survives a power failure. Raises DiskFull, StateDamaged."""
        options = None
        if durable:
            options = WriteOptions()
            options.sync = True
        with explained(self.path):
            self.db.write(batch, options)


class HasParts(Protocol):
    """An open store."""

    @property
    def parts(self) -> StoreParts: ...


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise errors of RocksDB as `explain` reads them."""
    try:
        yield
    except OSError as error:
        raise explain(path, f"{error}") from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise explain(path, f"{error}") from error


def explain(path: Path, text: str) -> Stop:
    """The error that a text of RocksDB, or of the system, means."""
    if any(sign in text for sign in _FULL):
        return DiskFull(f"no room left in the state directory {path} ({text})")
    if any(sign in text for sign in _IN_USE):
        return StateInUse(f"another process has the state directory {path} open")
    if "Corruption" in text or "Invalid argument" in text or _GONE.search(text):
        return StateDamaged(f"{path} cannot be read ({text})")
    return StateUnusable(f"the state directory {path} cannot be used ({text})")


def between(family: Rdict, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values from `begin` on, before `end`, in order."""
    entries: Iterator[tuple[Any, Any]] = family.items(from_key=begin)
    for key, value in entries:
        if key >= end:
            return
        yield key, value


def holds(family: Rdict, begin: bytes, end: bytes) -> bool:
    """Whether there is any key in that range."""
    return next(between(family, begin, end), None) is not None


def family_name(shard: int) -> str:
    """Column family of a shard."""
    return f"shard-{shard:03d}"
