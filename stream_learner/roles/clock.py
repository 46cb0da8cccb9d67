"""The time by this machine's clock: what roles are given where nothing else is said.

This file must never be used by `core`.
"""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000
