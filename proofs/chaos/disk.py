"""A disk of bounded size for the learner's state, if this machine can mount one, and damage to states.

Nothing else is filled, and no mount is left behind.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from math import inf
from pathlib import Path

SIZE_MB = 96
FILLER = "filler"
CHUNK_BYTES = 1 << 20


class Disk:
    """A small disk at `path`. bounded: whether its size is limited, so that it can be filled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.bounded = _mount(path)
        self._full_until_s = -inf

    def fill(self) -> None:
        """Fill the disk."""
        if not self.bounded:
            return
        self._full_until_s = inf
        with (self.path / FILLER).open("ab", buffering=0) as file:
            size = CHUNK_BYTES
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Free the disk again."""
        (self.path / FILLER).unlink(missing_ok=True)
        self._full_until_s = min(self._full_until_s, time.monotonic())

    def was_full_since(self, since_s: float) -> bool:
        """Whether it has been full at any moment since then, by the monotonic clock."""
        return self._full_until_s >= since_s

    def close(self) -> None:
        """Remove the disk with its content."""
        take_away(self.path)


def take_away(path: Path) -> None:
    """Unmount what is mounted here, and delete the folder."""
    if path.is_mount():
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)
    shutil.rmtree(path, ignore_errors=True)


def _mount(path: Path) -> bool:
    if shutil.which("mount") is None:
        return False
    options = ["-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs"]
    return subprocess.run(["mount", *options, str(path)], check=False, capture_output=True).returncode == 0


def damage(state_dir: Path, rng: random.Random) -> str:
    """Flip a byte in a file of a state directory, or cut a file short. Returns what was done, "" without a file."""
    files = sorted(
        file for file in state_dir.rglob("*") if file.is_file() and file.stat().st_size > 0 and file.name != "LOCK"
    )
    if not files:
        return ""
    file = rng.choice(files)
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data))
    if rng.random() < 0.5:
        file.write_bytes(bytes(data[:at]))
        return f"{file.name} cut to {at} of {len(data)} bytes"
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(data))
    return f"one bit flipped in {file.name}"
