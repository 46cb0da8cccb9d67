"""Whether a file has changed.

In: a path. Out: something that is equal as long as the file is the same. This file must never read a file.
"""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int] | None


def stamp_of(file: str) -> Stamp:
    """Inode, time of change and size; None where there is no such file."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
