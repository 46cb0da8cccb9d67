"""Tells whether a file has changed, without reading it."""

from __future__ import annotations

from pathlib import Path

FileStamp = tuple[int, int, int] | None
"""Inode, time of change and size of a file; None if there is no such file."""


def stamp_of(file: str) -> FileStamp:
    """The stamp of a file: equal as long as the file is the same."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
