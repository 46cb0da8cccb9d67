"""The learner's disk in a schedule: full, empty again, and states that are damaged."""

from __future__ import annotations

import random
from pathlib import Path

from proofs.chaos.disk import CHUNK_BYTES, SIZE_MB, Disk, damage


def takes(path: Path, size: int) -> bool:
    """Whether a file of this size can be written."""
    try:
        path.write_bytes(bytes(size))
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    """Where the disk is bounded; where none may be mounted, filling does nothing to the disk of this machine."""
    disk = Disk(tmp_path / "disk")
    try:
        (disk.path / "state").write_bytes(b"kept")
        disk.fill()
        assert takes(disk.path / "more", 4 * CHUNK_BYTES) is not disk.bounded
        disk.free()
        assert takes(disk.path / "more", 4 * CHUNK_BYTES)
        assert (disk.path / "state").read_bytes() == b"kept"
        assert disk.bounded is not takes(disk.path / "more", (SIZE_MB + 1) * CHUNK_BYTES)
    finally:
        disk.close()
    assert not disk.path.exists()


def test_damage_changes_one_file_by_one_bit_or_cuts_it_short(tmp_path: Path) -> None:
    """Never the lock, nothing where there is nothing."""
    assert damage(tmp_path, random.Random(0)) == ""
    (tmp_path / "LOCK").write_bytes(b"lock")
    assert damage(tmp_path, random.Random(0)) == ""
    original = bytes(range(100))
    cut = flipped = 0
    for seed in range(40):
        file = tmp_path / "000005.sst"
        file.write_bytes(original)
        assert "000005.sst" in damage(tmp_path, random.Random(seed))
        found = file.read_bytes()
        if len(found) < len(original):
            cut += 1
            assert found == original[: len(found)]
        else:
            flipped += 1
            assert sum((a ^ b).bit_count() for a, b in zip(found, original, strict=True)) == 1
    assert cut > 5 and flipped > 5
    assert (tmp_path / "LOCK").read_bytes() == b"lock"
