"""How much room a disk has."""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes_of(path: Path) -> int:
    """How many bytes this user may still write on the disk of a directory. Raises OSError where it is gone."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
