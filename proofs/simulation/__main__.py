"""The command: `python -m proofs.simulation --histories 100000 --seed 1 --jobs 2`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from functools import partial

from proofs.simulation.mutations import MUTATIONS, Caught, hunt_nth
from proofs.simulation.run import Outcome, run_histories, run_history

MUTATION_HISTORIES = 2000
SHOWN_FAILURES = 10


def main(arguments: list[str] | None = None) -> int:
    """Run histories, or hunt mutations. Returns 1 if a law broke, or a mutation was not noticed."""
    options = _parser().parse_args(arguments)
    began_s = time.monotonic()
    if options.mutations:
        caught = list(_hunt_all(options.seed, options.histories or MUTATION_HISTORIES, options.jobs, options.json))
        return _report_mutations(caught, time.monotonic() - began_s, options.json)
    if options.trace:
        outcome = run_history(options.seed, trace=True)
    else:
        outcome = _run_all(options.seed, options.histories or 1000, options.jobs, options.json)
    return _report(outcome, time.monotonic() - began_s, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.simulation",
        description="Random histories of the joiner's and the publisher's protocols.",
    )
    parser.add_argument("--histories", type=_positive, help="how many (1000; with --mutations for each, at most 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the others follow (1)")
    parser.add_argument("--jobs", type=_positive, default=1, help="processes to run them in (1)")
    parser.add_argument("--mutations", action="store_true", help="take one step away at a time; each must be noticed")
    parser.add_argument("--trace", action="store_true", help="one history, with what happens in it")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _run_all(seed: int, histories: int, jobs: int, quiet: bool) -> Outcome:
    outcome, said_s = Outcome(), time.monotonic()
    for part in run_histories(seed, histories, jobs):
        outcome.add(part)
        for failed, how in part.failures:
            print(
                f"seed {failed}: {how}\n  again: python -m proofs.simulation --seed {failed} --trace", file=sys.stderr
            )
        if not quiet and time.monotonic() - said_s > 5:
            said_s = time.monotonic()
            done = sum(outcome.histories.values())
            print(f"{done} of {histories} histories, {len(outcome.failures)} failed", file=sys.stderr)
    return outcome


def _report(outcome: Outcome, seconds: float, as_json: bool) -> int:
    total = sum(outcome.histories.values())
    failed = sorted(outcome.failures)
    if as_json:
        found = {
            "histories": dict(sorted(outcome.histories.items())),
            "seconds": round(seconds, 1),
            "seen": dict(sorted(outcome.seen.items())),
            "failures": [{"seed": seed, "how": how} for seed, how in failed],
        }
        print(json.dumps(found))
        return int(bool(failed))
    for name, count in sorted(outcome.seen.items()):
        print(f"{count:12,}  {name}")
    for seed, how in failed[:SHOWN_FAILURES]:
        print(f"seed {seed}: {how}")
    kinds = ", ".join(f"{count:,} of {kind}" for kind, count in sorted(outcome.histories.items()))
    print(f"{total:,} histories ({kinds}) in {seconds:.0f} s: {total - len(failed):,} keep every law")
    return int(bool(failed))


def _hunt_all(seed: int, histories: int, jobs: int, quiet: bool) -> Iterator[Caught]:
    places = range(len(MUTATIONS))
    one = partial(hunt_nth, seed=seed, histories=histories)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap(one, places):
            if not quiet:
                where = f"history {found.seed}" if found.how else "NOT NOTICED"
                print(f"{where:16} {found.histories:5} tried  {found.name}: {found.how[:110]}", flush=True)
            yield found


def _report_mutations(caught: list[Caught], seconds: float, as_json: bool) -> int:
    missed = [found.name for found in caught if not found.how]
    if as_json:
        found = {"mutations": [vars(one) for one in caught], "seconds": round(seconds, 1), "missed": missed}
        print(json.dumps(found))
    else:
        print(f"{len(caught)} mutations in {seconds:.0f} s, {len(caught) - len(missed)} noticed")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
