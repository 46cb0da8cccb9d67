"""Checkpoints on a real RocksDB: what comes back is the last head that was committed, whatever happened since."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_learner.adapters.rocksdb.database import explain
from stream_learner.adapters.rocksdb.store import CheckpointStore, CheckpointWriter, Loaded
from stream_learner.core.snapshots.pages import PagePolicy, Prefix
from stream_learner.core.snapshots.records import PageRecord, decode
from stream_learner.core.snapshots.rows import StateRows, rows_between
from stream_learner.errors import DiskFull, NewerFormat, StateDamaged, StateInUse, StateOfAnotherModel, StateUnusable

IDENTITY = {"model": "ctr", "optimizer": "ftrl"}
SMALL = PagePolicy(page_bytes=640, part_bytes=480, ring=8, delta_share=0.7, lean=True)
Row = tuple[int, tuple[float, float]]
State = dict[int, Row]


def open_store(path: Path, **changes: Any) -> CheckpointStore:
    identity = {**IDENTITY, **changes.pop("identity", {})}
    return CheckpointStore.open(path, identity, **{"shards": 2, "ncols": 2, "policy": SMALL, **changes})


def rows_of(state: State, keys: list[int]) -> StateRows:
    ordered = sorted(keys)
    return StateRows(
        np.array(ordered, np.uint64),
        np.array([state[key][1] for key in ordered], np.float64).reshape(len(ordered), 2),
        np.array([state[key][0] for key in ordered], np.int64),
    )


def change(rng: random.Random, state: State, tick: int) -> list[int]:
    """Change some rows, now and then to zero, as a fold would; gives their keys."""
    keys = {rng.randrange(1, 200) * 0x0123456789ABCDEF % 2**64 for _ in range(rng.randrange(0, 60))}
    for key in keys:
        zero = rng.random() < 0.1
        state[key] = (tick, (0.0, 0.0) if zero else (rng.random(), rng.random() - 0.5))
    return list(keys)


def begin(store: CheckpointStore, state: State, changed: list[int], tick: int) -> CheckpointWriter:
    whole = rows_of(state, list(state))
    return store.begin(
        rows_of(state, changed),
        lambda prefix: rows_between(whole, prefix.bits, prefix.last),
        version=tick,
        digest=tick * 7,
        head={"tick": tick, "positions": [tick, 2**63], "loss": 0.1 * tick},
    )


def loaded_state(loaded: Loaded) -> State:
    """The rows as a table would take them: keys rise within a block, and the last row of a key counts."""
    state: State = {}
    for rows in loaded.rows:
        assert (np.diff(rows.keys.astype(object)) > 0).all()
        for key, columns, touched in zip(rows.keys, rows.columns, rows.touched, strict=True):
            state[int(key)] = (int(touched), (float(columns[0]), float(columns[1])))
    return state


def nonzero(state: State) -> State:
    return {key: row for key, row in state.items() if any(row[1])}


def check(store: CheckpointStore, truth: State, tick: int) -> None:
    """The store holds exactly the checkpoint of this tick."""
    loaded = store.load()
    if tick == 0:
        assert loaded is None
        return
    assert loaded is not None
    assert (loaded.version, loaded.digest) == (tick, tick * 7)
    assert loaded.head == {"tick": tick, "positions": [tick, 2**63], "loss": 0.1 * tick}
    assert nonzero(loaded_state(loaded)) == nonzero(truth)


@pytest.mark.parametrize("seed", range(6))
def test_a_checkpoint_given_up_at_any_step_never_was(tmp_path: Path, seed: int) -> None:
    """Writers dropped after any number of steps, closes and reopens: what loads is the last commit, exactly."""
    rng = random.Random(seed)
    state: State = {}
    committed: State = {}
    committed_tick, pending = 0, set[int]()
    store = open_store(tmp_path)
    for tick in range(1, 60):
        pending |= set(change(rng, state, tick))
        writer = begin(store, state, list(pending), tick)
        for _ in range(rng.randrange(0, 3)):
            writer.step()
        if rng.random() < 0.6:
            writer.commit()
            committed, committed_tick = dict(state), tick
            pending.clear()
        if rng.random() < 0.25:
            store.close()
            store = open_store(tmp_path)
            check(store, committed, committed_tick)
            state = dict(committed)
            pending.clear()
    store.close()


def test_what_is_superseded_is_deleted(tmp_path: Path) -> None:
    """The pieces on disk stay within a small multiple of the state, however many checkpoints there were."""
    rng = random.Random(5)
    state: State = {}
    with open_store(tmp_path) as store:
        for tick in range(1, 80):
            begin(store, state, change(rng, state, tick), tick).commit()
        pieces = [value for family in store.parts.families for key, value in family.items() if key[:1] == b"p"]
        assert sum(len(value) - 64 for value in pieces) < 4 * 32 * len(state)


def test_another_ring_or_page_size_reads_the_same_state(tmp_path: Path) -> None:
    """The policy may change between runs: everything is found, and goes on."""
    rng = random.Random(6)
    state: State = {}
    for number, ring in enumerate([8, 16, 4, 8]):
        policy = PagePolicy(page_bytes=320 * (1 + number), part_bytes=480, ring=ring, lean=number % 2 == 0)
        with open_store(tmp_path, policy=policy) as store:
            check(store, state, 20 * number)
            for tick in range(20 * number + 1, 20 * number + 21):
                begin(store, state, change(rng, state, tick), tick).commit()
    with open_store(tmp_path) as store:
        check(store, state, 80)


def test_a_larger_ring_is_taken_over_without_writing_all_pages(tmp_path: Path) -> None:
    """A model that is larger than memory has a larger ring: the next checkpoint writes few pages, and a run that asks
    for the smaller ring again keeps the larger one."""
    rng = random.Random(8)
    state: State = {}
    for number, ring in enumerate([8, 64, 8]):
        policy = PagePolicy(page_bytes=320, part_bytes=480, ring=ring, delta_share=0.1, lean=True)
        with open_store(tmp_path, policy=policy) as store:
            check(store, state, 20 * number)
            for tick in range(20 * number + 1, 20 * number + 21):
                before = pages_on_disk(store)
                begin(store, state, change(rng, state, tick), tick).commit()
                written = pages_on_disk(store) - before
                assert number == 0 or len(written) < len(before) / 2
    with open_store(tmp_path) as store:
        check(store, state, 60)


def pages_on_disk(store: CheckpointStore) -> set[tuple[int, bytes]]:
    """Shard and key of every page."""
    return {
        (shard, key)
        for shard, family in enumerate(store.parts.families)
        for key, value in family.items()
        if key[:1] == b"p" and isinstance(decode(None, value), PageRecord)
    }


CHILD = """
import random, sys
from pathlib import Path
from tests.adapters.rocksdb.test_store import begin, change, open_store
rng, state = random.Random(int(sys.argv[2])), {}
store = open_store(Path(sys.argv[1]))
for tick in range(1, 10_000):
    writer = begin(store, state, change(rng, state, tick), tick)
    while writer.step():
        print("step", flush=True)
    writer.commit()
    print(tick, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_leaves_the_last_checkpoint(tmp_path: Path, seed: int) -> None:
    """A process killed while it writes: the state is that of its last commit (or the one it was about to report)."""
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(seed)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert child.stdout is not None
    reported = 0
    for _ in range(150 + 7 * seed):
        line = child.stdout.readline().strip()
        reported = reported if line == "step" else int(line)
    os.kill(child.pid, signal.SIGKILL)
    rest = [line for line in child.stdout.read().split() if line.isdigit()]
    child.wait()
    reported = max([reported, *map(int, rest)])
    with open_store(tmp_path) as store:
        loaded = store.load()
        assert loaded is not None and loaded.version in (reported, reported + 1)
        rng, state = random.Random(seed), {}
        for tick in range(1, loaded.version + 1):
            change(rng, state, tick)
        check(store, state, loaded.version)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """A second store on the directory, in this process or another, raises StateInUse and says where."""
    with open_store(tmp_path):
        with pytest.raises(StateInUse, match=str(tmp_path)):
            open_store(tmp_path)
        code = (
            "from pathlib import Path; from stream_learner.errors import StateInUse\n"
            "from tests.adapters.rocksdb.test_store import open_store\n"
            f"try: open_store(Path({str(tmp_path)!r}))\nexcept StateInUse: print('in use')"
        )
        root = Path(__file__).parents[3]
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
        assert done.stdout.strip() == "in use"
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    "other",
    [{"identity": {"model": "other"}}, {"shards": 4}, {"shards": 1}, {"ncols": 3}, {"identity": {"topic": "t"}}],
)
def test_the_state_of_another_model_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    """A different model, optimizer, number of shards or columns raises StateOfAnotherModel, naming what differs."""
    state: State = {}
    with open_store(tmp_path) as store:
        begin(store, state, change(random.Random(1), state, 1), 1).commit()
    name = next(iter(other.get("identity", other)))
    with pytest.raises(StateOfAnotherModel, match=name):
        open_store(tmp_path, **other)
    with open_store(tmp_path) as store:
        check(store, state, 1)


def test_what_may_rise_may_be_smaller_in_a_state_and_not_larger(tmp_path: Path) -> None:
    """The stored identity stays as it was, since it is that of the copies too."""
    rising = frozenset({"partitions"})
    with open_store(tmp_path, identity={"partitions": 2}):
        pass
    with pytest.raises(StateOfAnotherModel, match="partitions: there 2, here 4"):
        open_store(tmp_path, identity={"partitions": 4})
    for partitions in (4, 3):
        with open_store(tmp_path, identity={"partitions": partitions}, rising=rising) as store:
            assert store.parts.identity["partitions"] == 2
    with pytest.raises(StateOfAnotherModel, match="partitions: there 2, here 1"):
        open_store(tmp_path, identity={"partitions": 1}, rising=rising)


def test_damage_is_found(tmp_path: Path) -> None:
    """A changed piece, a missing piece, a head of a newer format: each is said, none is loaded."""
    state: State = {}
    rng = random.Random(1)
    with open_store(tmp_path) as store:
        begin(store, state, change(rng, state, 1) + change(rng, state, 1), 1).commit()
        family = store.parts.families[0]
        key, value = next((k, v) for k, v in family.items() if k[:1] == b"p" and len(v) > 100)
        family[key] = value[:-1] + bytes([value[-1] ^ 1])
        with pytest.raises(StateDamaged, match="checksum"):
            loaded_state(store.load())  # type: ignore[arg-type]
        del family[key]
        with pytest.raises(StateDamaged, match="missing"):
            loaded_state(store.load())  # type: ignore[arg-type]
        head = store.parts.db[b"head"]
        store.parts.db[b"head"] = head[:4] + b"\x09" + head[5:]
        del family
    with pytest.raises(NewerFormat):
        open_store(tmp_path)


def test_a_head_that_json_cannot_keep_is_refused(tmp_path: Path) -> None:
    """A head with NaN raises ValueError, since JSON would give back null."""
    with open_store(tmp_path) as store, pytest.raises(ValueError):
        none = rows_of({}, [])
        store.begin(none, lambda prefix: none, version=1, digest=1, head={"loss": float("nan")})


def test_a_full_disk_is_said_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    """A write that the system refuses for lack of room raises DiskFull; the checkpoint before is whole."""
    code = """
import random, resource, signal, sys
from pathlib import Path
from stream_learner.errors import DiskFull
from tests.adapters.rocksdb.test_store import begin, change, open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rng, state = random.Random(1), {}
store = open_store(Path(sys.argv[1]))
begin(store, state, change(rng, state, 1), 1).commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for tick in range(2, 1_000):
        writer = begin(store, state, change(rng, state, tick), tick)
        writer.commit()
        print(tick)
except DiskFull as error:
    print("full")
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=root, check=True
    )
    *ticks, last = done.stdout.split()
    assert last == "full", done.stdout + done.stderr
    with open_store(tmp_path) as store:
        loaded = store.load()
        assert loaded is not None and loaded.version == int(ticks[-1])


def test_rows_of_a_prefix_are_asked_for_once_a_page(tmp_path: Path) -> None:
    """A steady state writes the changes and a few pages, never the whole model."""
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(1, 2**64, 20_000, dtype=np.uint64))
    whole = StateRows(keys, rng.random((len(keys), 2)), np.zeros(len(keys), np.int64))
    asked: list[int] = []

    def below(prefix: Prefix) -> StateRows:
        rows = rows_between(whole, prefix.bits, prefix.last)
        asked.append(len(rows))
        return rows

    policy = PagePolicy(page_bytes=8_192, ring=64, delta_share=1.0, lean=True)
    with open_store(tmp_path, policy=policy) as store:
        store.begin(whole, below, version=1, digest=1, head={}).commit()
        for tick in range(2, 20):
            asked.clear()
            store.begin(whole.part(0, 500), below, version=tick, digest=1, head={}).commit()
            assert sum(asked) < 2_500


def test_disk_full_is_told_from_other_errors() -> None:
    """RocksDB's text for a full disk becomes DiskFull."""
    text = "IO error: No space left on device: While appending to file: 000008.log"
    assert isinstance(explain(Path("s"), text), DiskFull)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Such as one inside of a file."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StateUnusable, match=re.escape(f"the state directory {path} cannot be used")):
            open_store(path)
