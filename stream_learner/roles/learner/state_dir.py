"""Watches the disk of a state directory for room, and moves a damaged database out of the way.

RocksDB goes on by itself some seconds after there is room again, but for nothing else that a disk refuses: a quota or a
limit of file sizes ends the learner, which then begins anew with its last checkpoint.

A damaged database is never deleted: a person may want to look at it. Its files are moved into a directory
`damaged-<time>` in the state directory.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stream_learner.adapters.machine import free_bytes_of
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.errors import BrokenInvariant, DiskFull, StateDamaged
from stream_learner.wording import count_of

LOOK_S = 1.0
AGAIN_S = 3.0
"""How long after a refusal the next attempt is made."""
NO_SPACE = "No space left on device"
MIB = 1 << 20


class DiskRoom:
    """The room of one state directory. Used by the learner's thread; `reason` may be asked from any."""

    def __init__(
        self,
        path: Path,
        floor_bytes: int,
        log: Logger,
        *,
        free_bytes: Callable[[Path], int] = free_bytes_of,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """floor_bytes: with less than this free, nothing is written."""
        self.reason = ""
        """The reason why nothing is written, "" while there is room."""
        self._path, self._floor_bytes, self._log = path, floor_bytes, log
        self._free_bytes, self._clock_s = free_bytes, clock_s
        self._look_at_s = self._again_at_s = -1e9
        self._refused = False

    def may_write(self) -> bool:
        """Whether to write now; looks at the disk about once a second."""
        now_s = self._clock_s()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            free_bytes = self._free_bytes(self._path)
            if free_bytes < self._floor_bytes:
                free = f"{_size(free_bytes)} free, learner.min_free is {_size(self._floor_bytes)}"
                self._lacks(f"no room in the state directory {self._path}: {free}")
                self._again_at_s = now_s + LOOK_S
            elif not self._refused:
                self.wrote()
        return now_s >= self._again_at_s

    def refused(self, error: DiskFull) -> None:
        """Note that RocksDB found no room. Raises the error where RocksDB would not go on by itself."""
        if NO_SPACE not in error.message:
            raise error
        self._refused = True
        self._again_at_s = self._clock_s() + AGAIN_S
        self._lacks(error.message)

    def wrote(self) -> None:
        """Note that there is room. After a refusal only a checkpoint that was written shows that."""
        self._refused = False
        if self.reason:
            self._log.info("disk_has_room")
            self.reason = ""

    def _lacks(self, reason: str) -> None:
        if not self.reason:
            action = "Make room; the learner goes on by itself. What is on disk is whole."
            self._log.error("disk_full", reason=reason, action=action)
        self.reason = reason


KEPT = 3
"""So many damaged states are kept at most: a failing disk must not be filled with them."""
_DATA = ("*.sst", "*.log", "*.dbtmp", "*.blob")
FOUND = "found-damaged"
_ABOUT = (FOUND, "MANIFEST-*", "OPTIONS-*", "CURRENT", "IDENTITY", "LOG", "LOG.old.*", "rocksdict-config.json")


@contextmanager
def noting_damage(path: Path) -> Iterator[None]:
    """Leave a note in a state directory that is found damaged while it is in use.

    The last checkpoint may still load; without the note, the next start would load it and fail at the same place.
    """
    try:
        yield
    except StateDamaged as error:
        with suppress(OSError):
            (path / FOUND).write_text(f"{error}\n", encoding="utf-8")
        raise


def damage_seen(path: Path) -> str:
    """The known damage of a state directory that is not open, "" if none is known."""
    note = path / FOUND
    if note.exists():
        return note.read_text(encoding="utf-8", errors="replace").strip() or f"{path} was found damaged"
    # RocksDB would begin a new database here, and delete what is left of the one before.
    remains = any(path.glob("*.sst")) or any(path.glob("MANIFEST-*"))
    if remains and not (path / "CURRENT").exists():
        return f"{path} holds parts of a database, but CURRENT is missing"
    return ""


def quarantine_state(path: Path) -> Path:
    """Move the files of a damaged database out of the way; returns the directory that they are in now.

    Nobody may have the state directory open. Raises StateDamaged where too many damaged states are there already.
    """
    before = sorted(path.glob("damaged-*"))
    if len(before) >= KEPT:
        raise StateDamaged(
            f"{path} is damaged again, and holds {count_of(len(before), 'damaged state')}, set aside before",
            action=f"Check the disk. Then remove {path}/damaged-* and start again.",
        )
    if is_open_here(path):
        raise BrokenInvariant(f"the state directory {path} was to be moved aside while it was open")
    aside = _new_directory(path)
    for entry in (*database_files(path), path / "LOCK"):
        if entry.is_file():
            entry.rename(aside / entry.name)
    return aside


def database_files(path: Path) -> list[Path]:
    """The files of the database in a state directory, and the note of its damage, without the lock."""
    return [
        entry
        for entry in sorted(path.iterdir())
        if entry.is_file() and any(fnmatch.fnmatch(entry.name, pattern) for pattern in (*_DATA, *_ABOUT))
    ]


def is_open_here(path: Path) -> bool:
    """Whether this process has a file of the directory open: RocksDB would go on writing to it.

    False on a system without `/proc`.
    """
    prefix = f"{path.resolve()}{os.sep}"
    for entry in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            if str(entry.readlink()).startswith(prefix):
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


def _size(size_bytes: int) -> str:
    """A size as a person reads it: in MiB, a small one in KiB."""
    return f"{size_bytes / MIB:.0f} MiB" if size_bytes >= 10 * MIB else f"{size_bytes / 1024:.0f} KiB"
