"""Freed memory goes back to the system after `keep_little`; that of batches stays after `keep_for_batches`."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from stream_learner.adapters import machine

PROGRAM = """
import threading
import numpy as np
from pathlib import Path
from stream_learner.adapters import machine as allocator

def resident_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

def work(kept):
    for _ in range(20):
        arrays = [np.ones(60_000) for _ in range(40)]
        kept.append(bytes(1000))
        kept.append(np.ones(100))

told = allocator.keep_little() if KEEP else None
np.ones(2_000_000)
before, kept = resident_kib(), []
threads = [threading.Thread(target=work, args=(kept,)) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(told, (resident_kib() - before) // 1024)
"""


def grown_mib(*, keep: bool) -> tuple[str, int]:
    """The result of `keep_little`, and how much a process has grown whose threads have freed almost everything."""
    program = PROGRAM.replace("KEEP", str(keep))
    said, grown = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    return said, int(grown)


def test_what_threads_have_freed_goes_back() -> None:
    """Six threads take and free 18 MiB again and again. With `keep_little` little of it stays, without it much more."""
    said, grown = grown_mib(keep=True)
    if platform.libc_ver()[0] != "glibc":
        assert said == "False"
        return
    assert said == "True" and grown < 8
    assert grown_mib(keep=False)[1] > 2 * max(grown, 4)


BATCHES = """
import resource
import numpy as np
from stream_learner.adapters import machine as allocator

told = allocator.keep_for_batches() if KEEP else None
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for round in range(60):
    if round == 10:
        before = faults()
    arrays = [np.ones(1 << 17) for _ in range(12)]
    del arrays
print(told, faults() - before)
"""


def faults(*, keep: bool) -> tuple[str, int]:
    """The result of `keep_for_batches`, and how many pages a process takes that holds 12 MiB again and again."""
    program = BATCHES.replace("KEEP", str(keep))
    answer = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    said, count = answer.split()
    return said, int(count)


def test_the_memory_of_batches_stays() -> None:
    """50 times 12 arrays of a MiB: without `keep_for_batches` their pages, 3,072, are taken anew each time."""
    said, kept = faults(keep=True)
    if platform.libc_ver()[0] != "glibc":
        assert said == "False"
        return
    assert said == "True" and kept < 3_072
    assert faults(keep=False)[1] > 20 * 3_072


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no `mallopt`, nothing happens."""
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: object())
    assert machine.keep_little() is False and machine.keep_for_batches() is False
