"""The RocksDB underneath the checkpoints: how it is opened, and what its errors mean.

In: a directory, a bound of memory. Out: an open database; or an error that a person can act on.
This file must never know what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Cache, Options, Rdict

from stream_learner.errors import DiskFull, StateDamaged, StateInUse, Stop

MIB = 1 << 20

_FULL = ("No space left on device", "Disk quota exceeded", "File too large", "Space limit reached")
_IN_USE = ("lock hold by current process", "While lock file", "LOCK: Resource temporarily unavailable")


def open_database(path: Path, shards: int, memory_bytes: int) -> Rdict:
    """The database in a directory, made if it is not there, with a column family per shard and those it has already."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_db_write_buffer_size(memory_bytes)
    options.set_max_total_wal_size(4 * memory_bytes)
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(3)
    options.set_max_log_file_size(4 * MIB)
    options.set_bytes_per_sync(MIB)
    options.set_wal_bytes_per_sync(MIB)
    cache = Cache(4 * MIB)
    names = {family_name(shard) for shard in range(shards)}
    if (path / "CURRENT").exists():
        names |= set(Rdict.list_cf(str(path), options))
    names.discard("default")
    buffer = max(MIB, memory_bytes // 4)
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


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """RocksDB's errors, told apart by their text, which is all there is."""
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
    if "Corruption" in text or "Invalid argument" in text:
        return StateDamaged(f"{path} cannot be read ({text})")
    return Stop(
        f"the state directory {path} cannot be used ({text})",
        action="Check that the directory exists, can be written by this user, and that its disk works.",
    )


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
