"""How much freed memory the C library keeps for itself.

In: nothing. Out: a process whose resident memory follows what it uses.
This file must never fail: other C libraries than GNU's are left as they are.

GNU's allocator gives every thread an arena of its own, and each keeps what was freed in it. Arrays from some size on
are mappings of their own, given back when they are freed; with every such array that size rises. Both suit a process
that has memory to spare.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
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
