"""What the machine itself takes for a dependent read, a prefetched update, a stream of bytes, and a cycle.

These are the prices that `docs/performance-growth.md` multiplies. 64 MiB are larger than the nearest caches and smaller
than most tables; nothing of the project but its way of compiling takes part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.rows import Row
from stream_learner.core.machine.memory import address_of, load_i64, prefetch_for_write, store_i64

AHEAD = 32
LINE_BYTES = 64
CHAIN_CYCLES = 4
"""An addition and a multiplication of 64-bit integers that wait for each other, on x86-64 of the last ten years."""
REPEATS = 5


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note."""
    lines, steps = (1 << 20, 1_000_000) if quick else (1 << 20, 4_000_000)
    mib = lines * LINE_BYTES >> 20
    rng = np.random.default_rng(7)
    memory = np.zeros(lines * LINE_BYTES // 8, np.int64)
    memory[:: LINE_BYTES // 8] = _cycle(rng, lines) * LINE_BYTES
    places = rng.integers(0, lines, steps) * LINE_BYTES
    base, where = address_of(memory), address_of(places)
    chase = _ns(lambda: _chase(base, steps)) / steps
    update = _ns(lambda: _update(base + 8, where, steps)) / steps
    chain = _ns(lambda: _chain(steps)) / steps
    stream = _ns(lambda: memory.sum())
    return [
        _row("dependent_read", chase, "ns", f"each address is what was read before, {mib} MiB"),
        _row(
            "prefetched_update",
            update,
            "ns",
            f"random cache lines, read and written, prefetched {AHEAD} ahead, {mib} MiB",
        ),
        _row("stream", memory.nbytes / stream, "GB/s", f"{mib} MiB read in order"),
        _row(
            "cycle", chain / CHAIN_CYCLES, "ns", f"a chain of additions and multiplications, {CHAIN_CYCLES} cycles each"
        ),
    ]


def _cycle(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """For each place the next one, so that one walk visits all."""
    order = rng.permutation(count)
    following = np.empty(count, np.int64)
    following[order] = np.roll(order, -1)
    return following


@njit(cache=True)
def _chase(base: int, steps: int) -> int:
    at = 0
    for _ in range(steps):
        at = load_i64(base + at)
    return at


@njit(cache=True)
def _update(base: int, where: int, steps: int) -> None:
    for i in range(steps):
        if i + AHEAD < steps:
            prefetch_for_write(base + load_i64(where + 8 * (i + AHEAD)))
        address = base + load_i64(where + 8 * i)
        store_i64(address, load_i64(address) + 1)


@njit(cache=True)
def _chain(steps: int) -> int:
    product = np.int64(3)
    for i in range(steps):
        product = product * (product + i)
    return product


def _ns(work: Callable[[], Any]) -> float:
    """Processor time, the least of some."""
    work()
    taken = []
    for _ in range(REPEATS):
        begun = time.process_time_ns()
        work()
        taken.append(time.process_time_ns() - begun)
    return float(min(taken))


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": f"machine.{name}", "value": round(value, 2), "unit": unit, "note": note}
