"""Whether the disk of a state directory has room for the next checkpoint.

In: the directory, how much must stay free, what RocksDB has refused. Out: whether to write now, and why not.
This file must never write, and never take back that there is no room before there is.

RocksDB goes on by itself some seconds after there is room again, but for nothing else that a disk refuses: a quota or a
limit of file sizes ends the learner, which then begins anew with its last checkpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from stream_learner.edges.telemetry import Logger
from stream_learner.errors import DiskFull

LOOK_S = 1.0
AGAIN_S = 3.0
"""How long after a refusal the next attempt is made."""
NO_SPACE = "No space left on device"
MIB = 1 << 20


def free_bytes_of(path: Path) -> int:
    """Bytes that this user may still write on the disk of a directory."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


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
        """floor_bytes: with less than this, nothing is written."""
        self.reason = ""
        """Why nothing is folded, "" while there is room."""
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
                free = f"{free_bytes / MIB:.0f} MiB free, learner.min_free is {self._floor_bytes / MIB:.0f} MiB"
                self._lacks(f"no room in the state directory {self._path}: {free}")
                self._again_at_s = now_s + LOOK_S
            elif not self._refused:
                self.wrote()
        return now_s >= self._again_at_s

    def refused(self, error: DiskFull) -> None:
        """RocksDB found no room. Raises the error where it would not go on by itself."""
        if NO_SPACE not in error.message:
            raise error
        self._refused = True
        self._again_at_s = self._clock_s() + AGAIN_S
        self._lacks(error.message)

    def wrote(self) -> None:
        """There is room: a checkpoint has been written, or nothing was refused since there was none."""
        self._refused = False
        if self.reason:
            self._log.info("disk_has_room")
            self.reason = ""

    def _lacks(self, reason: str) -> None:
        if not self.reason:
            action = "Make room; the learner goes on by itself. What is on disk is whole."
            self._log.error("disk_full", reason=reason, action=action)
        self.reason = reason
