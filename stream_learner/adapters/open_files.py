"""How many files this process may have open. Connections, and the pipes between threads, count as files.

A limit that is too low never stops a process here: it may never need the missing files. It is warned of.
"""

from __future__ import annotations

import resource

from stream_learner.adapters.telemetry.logs import Logger

UNLIMITED = 1 << 20
"""The number assumed where the system sets no limit."""
OTHERS = 128
"""Files that every process has open besides: libraries, log files, its own sockets."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns how many may be open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else UNLIMITED


def expect(files: int, why: str, log: Logger) -> bool:
    """Raise the limit, and log a warning if it is still too low. Returns whether it is enough.

    files: how many files are about to be opened. why: what they are for, in words. The warning matters because a Kafka
    client that cannot open a file reports only that brokers do not answer.
    """
    allowed, needed = raise_limit(), files + OTHERS
    if allowed < needed:
        log.warning(
            "open_files_too_few",
            allowed=allowed,
            needed=needed,
            needed_for=why,
            action=f"Raise the hard limit of open files to {needed} or more: `ulimit -Hn` in a shell, LimitNOFILE of a "
            "unit of systemd, the container runtime's default in a container. Without, connections fail now and then.",
        )
    return allowed >= needed
