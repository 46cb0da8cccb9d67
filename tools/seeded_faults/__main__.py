"""Check the seeded faults: `python -m tools.seeded_faults [NAME …]`.

The exit code is 0 if all are caught, 1 if one is missed or unsure, 2 if the table or the tree cannot be used.
"""

from __future__ import annotations

import argparse
import difflib
import json
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tools.seeded_faults.fault import BadFault, Fault
from tools.seeded_faults.run import PARTS, Outcome, Verdict, check_fault, copies_of
from tools.seeded_faults.table import FAULTS

PROJECT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check what was asked for; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        faults = chosen(options.names)
        if options.list:
            print("\n".join(f"{fault.name}\n    {fault.area}: {fault.harm}" for fault in faults))
            return 0
        outcomes = check(faults, options.tree, options.part, options.jobs, say=not options.json)
    except BadFault as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([{**vars(each), "verdict": each.verdict.value} for each in outcomes], indent=1))
    else:
        print(summary(outcomes))
    return 0 if all(each.verdict is Verdict.CAUGHT for each in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.seeded_faults", description="Put a fault into a copy of the code; does a test catch it?"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to check (all)")
    parser.add_argument("--tree", type=Path, default=PROJECT, metavar="DIR", help="the checkout to copy (this one)")
    parser.add_argument("--part", choices=PARTS, default="all", help="which tests may catch them (all)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many faults side by side (1)")
    parser.add_argument("--json", action="store_true", help="the outcomes as a JSON list, at the end")
    parser.add_argument("--list", action="store_true", help="only say which faults there are")
    return parser


def chosen(names: Sequence[str]) -> list[Fault]:
    """The faults of these names, all without any. Raises BadFault for a name that there is not."""
    known = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; --list shows those there are"
            raise BadFault(f"there is no fault {name}{hint}")
    return [known[name] for name in names] or list(FAULTS)


def check(faults: Sequence[Fault], tree: Path, part: str, jobs: int, *, say: bool) -> list[Outcome]:
    """The outcome of each, in order. Raises BadFault, before anything is run if a fault does not fit the tree."""
    for fault in faults:
        fault.text_in(tree)
        fault.tests_in(tree)
    with ThreadPoolExecutor(max(jobs, 1)) as pool, copies_of(tree) as copies:
        pending = [pool.submit(check_fault, fault, copies, part) for fault in faults]
        try:
            for future in as_completed(pending):
                outcome = future.result()
                if say:
                    print(line_of(outcome), flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in pending]


def line_of(outcome: Outcome) -> str:
    """An outcome for people."""
    found = f"  {outcome.test}" if outcome.test else ""
    said = f"\n      {outcome.said[:200]}" if outcome.said else ""
    return f"{outcome.verdict.value:<7} {outcome.seconds:>5.0f} s  {outcome.name}{found}{said}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many were caught, and the names of the others."""
    caught = sum(outcome.verdict is Verdict.CAUGHT for outcome in outcomes)
    lines = [f"== {caught} of {len(outcomes)} caught in {sum(outcome.seconds for outcome in outcomes):.0f} s"]
    for verdict in (Verdict.MISSED, Verdict.UNSURE):
        names = [outcome.name for outcome in outcomes if outcome.verdict is verdict]
        if names:
            lines.append(f"{verdict.value}: {', '.join(names)}")
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that nothing is left behind
    sys.exit(main())
