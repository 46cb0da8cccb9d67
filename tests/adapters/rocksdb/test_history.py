"""Kept checkpoints on a real RocksDB: each stays as it was, and one that is half made or half deleted never counts."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_learner.adapters.rocksdb import history
from stream_learner.adapters.rocksdb.copy import Lineage, note_lineage, read_lineage
from stream_learner.adapters.rocksdb.history import amend_head, copy_out, drop, keep, kept_in, size_of
from stream_learner.adapters.rocksdb.store import CheckpointStore
from tests.adapters.rocksdb.test_store import State, begin, change, open_store


def stored(path: Path) -> tuple[int, dict[str, Any], State]:
    """The checkpoint in a directory: its tick, its head, its rows."""
    with open_store(path) as store:
        return loaded(store)


def loaded(store: CheckpointStore) -> tuple[int, dict[str, Any], State]:
    found = store.load()
    assert found is not None
    rows: State = {}
    for block in found.rows:
        columns = map(tuple, block.columns.tolist())
        rows.update(zip(block.keys.tolist(), zip(block.touched.tolist(), columns, strict=True), strict=True))
    return found.version, found.head, rows


def write(store: CheckpointStore, state: State, rng: random.Random, tick: int) -> None:
    begin(store, state, change(rng, state, tick), tick).commit()


def test_what_is_kept_stays_as_it_was_while_the_state_goes_on(tmp_path: Path) -> None:
    """Rows, head and tick of every kept one, after many more checkpoints; copied out and changed, it is still so."""
    rng, state, expected = random.Random(4), dict[int, Any](), {}
    with open_store(tmp_path / "state") as store:
        for tick in range(1, 60):
            write(store, state, rng, tick)
            if tick % 13 == 0:
                keep(store, tick, {"digest": f"{tick:x}"})
                expected[tick] = loaded(store)
    kept = kept_in(tmp_path / "state")
    assert [(one.tick, one.note["digest"]) for one in kept] == [(tick, f"{tick:x}") for tick in sorted(expected)]
    for one in kept:
        copy_out(one, tmp_path / f"out-{one.tick}")
        assert stored(tmp_path / f"out-{one.tick}") == expected[one.tick]
        with open_store(tmp_path / f"out-{one.tick}") as store:
            there = loaded(store)[2]
            write(store, there, rng, one.tick + 1)
    for one in kept:
        copy_out(one, tmp_path / f"again-{one.tick}")
        assert stored(tmp_path / f"again-{one.tick}") == expected[one.tick]
    assert stored(tmp_path / "state")[0] == 59


def test_a_kept_one_outlives_the_state(tmp_path: Path) -> None:
    """Its files are its own."""
    rng, state = random.Random(5), dict[int, Any]()
    with open_store(tmp_path / "state") as store:
        write(store, state, rng, 1)
        keep(store, 1, {})
        expected = loaded(store)
    for file in (tmp_path / "state").glob("*.*"):
        file.unlink()
    copy_out(kept_in(tmp_path / "state")[0], tmp_path / "out")
    assert stored(tmp_path / "out") == expected


class Crash(Exception):
    """The process ends here."""


def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Let the step with this number raise `Crash` in place of taking place. Returns how many steps there were."""
    steps = [0]

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            steps[0] += 1
            if steps[0] >= at:
                raise Crash
            return function(*arguments, **named)

        return call

    for where, name in (
        (Path, "rename"),
        (Path, "unlink"),
        (shutil, "rmtree"),
        (history, "sync_directory"),
        (history, "_write_durably"),
        (history, "Checkpoint"),
    ):
        monkeypatch.setattr(where, name, stepping(getattr(where, name)))
    return lambda: steps[0]


@pytest.mark.parametrize("step", range(1, 6))
def test_a_crash_while_one_is_made_leaves_it_whole_or_not_at_all(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every step: those before are there, this one is whole if it is listed, and the next one can be made."""
    rng, state = random.Random(6), dict[int, Any]()
    with open_store(tmp_path) as store:
        write(store, state, rng, 1)
        keep(store, 1, {})
        write(store, state, rng, 2)
        expected = loaded(store)
        with monkeypatch.context() as patch:
            count = crashing(patch, step)
            with pytest.raises(Crash):
                keep(store, 2, {})
            assert count() == step
        listed = kept_in(tmp_path, clean=True)
        assert [one.tick for one in listed][:1] == [1]
        if len(listed) > 1:
            copy_out(listed[1], tmp_path / "out")
            assert stored(tmp_path / "out") == expected
            drop(listed[1])
        keep(store, 2, {})
        assert [one.tick for one in kept_in(tmp_path)] == [1, 2]
        assert sorted(entry.name for entry in (tmp_path / "history").iterdir()) == [f"{1:020d}", f"{2:020d}"]


@pytest.mark.parametrize("step", range(1, 4))
def test_a_crash_while_one_is_deleted_leaves_none_that_counts_in_part(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is whole, or gone from the list; what is left of it goes with the next cleaning."""
    rng, state = random.Random(7), dict[int, Any]()
    with open_store(tmp_path) as store:
        write(store, state, rng, 1)
        kept = keep(store, 1, {})
        expected = loaded(store)
        with monkeypatch.context() as patch:
            crashing(patch, step)
            with pytest.raises(Crash):
                drop(kept)
    listed = kept_in(tmp_path, clean=True)
    assert len(listed) == (step == 1)
    for one in listed:
        copy_out(one, tmp_path / "out")
        assert stored(tmp_path / "out") == expected
    assert len(list((tmp_path / "history").iterdir())) == len(listed)


def test_what_is_no_kept_checkpoint_is_not_listed(tmp_path: Path) -> None:
    """Other names, and a note that cannot be read; without `clean` nothing is deleted."""
    folder = tmp_path / "history"
    for name in ("making", "gone-00000000000000000001", "7", f"{7:020d}", f"{8:020d}"):
        (folder / name).mkdir(parents=True)
    (folder / f"{8:020d}" / "kept.json").write_text("[1]")
    assert kept_in(tmp_path) == []
    assert len(list(folder.iterdir())) == 5
    assert kept_in(tmp_path, clean=True) == []
    assert list(folder.iterdir()) == []
    assert kept_in(tmp_path / "nowhere") == []


def test_a_size_is_told_while_files_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB deletes its files whenever it likes: what is gone has no size."""
    for name, size in (("one", 10), ("two", 300)):
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "folder").mkdir()
    assert size_of(tmp_path) == 310
    found = list(os.scandir(tmp_path))
    (tmp_path / "two").unlink()
    monkeypatch.setattr(os, "scandir", lambda path: found)
    assert size_of(tmp_path) == 10
    monkeypatch.undo()
    assert size_of(tmp_path / "nowhere") == 0


def test_the_head_can_be_amended_and_the_lineage_begins_anew(tmp_path: Path) -> None:
    """All else in the head stays; the rows too."""
    rng, state = random.Random(8), dict[int, Any]()
    with open_store(tmp_path) as store:
        write(store, state, rng, 1)
        tick, head, rows = loaded(store)
        note_lineage(store, Lineage("0123456789abcdef", (5,)))
        amend_head(store, {"rewinds": [[1, 9]]})
    with open_store(tmp_path) as store:
        assert loaded(store) == (tick, {**head, "rewinds": [[1, 9]]}, rows)
        assert read_lineage(store) is None
