"""A disk that fills up under a learner: a small file system where this machine lets one be mounted, else a store that
refuses as a full disk does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stream_learner.adapters.rocksdb.store import CheckpointWriter
from stream_learner.errors import DiskFull
from tests.e2e.checks import assert_model_equals, expected_fold
from tests.e2e.site import running, wait_until
from tests.faults.conftest import MakeSite
from tests.scenarios import scenario

DISK = "24m"


class SmallDisk:
    """A file system of its own. `fill` leaves but the rest of each file's last page of 4 KiB, which is less than
    the test writes after it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        found = os.statvfs(self.folder)
        # The learner may take some of what is left meanwhile; then the disk is full before all is written.
        with self._filler.open("wb", buffering=0) as filler, suppress(OSError):
            filler.write(bytes(found.f_bavail * found.f_frsize))

    def make_room(self) -> None:
        self._filler.unlink()


class RefusingStore:
    """An ordinary disk, and a store that says that it is full."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._full = False
        step = CheckpointWriter.step

        def refusing(writer: CheckpointWriter) -> bool:
            if self._full:
                raise DiskFull("no room left in the state directory (IO error: No space left on device)")
            return step(writer)

        monkeypatch.setattr(CheckpointWriter, "step", refusing)

    def fill(self) -> None:
        self._full = True

    def make_room(self) -> None:
        self._full = False


Disk = SmallDisk | RefusingStore


def _mounted(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture(params=["a small disk", pytest.param("a store that refuses", marks=pytest.mark.thorough)])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk that can be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "a small disk" and _mounted(folder):
        yield SmallDisk(folder)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    else:
        yield RefusingStore(folder, monkeypatch)


@pytest.mark.parametrize("floor", ["0", "1MiB"])
def test_a_learner_folds_no_further_on_a_full_disk_and_goes_on_when_there_is_room(
    floor: str, disk: Disk, make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a floor it stops before the disk refuses anything; without one RocksDB is refused, and recovers. It is not
    ready, and says why once; a learner that is started on the directory afterwards has the oracle's model.
    """
    site = make_site(
        scenario("plain", 1), learner={"state_dir": str(disk.folder / "state"), "min_free": floor, "copies": False}
    )
    learner = site.learner()
    with running(site.joiner()), running(learner):
        site.produce(0, 0.3)
        wait_until(lambda: learner.tick >= 0 and not learner.why_not_ready, "the learner folds")
        disk.fill()
        site.produce(0.3, 0.7)
        wait_until(lambda: "no room" in learner.why_not_ready, "the learner says that the disk is full")
        folded = learner.tick
        site.produce(0.7, 1)
        wait_until(site.closed, "joiners are not held up")
        assert learner.tick == folded < site.end_tick
        disk.make_room()
        wait_until(lambda: site.folded(learner), "the learner folds on")
        wait_until(lambda: not learner.why_not_ready, "the learner is ready")
    expected = expected_fold(site.scenario.expected(), site.scenario.settings)
    assert_model_equals(learner.learner, expected)
    again = site.learner()
    with running(again):
        wait_until(lambda: site.folded(again), "every tick folded")
    assert_model_equals(again.learner, expected)
