"""Where predictions are made: small requests in the event loop itself, large ones in a few threads.

In: a function to call. Out: what it gives. This file must never let a large request hold the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

INLINE_BYTES = 32 << 10
"""A request up to this size is worked on in the loop: about 50 events, a tenth of a millisecond, as long as the way to
a thread and back."""

T = TypeVar("T")


class RequestExecutor:
    """Calls functions here or in a thread. Close it when no request is left."""

    def __init__(self) -> None:
        threads = max(2, min(8, len(os.sched_getaffinity(0))))
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix="serve-batch")

    async def do(self, size_bytes: int, function: Callable[[], T]) -> T:
        """The function's result; `size_bytes` says how much it has to do."""
        if size_bytes <= INLINE_BYTES:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self.threads, function)

    def close(self) -> None:
        """End the threads."""
        self.threads.shutdown(wait=False, cancel_futures=True)
