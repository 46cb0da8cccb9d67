"""The pieces of a checkpoint that was given up are deleted from the disk, not only ignored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stream_learner.adapters.rocksdb.copy import HeldCheckpoint
from stream_learner.adapters.rocksdb.store import CheckpointStore, CheckpointWriter
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.core.snapshots.rows import StateRows, rows_between

SMALL = PagePolicy(page_bytes=640, part_bytes=480, ring=8, delta_share=0.7, lean=True)
KEYS = np.arange(1, 201, dtype=np.uint64) * np.uint64(0x0123456789ABCDEF >> 8)


@contextmanager
def store_in(path: Path) -> Iterator[CheckpointStore]:
    """A store of two shards, whose pages and parts are small."""
    with CheckpointStore.open(path, {"model": "ctr"}, shards=2, ncols=1, policy=SMALL) as store:
        yield store


def begin(store: CheckpointStore, count: int, tick: int) -> CheckpointWriter:
    """A checkpoint of the first `count` rows, all of them changed in this tick."""
    rows = StateRows(KEYS[:count], np.full((count, 1), float(tick)), np.full(count, tick, np.int64))
    return store.begin(
        rows, lambda prefix: rows_between(rows, prefix.bits, prefix.last), version=tick, digest=tick, head={}
    )


def on_disk(store: CheckpointStore) -> set[tuple[int, bytes]]:
    """Shard and key of every piece there is."""
    return {(shard, key) for shard, of in enumerate(store.parts.families) for key, _ in of.items() if key[:1] == b"p"}


def named(store: CheckpointStore) -> set[tuple[int, bytes]]:
    """Shard and key of every piece that the last checkpoint consists of."""
    with HeldCheckpoint(store) as held:
        return set(held.pieces)


def give_up(store: CheckpointStore, tick: int) -> None:
    """Write every piece of a large checkpoint, and not its head."""
    writer = begin(store, 200, tick)
    while writer.step():
        pass
    assert on_disk(store) > named(store)


def test_the_next_start_deletes_them(tmp_path: Path) -> None:
    """After a crash in the middle of a checkpoint, the next open leaves none of its pieces."""
    with store_in(tmp_path) as store:
        begin(store, 20, 1).commit()
        give_up(store, 2)
    with store_in(tmp_path) as store:
        assert on_disk(store) == named(store) != set()


def test_the_next_checkpoint_deletes_them(tmp_path: Path) -> None:
    """A smaller checkpoint after one that was given up deletes all pieces of that one."""
    with store_in(tmp_path) as store:
        begin(store, 20, 1).commit()
        give_up(store, 2)
        begin(store, 20, 3).commit()
        assert on_disk(store) == named(store) != set()
