"""Fuzzes what reads bytes of others: `python -m proofs.fuzz [TARGET …] [--inputs N] [--seed S] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from proofs.fuzz.harness import BATCH_LIMIT_S, Report, Run
from proofs.fuzz.target import TARGETS

KEPT = Path("fuzz-found")


def main() -> int:
    """Fuzz what was asked for. Returns 1 if something was found."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzz what reads bytes that somebody else wrote.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs (default: 1)")
    parser.add_argument("--input", type=Path, metavar="FILE", help="check this one input of one target, nothing else")
    parser.add_argument("--found", type=Path, default=KEPT, metavar="FOLDER", help=f"for what is found ({KEPT})")
    parser.add_argument("--json", action="store_true", help="reports as JSON, one a line")
    arguments = parser.parse_args()
    names = list(TARGETS) if arguments.targets in ([], ["all"]) else arguments.targets
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no target is called {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if arguments.inputs < 1:
        parser.error("--inputs must be 1 or more")
    console = Console()
    if arguments.input is not None:
        if len(names) != 1 or not arguments.input.is_file():
            parser.error("--input takes a file, and the one target that it is for")
        return _replay(console, names[0], arguments)
    reports = []
    for name in names:
        report = Run(name, TARGETS[name], arguments.seed, arguments.found).run(arguments.inputs)
        reports.append(report)
        _show(console, report, arguments.json)
    return 1 if any(report.findings for report in reports) else 0


def _replay(console: Console, name: str, arguments: argparse.Namespace) -> int:
    run = Run(name, TARGETS[name], arguments.seed, arguments.found, batch_limit_s=BATCH_LIMIT_S)
    trouble = run.replay(arguments.input)
    console.print(trouble or f"{name}: {arguments.input} is read as it should be", markup=False, highlight=False)
    return 1 if trouble else 0


def _show(console: Console, report: Report, as_json: bool) -> None:
    if as_json:
        console.print(json.dumps(asdict(report)), markup=False, highlight=False, soft_wrap=True)
        return
    console.print(report.line, markup=False, highlight=False, soft_wrap=True)
    for finding in report.findings:
        again = (
            f"python -m proofs.fuzz {report.target} --input {finding.file}" if finding.file else "not repeatable alone"
        )
        text = f"  {finding.kind}: {finding.what}\n    {again}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
