"""The memory limit of a container, from files as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stream_learner.adapters.machine import available_bytes, memory_limit_bytes

MIB = 1 << 20
MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def system(root: Path, groups: str, **files: str) -> Path:
    """A root directory with what a process sees of its control groups; `__` in a name is a slash."""
    for name, content in {"proc__self__cgroup": groups, **files}.items():
        file = root / name.replace("__", "/").replace("MAX", "memory.max").replace("LIMIT", "memory.limit_in_bytes")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    return root


def test_the_least_limit_of_version_2_counts(tmp_path: Path) -> None:
    """A pod's limit may be lower than its container's; "max" is none."""
    files = {
        "sys__fs__cgroup__pod__MAX": str(300 * MIB),
        "sys__fs__cgroup__pod__a__MAX": str(500 * MIB),
        "sys__fs__cgroup__pod__a__b__MAX": "max",
    }
    assert memory_limit_bytes(system(tmp_path, "0::/pod/a/b", **files)) == 300 * MIB
    assert available_bytes(tmp_path) == 300 * MIB


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    """The path in `/proc/self/cgroup` is that of the host, and does not exist in the container."""
    root = system(tmp_path, "0::/kubepods/pod7/c3", sys__fs__cgroup__MAX=str(256 * MIB))
    assert memory_limit_bytes(root) == 256 * MIB


def test_version_1_is_read_too(tmp_path: Path) -> None:
    """The limit of version 1 is found among lines of other controllers."""
    groups = "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/"
    root = system(tmp_path, groups, sys__fs__cgroup__memory__docker__abc__LIMIT=str(400 * MIB))
    assert memory_limit_bytes(root) == 400 * MIB


@pytest.mark.parametrize("limit", ["max", str(9223372036854771712), "not a number"])
def test_without_a_limit_it_is_the_machines_memory(tmp_path: Path, limit: str) -> None:
    """Version 1 says so with a number that is larger than any memory; an unreadable file is no limit."""
    root = system(tmp_path, "4:memory:/\n0::/", sys__fs__cgroup__memory__LIMIT=limit, sys__fs__cgroup__MAX=limit)
    assert memory_limit_bytes(root) is None
    assert available_bytes(root) == MACHINE_BYTES


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    """A system that is not Linux has none, for example."""
    assert memory_limit_bytes(tmp_path) is None
