"""How many files this process may have open: connections and the pipes between threads count as well.

In: the limits of the process, and what a role is about to open. Out: a soft limit as high as it may be, and a warning
where that is too low. This file must never stop a process: what is missing may never be opened.
"""

from __future__ import annotations

import resource

from stream_learner.adapters.telemetry.logs import Logger

UNLIMITED = 1 << 20
"""What is counted on where there is no limit."""
OTHERS = 128
"""Libraries, log files, sockets of our own: what any process has besides."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; how many may be open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else UNLIMITED


def expect(files: int, why: str, log: Logger) -> bool:
    """Raise the limit; say so where it is too low all the same. Whether it is enough.

    files: what is about to be opened. why: what for, in words. Without a file a client of Kafka cannot connect, and
    says nothing but that brokers do not answer.
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
