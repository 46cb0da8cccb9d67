"""A joiner whose wall clock is a number in a file: `python benchmarks/stepped_joiner.py CONFIG CLOCK`.

The file has eight bytes: ms since 1970, little endian. Whoever started this moves the time on. It must never do
anything that `stream-learner join` does not.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path

from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import load_config
from stream_learner.roles.common.compile import load_kernels
from stream_learner.roles.common.lifecycle import Stopping, run_role
from stream_learner.roles.joiner.role import JoinerRole


def clock_of(path: Path) -> Callable[[], int]:
    """The time that the file says."""
    with path.open("rb") as file:
        clock = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    return lambda: int.from_bytes(clock[:8], "little")


def main() -> None:
    """Run until a signal comes."""
    config = load_config(sys.argv[1])
    configure_logging(log_format="json", log_level="info")
    load_kernels(["joiner"])
    stopping = Stopping()
    stopping.listen()
    run_role(JoinerRole(config, Metrics(config.model), clock_ms=clock_of(Path(sys.argv[2]))), stopping)


if __name__ == "__main__":
    main()
