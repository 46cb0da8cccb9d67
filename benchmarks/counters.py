"""Instructions, cycles, and misses of caches and branches, as the processor counts them for this process.

Asked of Linux by `perf_event_open`. Only the program is counted, not the system that works for it, since that is what
an ordinary user may ask for. What counts as a cache miss is up to the processor: Intel's count those of the last cache,
AMD's those of the second.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

EVENTS = {"instructions": 1, "cycles": 0, "cache misses": 3, "branch misses": 5}
"""The numbers of the events that every Linux knows by them."""
_CALLS = {"x86_64": 298, "aarch64": 241}
_INHERIT, _NO_KERNEL, _NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_WITH_TIMES = 0b11
_CLOSED_TO_CHILDREN = 8
_LEVEL = Path("/proc/sys/kernel/perf_event_paranoid")


class NotCounted(RuntimeError):
    """This machine does not count, or not for this user; the message says why in a line."""


class _Event(ctypes.Structure):
    """The first version of `perf_event_attr`, which all later kernels understand."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    )


class Counters:
    """Counts of the calling thread from now on, or of it and of all threads that it starts later.

    Raises NotCounted.
    """

    def __init__(self, later_threads: bool = False) -> None:
        self._files: list[int] = []
        try:
            for number in EVENTS.values():
                self._files.append(_opened(number, later_threads))
        except NotCounted:
            self.close()
            raise

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def read(self) -> NDArray[np.float64]:
        """The counts so far, in the order of `EVENTS`, filled up where the processor had to count in turns."""
        return np.array([_count(file) for file in self._files])

    def close(self) -> None:
        """Count no longer."""
        while self._files:
            os.close(self._files.pop())


def _opened(number: int, later_threads: bool) -> int:
    """A file that counts an event."""
    call = _CALLS.get(platform.machine())
    if call is None or platform.system() != "Linux":
        raise NotCounted(f"{platform.system()} on {platform.machine()} is not asked for counts")
    flags = _NO_KERNEL | _NO_HYPERVISOR | (_INHERIT if later_threads else 0)
    event = _Event(size=ctypes.sizeof(_Event), config=number, read_format=_WITH_TIMES, flags=flags)
    file: int = ctypes.CDLL(None, use_errno=True).syscall(call, ctypes.byref(event), 0, -1, -1, _CLOSED_TO_CHILDREN)
    if file < 0:
        name = next(name for name, known in EVENTS.items() if known == number)
        raise NotCounted(
            f"the system refuses to count {name}: {os.strerror(ctypes.get_errno())} ({_LEVEL}: {_level()})"
        )
    return file


def _count(file: int) -> float:
    count, enabled, running = struct.unpack("QQQ", os.read(file, 24))
    return float(count * enabled / running) if running else 0.0


def _level() -> str:
    """How strict the system is with who may count."""
    try:
        return _LEVEL.read_text(encoding="ascii").strip()
    except OSError:
        return "not there"
