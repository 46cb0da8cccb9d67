"""Kills and cuts, then compares: `python -m proofs.chaos [--kills N] [--seed S] [--schedule K] [--json]`.

With `--incidents` it carries out what goes wrong in production instead (`incidents`), `--only NAME` one of it.

It prints a line for each schedule, the sums, and last `N kills, N equal`. The exit code is 1 unless all are equal. No
process, mount or folder is left behind.
"""

from __future__ import annotations

import argparse
import signal
import sys

from proofs.chaos.incidents.catalogue import INCIDENTS
from proofs.chaos.incidents.run import run as run_incidents
from proofs.chaos.run import run


def parser() -> argparse.ArgumentParser:
    """The parser of the arguments."""
    made = argparse.ArgumentParser(prog="make chaos", description="Seeded faults on real brokers and processes.")
    made.add_argument("--kills", type=int, default=20, help="how many processes are killed in all (default 20)")
    made.add_argument("--seed", type=int, default=1, help="what the schedules are made from (default 1)")
    made.add_argument("--schedule", type=int, help="only the schedule of this number")
    made.add_argument("--json", action="store_true", help="results as one JSON object on stdout")
    made.add_argument("--patience", type=float, default=600.0, help="seconds a schedule may take (default 600)")
    made.add_argument("--incidents", action="store_true", help="incidents instead of kills")
    names = [incident.name for incident in INCIDENTS]
    made.add_argument("--only", action="append", default=[], choices=names, help="only the incident of this name")
    return made


def main() -> int:
    """Run what was asked for. Returns 0 if everything ended equal."""
    given = parser().parse_args()
    if given.kills < 1:
        parser().error("--kills must be at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.incidents or given.only:
        return run_incidents(given.seed, only=given.only, as_json=given.json)
    return run(given.kills, given.seed, only=given.schedule, as_json=given.json, patience_s=given.patience)


if __name__ == "__main__":
    sys.exit(main())
