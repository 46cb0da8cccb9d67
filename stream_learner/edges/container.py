"""How much memory this process may have.

In: what the kernel says of its control groups, version 2 or 1, and of the machine. Out: bytes.
This file must never change a limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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
