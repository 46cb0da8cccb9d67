"""The memory of this process: how much it may have, and how much freed memory the C library keeps for itself.

In: what the kernel says of its control groups, version 2 or 1, and of the machine. Out: bytes; a process whose
resident memory follows what it uses.
This file must never change a limit, and never fail: other C libraries than GNU's are left as they are.

GNU's allocator gives every thread an arena of its own, and each keeps what was freed in it. Arrays from some size on
are mappings of their own, given back when they are freed; with every such array that size rises. Both suit a process
that has memory to spare.
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
"""Numbers of GNU's `mallopt`."""
LARGE_BYTES: Final = 128 * 1024
"""Arrays from this size on are given back as soon as they are freed; with a size set, it is never raised."""
ARENAS: Final = 1


def keep_little() -> bool:
    """Keep little of what is freed from now on; false where the C library cannot be told."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    options = ((_ARENA_MAX, ARENAS), (_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, LARGE_BYTES))
    return all(set_option(option, value) == 1 for option, value in options)


def give_back() -> None:
    """Give the system back what lies free between what is in use; milliseconds."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


_V2, _V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The least limit of the control groups that the process is in; None where there is none.

    root: where `proc` and `sys` lie.
    """
    return min(_limits(root), default=None)


def available_bytes(root: Path = Path("/")) -> int:
    """`memory_limit_bytes`, or the memory of the machine where that is less, or there is no limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, memory_limit_bytes(root) or machine)


def _limits(root: Path) -> Iterator[int]:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                place, name = root / _V2, "memory.max"
            elif "memory" in controllers.split(","):
                place, name = root / _V1, "memory.limit_in_bytes"
            else:
                continue
            for limit in _read(place, path, name):
                # Version 1 says "no limit" with a number that no machine has.
                if limit < 1 << 60 and limit <= machine:
                    yield limit


def _read(place: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of all above it; a container whose path is the host's has its own at the top."""
    group = place / path.strip("/")
    for directory in (group, *group.parents):
        with suppress(OSError, ValueError):
            yield int((directory / name).read_text(encoding="ascii"))
        if directory == place:
            return
