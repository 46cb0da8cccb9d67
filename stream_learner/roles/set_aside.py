"""Moves what is damaged in a state directory aside, where a person can look at it.

In: a state directory that nobody has open. Out: the same without the files of its database, which are in a directory
`damaged-<time>` in it. This file must never delete anything, nor touch a file that is not RocksDB's.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stream_learner.errors import BrokenInvariant, StateDamaged
from stream_learner.wording import count_of

KEPT = 3
"""So many at most: a disk that damages one directory after the other must not be filled with them."""
_DATA = ("*.sst", "*.log", "*.dbtmp", "*.blob")
FOUND = "found-damaged"
_ABOUT = (FOUND, "MANIFEST-*", "OPTIONS-*", "CURRENT", "IDENTITY", "LOCK", "LOG", "LOG.old.*", "rocksdict-config.json")


@contextmanager
def noting_damage(path: Path) -> Iterator[None]:
    """Note in a state directory that it has turned out to be damaged while it was in use.

    A checkpoint may still be loaded from it; but the next start would only come to the same place again.
    """
    try:
        yield
    except StateDamaged as error:
        with suppress(OSError):
            (path / FOUND).write_text(f"{error}\n", encoding="utf-8")
        raise


def damage_seen(path: Path) -> str:
    """What is wrong with a state directory before it is opened, "" if nothing is known."""
    note = path / FOUND
    if note.exists():
        return note.read_text(encoding="utf-8", errors="replace").strip() or f"{path} was found damaged"
    # RocksDB would begin a new database here, and delete what is left of the one before.
    remains = any(path.glob("*.sst")) or any(path.glob("MANIFEST-*"))
    if remains and not (path / "CURRENT").exists():
        return f"{path} holds parts of a database, but CURRENT is missing"
    return ""


def set_aside(path: Path) -> Path:
    """Move the database's files; returns the directory they are in now.

    Raises StateDamaged where that was done before too often.
    """
    before = sorted(path.glob("damaged-*"))
    if len(before) >= KEPT:
        raise StateDamaged(
            f"{path} is damaged again, and holds {count_of(len(before), 'damaged state')}, set aside before",
            action=f"Check the disk. Then remove {path}/damaged-* and start again.",
        )
    if _open_here(path):
        raise BrokenInvariant(f"the state directory {path} was to be moved aside while it was open")
    aside = _new_directory(path)
    for entry in sorted(path.iterdir()):
        if entry.is_file() and any(fnmatch.fnmatch(entry.name, pattern) for pattern in (*_DATA, *_ABOUT)):
            entry.rename(aside / entry.name)
    return aside


def _open_here(path: Path) -> bool:
    """Whether this process has a file in the directory open, where the system tells: RocksDB would go on writing."""
    place = f"{path.resolve()}{os.sep}"
    for entry in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            if str(entry.readlink()).startswith(place):
                return True
    return False


def _new_directory(path: Path) -> Path:
    name = time.strftime("damaged-%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(KEPT + 1):
        aside = path / (name if not number else f"{name}-{number}")
        try:
            aside.mkdir()
        except FileExistsError:
            continue
        return aside
    raise StateDamaged(f"no new directory can be made in {path}")
