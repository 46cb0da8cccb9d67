"""Kills and cuts, and then compares: `python -m chaos [--kills N] [--seed S] [--schedule K] [--json]`.

In: a machine that can run Kafka. Out: a line for each schedule, the sums, and last `N kills, N equal`; 1 unless all
are.
This file must never leave a process, a mount or a folder behind.
"""

from __future__ import annotations

import argparse
import signal
import sys

from chaos.run import run


def main() -> int:
    """Run what was asked for. Returns 0 where everything ended equal."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Seeded faults on real brokers and processes.")
    parser.add_argument("--kills", type=int, default=30, help="how many processes are killed in all (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="what the schedules are made from (default 1)")
    parser.add_argument("--schedule", type=int, help="only the schedule of this number")
    parser.add_argument("--json", action="store_true", help="results as one JSON object on stdout")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds a schedule may take (default 300)")
    arguments = parser.parse_args()
    if arguments.kills < 1:
        parser.error("--kills must be at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run(
        arguments.kills,
        arguments.seed,
        only=arguments.schedule,
        as_json=arguments.json,
        patience_s=arguments.patience,
    )


if __name__ == "__main__":
    sys.exit(main())
