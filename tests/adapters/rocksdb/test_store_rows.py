"""The index of rows on a real RocksDB: what a bounded table gets back, whatever happened between two checkpoints."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import Rdict

from stream_learner.adapters.rocksdb import row_index as store_rows
from stream_learner.adapters.rocksdb.row_index import CheckpointId, ColdStore, IndexWriter, RowIndex
from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.core.model.table.bounded import BoundedWeightTable
from stream_learner.core.model.table.table import WeightTable
from stream_learner.core.snapshots.pages import PagePolicy, Prefix
from stream_learner.core.snapshots.rows import StateRows, last_of_each_key
from tests.core.model.table.test_bounded import LIMIT_ROWS, POOL, limit_bytes
from tests.core.model.table.test_table import all_rows, assert_same, change, load

SMALL = PagePolicy(page_bytes=4096, part_bytes=4096, ring=8, delta_share=0.7, lean=True)
MIB = 1 << 20


def open_store(path: Path, rows_bytes: int | None = 4 * MIB) -> CheckpointStore:
    return CheckpointStore.open(path, {"model": "ctr"}, shards=2, ncols=2, policy=SMALL, rows_bytes=rows_bytes)


class World:
    """A bounded table over a store, beside one without a bound; crashes leave what is on disk."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.rng = path, random.Random(seed)
        self.plain = WeightTable(2)
        self.tick = self.evicted = 0
        self.checkpoint: tuple[dict[int, Any], int, int] = ({}, 0, 0)
        self.start()

    def start(self) -> None:
        self.store = open_store(self.path)
        assert self.store.rows is not None
        self.index: RowIndex = self.store.rows
        self.index.bring_up(self.store.pieces_after(self.index.checkpoint.sequence), self.store.last)
        cold = ColdStore(self.index, self.store.changed_after)
        self.bounded = BoundedWeightTable(2, cold, limit_bytes=limit_bytes(2), most_changed=2000)
        self.writer = IndexWriter(self.index)
        rows, self.tick, published = self.checkpoint
        self.plain = WeightTable(2)
        load(self.plain, rows)
        self.bounded.adopt(self.plain.count, self.plain.rows_digest)
        for table in (self.plain, self.bounded):
            table.restart_changes(self.tick, published)

    def fold(self, count: int) -> None:
        self.tick += 1
        rows: dict[int, Any] = {
            key: ((self.rng.gauss(0, 1), float(self.tick)), 0) for key in self.rng.sample(POOL, count)
        }
        change(self.plain, rows, self.tick)
        change(self.bounded, rows, self.tick)

    def write_checkpoint(self, *, crash: str = "") -> None:
        """A checkpoint, with folds while it is written; `crash` names the step after which nothing more happens."""
        self.writer.wait()
        changed = self.bounded.take_changed_for_checkpoint(self.tick)
        self.plain.take_changed_for_checkpoint(self.tick)
        state = all_rows(self.plain)
        writer = self.store.begin(changed, self.rows_of, version=self.tick, digest=0, head={"tick": self.tick})
        taken = (state, self.tick, max(0, self.tick - 3))
        self.fold(100)
        while writer.step():
            pass
        if crash == "pieces":
            return
        writer.commit()
        self.checkpoint = taken
        if crash == "commit":
            return
        if crash == "some rows":
            self.index.write(changed.part(0, len(changed) // 2))
            return
        if crash == "all rows":
            self.index.write(changed)
            return
        self.writer.begin(changed, CheckpointId(*self.store.last))
        self.fold(100)

    def rows_of(self, prefix: Prefix) -> StateRows:
        return self.bounded.rows_with_prefix(prefix.number, prefix.nbits)

    def stop(self) -> None:
        self.evicted += self.bounded.evicted
        self.writer.close()
        self.store.close()

    def compare(self, *, reckoned: bool = True) -> None:
        """Digest, rows and lists of both. reckoned: the digest is also reckoned from all rows, which takes a second."""
        assert self.bounded.rows_digest == self.plain.rows_digest
        assert not reckoned or self.bounded.rows_digest_full() == self.plain.rows_digest
        assert self.bounded.count == self.plain.count
        keys = np.array(self.rng.choices(POOL, k=2000), np.uint64)
        for mine, theirs in (
            (self.bounded.rows_of(keys), self.plain.rows_of(keys)),
            (self.bounded.rows_with_prefix(5, 3), self.plain.rows_with_prefix(5, 3)),
            *((t.take_changed_for_publication(self.tick) for t in (self.bounded, self.plain)),),
        ):
            assert_same(theirs, mine)


def test_a_bounded_table_over_rocksdb_is_the_table_without_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folds, checkpoints, evictions, and a crash after every step of a checkpoint: digest, rows and lists are equal."""
    monkeypatch.setattr(store_rows, "FEWEST_FILE_ROWS", 500)
    monkeypatch.setattr(store_rows, "ROCKSDB_BYTES_PER_FILE_ROW", MIB)
    world = World(tmp_path, 3)
    for crash in ("", "", "", "pieces", "", "", "commit", "", "", "some rows", "all rows", ""):
        for _ in range(3):
            world.fold(world.rng.randrange(300, 1200))
        world.write_checkpoint(crash=crash)
        if not crash:
            world.fold(400)
            world.compare(reckoned=False)
        if crash:
            world.stop()
            world.start()
            world.compare()
    world.compare()
    world.stop()
    assert world.evicted > LIMIT_ROWS


def test_an_index_is_made_from_pages_and_deltas_and_dropped_where_it_is_not_kept(tmp_path: Path) -> None:
    """A directory of a model that was in memory gets an index at the start; one opened without loses it."""
    world = World(tmp_path, 5)
    for _ in range(12):
        world.fold(500)
        world.write_checkpoint()
    world.writer.wait()
    world.compare()
    world.stop()
    with open_store(tmp_path, None) as store:
        assert store.rows is None
        store.drop_rows()
    assert "rows" not in Rdict.list_cf(str(tmp_path))
    world.start()
    assert world.index.written_rows >= len(world.checkpoint[0])
    assert world.bounded.rows_digest_full() == world.bounded.rows_digest
    world.stop()
    world.start()
    assert world.index.written_rows == 0
    world.stop()


def test_changes_are_found_in_the_latest_pieces_only(tmp_path: Path) -> None:
    """The keys touched after a tick, from pages and deltas, are those of the rows touched after it."""
    world = World(tmp_path, 9)
    for _ in range(12):
        world.fold(300)
        world.write_checkpoint()
    rows, last, _ = world.checkpoint
    for tick in (-1, 0, last // 2, last - 1, last):
        expected = sorted(key for key, (_, touched) in rows.items() if touched > tick)
        assert world.store.changed_after(tick).tolist() == expected
    world.stop()


def test_a_failed_write_is_said_once_and_tried_again(tmp_path: Path) -> None:
    """The learner's thread learns of it; the index still stands for the checkpoint before, then for the last."""
    world = World(tmp_path, 2)
    world.fold(500)
    (tmp_path / "rows-new").write_text("in the way")
    world.write_checkpoint()
    with pytest.raises(Exception, match="rows-new"):
        world.writer.wait()
    assert world.index.checkpoint == CheckpointId(0, -1)
    (tmp_path / "rows-new").unlink()
    world.writer.wait()
    assert world.index.checkpoint == world.store.last
    world.compare()
    world.stop()


def test_the_memory_of_rocksdb_is_bounded_and_told(tmp_path: Path) -> None:
    """Cache and memtables stay below what the store was opened with, however much is read."""
    with open_store(tmp_path, 4 * MIB) as store:
        assert store.rows is not None
        keys = np.sort(np.unique(np.random.default_rng(1).integers(1, 1 << 63, 300_000).astype(np.uint64)))
        store.rows.write(StateRows(keys, np.ones((len(keys), 2)), np.ones(len(keys), np.int64)))
        for start in range(0, len(keys), 1000):
            assert len(store.rows.fetch(keys[start : start + 1000])) == len(keys[start : start + 1000])
        memory = store.memory
    assert 0 < memory["cache"] <= 4.5 * MIB
    assert memory["memtables"] <= 2.5 * MIB
    assert memory["readers"] >= 0


def test_a_checkpoint_holds_one_page_at_a_time(tmp_path: Path) -> None:
    """Where pages come from disk, a checkpoint that writes many takes the memory of a few, and is the same."""
    policy = PagePolicy(page_bytes=64 * 1024, part_bytes=4096, ring=8, delta_share=1e9)
    rng = np.random.default_rng(3)
    keys = np.sort(rng.integers(1, 2**64, 60_000, np.uint64))
    none = StateRows(keys[:0], np.empty((0, 2)), np.empty(0, np.int64))

    def below(prefix: Prefix) -> StateRows:
        found = keys[(keys >= np.uint64(prefix.bits)) & (keys <= np.uint64(prefix.last))]
        return StateRows(found, np.outer(found.astype(np.float64), [1.0, 2.0]), np.ones(len(found), np.int64))

    peaks, written = [], []
    for name, rows_bytes in (("index", 4 * MIB), ("none", None)):
        path = tmp_path / name
        with CheckpointStore.open(path, {}, shards=2, ncols=2, policy=policy, rows_bytes=rows_bytes) as store:
            store.begin(none, below, version=1, digest=0, head={}).commit()
            changed = below(Prefix(0, 9))
            tracemalloc.start()
            writer = store.begin(changed, below, version=2, digest=0, head={})
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            writer.commit()
            loaded = store.load()
            assert loaded is not None
            written.append(last_of_each_key(list(loaded.rows)))
    assert len(written[0]) == 60_000
    assert_same(*written)
    assert peaks[0] < 8 * policy.page_bytes and peaks[1] > 16 * policy.page_bytes
