"""The memory of this process: its limit, and how much freed memory the C library keeps; and the room of a disk.

GNU's allocator gives every thread an arena of its own, and each arena keeps what was freed in it. An array from some
size on gets a mapping of its own, which is given back when the array is freed; but each time that happens the allocator
raises that size, and what it gives back at the end of an arena. So a process gives the memory of batches back and takes
it anew, which costs a joiner a twelfth of its time, or keeps more than it uses, as the sizes of its first batches would
have it. `keep_for_batches` and `keep_little` decide it. Where the C library is not GNU's, they change nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Options of GNU's `mallopt`, by their numbers."""
LARGE_BYTES: Final = 128 * 1024
"""Arrays from this size on are given back as soon as they are freed. The allocator never raises a size that is set."""
ARENAS: Final = 1
LARGEST_BATCH_BYTES: Final = 32 << 20
"""Only arrays from this size on, the largest that may be set, have mappings of their own in a process of batches."""
KEPT_BYTES: Final = 16 << 20
"""What an arena of such a process keeps free at its end."""


def keep_little() -> bool:
    """Keep little of what is freed from now on, so that the resident memory follows what the process uses.

    Returns False if the C library has no such option.
    """
    return _set((_ARENA_MAX, ARENAS), (_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, LARGE_BYTES))


def keep_for_batches() -> bool:
    """Keep what batches need of what is freed from now on. Returns False if the C library has no such option."""
    return _set((_MMAP_THRESHOLD, LARGEST_BATCH_BYTES), (_TRIM_THRESHOLD, KEPT_BYTES))


def _set(*options: tuple[int, int]) -> bool:
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(set_option(option, value) == 1 for option, value in options)


def give_back() -> None:
    """Give free memory back to the system, also what lies between memory in use. Takes milliseconds."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


_V2, _V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The smallest limit of the control groups (version 1 or 2) that the process is in; None without a limit.

    root: the directory that holds `proc` and `sys`.
    """
    return min(_limits(root), default=None)


def available_bytes(root: Path = Path("/")) -> int:
    """The smaller of `memory_limit_bytes` and the memory of the machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, memory_limit_bytes(root) or machine)


def _limits(root: Path) -> Iterator[int]:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top, name = root / _V2, "memory.max"
            elif "memory" in controllers.split(","):
                top, name = root / _V1, "memory.limit_in_bytes"
            else:
                continue
            for limit in _read(top, path, name):
                # Version 1 says "no limit" with a number that no machine has.
                if limit < 1 << 60 and limit <= machine:
                    yield limit


def _read(top: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of all groups above it.

    In a container the path may be that of the host; the container's own group is then the one at the top.
    """
    group = top / path.strip("/")
    for directory in (group, *group.parents):
        with suppress(OSError, ValueError):
            yield int((directory / name).read_text(encoding="ascii"))
        if directory == top:
            return


def free_bytes_of(path: Path) -> int:
    """How many bytes this user may still write on the disk of a directory. Raises OSError where it is gone."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
