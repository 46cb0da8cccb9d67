"""Another database in the place of the state's own: after a crash at any step it is the one or the other, whole."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stream_learner.adapters.rocksdb.history import copy_out, keep, kept_in
from stream_learner.errors import StateInUse
from stream_learner.roles.learner import state_swap
from stream_learner.roles.learner.state_dir import damage_seen
from stream_learner.roles.learner.state_swap import DECIDED, finish_swap, locked, new_database, swap
from tests.adapters.rocksdb.test_history import Crash, State, loaded, stored, write
from tests.adapters.rocksdb.test_store import open_store

Stored = tuple[int, dict[str, Any], State]


def state_with_another(path: Path) -> tuple[Stored, Stored]:
    """A state of tick 20, beside it the database of tick 8 that is to take its place; what both hold."""
    rng, state = random.Random(1), dict[int, Any]()
    with open_store(path) as store:
        for tick in range(1, 21):
            write(store, state, rng, tick)
            if tick == 8:
                keep(store, tick, {})
                then = loaded(store)
        now = loaded(store)
    copy_out(kept_in(path)[0], new_database(path))
    with open_store(path / "rewound-making"):
        pass
    return now, then


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the change of the directory with this number, and all later ones, not take place."""
    done = [0]

    def stepping(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            done[0] += 1
            if done[0] >= step:
                raise Crash
            return function(*arguments, **named)

        return call

    for where, name in ((Path, "rename"), (Path, "unlink"), (shutil, "rmtree"), (state_swap, "sync_directory")):
        monkeypatch.setattr(where, name, stepping(getattr(where, name)))


def test_after_a_swap_the_state_is_the_other_one(tmp_path: Path) -> None:
    """It can be opened and goes on; nothing of the swap is left; the kept checkpoint is still there."""
    _, then = state_with_another(tmp_path)
    swap(tmp_path)
    assert stored(tmp_path) == then
    assert not list(tmp_path.glob("rewound*"))
    assert [one.tick for one in kept_in(tmp_path)] == [8]
    with open_store(tmp_path) as store:
        write(store, then[2], random.Random(2), 9)
    assert stored(tmp_path)[0] == 9


def test_a_crash_at_any_step_leaves_the_one_or_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes of the swap, then of what finishes it, at every step of both; from the decision on it is the other."""
    step, decided_at = 0, 0
    while True:
        step += 1
        path = tmp_path / f"state-{step}"
        now, then = state_with_another(path)
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            try:
                swap(path)
                break
            except Crash:
                pass
        is_decided = not (path / "rewound-making").exists()
        decided_at = decided_at or step * is_decided
        with monkeypatch.context() as patch:
            crash_at(patch, 1 + step % 7)
            with suppress(Crash):
                finish_swap(path)
        finish_swap(path)
        assert not damage_seen(path)
        assert stored(path) == (then if is_decided else now), step
        assert not list(path.glob("rewound*"))
    assert decided_at == 3
    assert step > 15, "files are deleted and moved one by one"
    assert stored(path) == then


def test_nothing_is_done_where_nothing_was_begun(tmp_path: Path) -> None:
    """A directory that does not exist, and one without a swap."""
    finish_swap(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    now, _ = state_with_another(tmp_path / "state")
    shutil.rmtree(tmp_path / "state" / "rewound-making")
    finish_swap(tmp_path / "state")
    assert stored(tmp_path / "state") == now


def test_a_state_in_use_is_not_swapped(tmp_path: Path) -> None:
    """By this process, or by another one, which holds RocksDB's lock; a swap that was decided waits for it too."""
    _, then = state_with_another(tmp_path)
    with open_store(tmp_path), pytest.raises(StateInUse, match="this process"):
        swap(tmp_path)
    program = (
        "import sys; from pathlib import Path; from tests.adapters.rocksdb.test_store import open_store\n"
        "with open_store(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StateInUse, match="another process"):
            swap(tmp_path)
        (tmp_path / "rewound-making").rename(tmp_path / DECIDED)
        with pytest.raises(StateInUse, match="another process"):
            finish_swap(tmp_path)
        other.stdin.close()
    finish_swap(tmp_path)
    assert stored(tmp_path) == then


def test_the_lock_holds_back_who_would_open_the_state(tmp_path: Path) -> None:
    """While a swap is under way, no other process can open it."""
    state_with_another(tmp_path)
    program = (
        "import sys; from pathlib import Path; from tests.adapters.rocksdb.test_store import open_store\n"
        "open_store(Path(sys.argv[1]))"
    )
    with locked(tmp_path):
        found = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert found.returncode == 1
    assert "StateInUse" in found.stderr
