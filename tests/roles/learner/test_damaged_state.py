"""A damaged state directory gives the exact state of some tick or a clear stop, on a real Kafka and a real RocksDB."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream_learner.errors import StateDamaged
from tests.roles.learner.kept_model import Kept, MakeKept, undisturbed
from tests.suite.share import cases
from tests.waiting import wait_until


@pytest.fixture
def damageable(make_kept: MakeKept) -> tuple[Kept, Path]:
    """A model with a copy of tick 8, and its directory as a kill leaves it: checkpoints up to tick 9 in many files."""
    kept = make_kept()
    left = kept.folder / "killed"
    for first in (0, 3, 6):
        with kept.started() as learner:
            for tick in range(first, first + 3):
                learner.fold_to(tick).checkpoint()
            if first == 6:
                learner.copy_writer().copy()
                learner.fold_to(9).checkpoint()
                wait_until(lambda: as_killed(kept.path, left), "no file is deleted while the directory is copied")
    return kept, left


def as_killed(path: Path, left: Path) -> bool:
    """Copy a directory in use; False if RocksDB deleted a file meanwhile."""
    shutil.rmtree(left, ignore_errors=True)
    try:
        shutil.copytree(path, left)
    except shutil.Error:
        return False
    return True


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "truncated": lambda file, rng: os.truncate(file, rng.randrange(file.stat().st_size)),
    "empty": lambda file, rng: os.truncate(file, 0),
    "flipped": lambda file, rng: flip(file, rng, 1),
    "overwritten": lambda file, rng: flip(file, rng, 500),
    "deleted": lambda file, rng: file.unlink(),
}


def flip(file: Path, rng: random.Random, count: int) -> None:
    """Change so many bytes in a row."""
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data))
    for at in range(start, min(start + count, len(data))):
        data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


@pytest.mark.parametrize("damage", cases(DAMAGES, ["flipped", "deleted"]))
def test_a_damaged_directory_gives_the_exact_state_or_a_clear_stop(damage: str, damageable: tuple[Kept, Path]) -> None:
    """Files of every kind are damaged anywhere: the learner has the state of some tick, to the bit, or stops with an
    error, and the damaged files are still there."""
    kept, left = damageable
    digests = undisturbed(kept.config)
    rng = random.Random(damage)
    names = ["CURRENT", *sorted({f"*{file.suffix}" for file in left.glob("0*.*")}), "MANIFEST-*"]
    ticks = []
    for number, name in enumerate(2 * names):
        path = kept.folder / f"{damage}-{number}"
        shutil.copytree(left, path)
        file = rng.choice([file for file in path.glob(name) if file.stat().st_size])
        DAMAGES[damage](file, rng)
        with capture_logs() as logged, kept.started(path) as learner:
            assert learner.digest == digests[learner.tick], (name, learner.tick)
            ticks.append(learner.tick)
            assert learner.fold_to(12).digest == digests[12]
            with suppress(StateDamaged):
                learner.checkpoint()
        with kept.started(path) as learner:
            assert learner.digest == digests[learner.tick], (name, learner.tick)
        if any(event["event"] == "state_damaged" for event in logged):
            assert list(path.glob("damaged-*/*.sst"))
    assert set(ticks) & {8} and set(ticks) <= set(range(10)), "some were restored, none began anew"


def test_a_directory_is_quarantined_a_few_times_only(make_kept: MakeKept) -> None:
    """A disk that damages one directory after the other stops the learner, and is not filled."""
    kept = make_kept()
    with kept.started() as learner:
        learner.fold_to(5).checkpoint().copy_writer().copy()
    for number in range(4):
        (kept.path / "CURRENT").write_bytes(b"")
        if number == 3:
            with pytest.raises(StateDamaged, match="damaged again"), kept.started():
                pass
            break
        with kept.started() as learner:
            assert learner.tick == 5
    assert len(list(kept.path.glob("damaged-*/CURRENT"))) == 3
