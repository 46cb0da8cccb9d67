"""How a test waits: for a condition, and as long as this machine may need until it holds.

A test waits for what it needs, never for a time that is usually enough; and it never asserts how long something took.
How slow the machine is, is measured once, when the tests start; patience grows with it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""How long a condition may take on an idle machine before the test fails: far longer than any does."""
LOOK_S = 0.02
"""How often a condition is asked for at first."""
SLOWER, SLOWEST = 1.1, 4.0
"""After each look so many times more rarely, and at last so many times: brokers and roles are asked, which costs."""
SLOWNESS = "TEST_SLOWNESS"
"""The variable by which a run of the tests hands its measure to the processes that it starts."""

_IDLE_S = 0.12
"""The duration of `_probe` on an idle core of a server of 2020."""
_MOST = 10.0


@cache
def slowness() -> float:
    """How many times slower this machine is than an idle one: from 1 to 10, measured once for a run of the tests."""
    given = os.environ.get(SLOWNESS)
    return float(given) if given else measure()


def measure() -> float:
    """Measure it, by starting a Python that counts: the scheduler, the disk and the processor have a part in that."""
    taken_s = statistics.median(_probe() for _ in range(5))
    return min(max(taken_s / _IDLE_S, 1.0), _MOST)


def _probe() -> float:
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-I", "-c", "for _ in range(1_000_000): pass"], check=True)
    return time.monotonic() - began_s


def patience(seconds: float = PATIENCE_S) -> float:
    """How many seconds to wait on this machine for what may take `seconds` on an idle one."""
    return seconds * slowness()


def wait_until(
    true: Callable[[], object],
    what: str | Callable[[], str] = "what the test waits for",
    *,
    patience_s: float = PATIENCE_S,
    look_s: float = LOOK_S,
) -> None:
    """Ask `true` again and again until it answers with something true, more rarely when that takes long.

    what: what is waited for, for the message; a function is asked only when the patience is over.
    patience_s: how long it may take on an idle machine. An error that `true` raises fails the test at once.
    look_s: how long to wait before the second look.
    """
    limit_s = patience(patience_s)
    until_s = time.monotonic() + limit_s
    pause_s = look_s
    while not true():
        if time.monotonic() > until_s:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {limit_s:.0f} s: {said}")
        time.sleep(pause_s)
        pause_s = min(pause_s * SLOWER, look_s * SLOWEST)


def wait_for(
    ask: Callable[[], T | None],
    what: str | Callable[[], str] = "an answer",
    *,
    patience_s: float = PATIENCE_S,
    look_s: float = LOOK_S,
) -> T:
    """Wait as `wait_until` does, for an answer other than None, and return it."""
    found: list[T] = []

    def answered() -> bool:
        answer = ask()
        if answer is not None:
            found.append(answer)
        return answer is not None

    wait_until(answered, what, patience_s=patience_s, look_s=look_s)
    return found[0]
