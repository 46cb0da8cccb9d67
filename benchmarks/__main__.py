"""Runs the benchmarks and shows their rows: `python -m benchmarks [--quick] [--json] [name …]`.

Of a benchmark that has several subjects, `name:subject,subject` measures some.

It must never measure anything itself. Benchmarks run one after another, never side by side; several run each in a
process of its own, so that none has the memory of another, and one that crashes stops no other.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Incomplete, Row
from stream_learner.errors import RetryLater

HERE = Path(__file__).resolve().parent
PATIENCE_S = 1800
PACKAGES = ("numpy", "numba", "orjson", "confluent-kafka", "rocksdict", "vowpalwabbit", "river")


def names() -> list[str]:
    """The benchmarks there are, without `bench_`, in order."""
    return sorted(file.stem.removeprefix("bench_") for file in HERE.glob("bench_*.py"))


def machine() -> dict[str, Any]:
    """The machine that figures depend on: processor, memory, system, versions."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def measure(wanted: str, quick: bool, log: Console) -> tuple[list[Row], str]:
    """The rows of one benchmark, or of some of its subjects, and what went wrong, "" if nothing did."""
    began = time.perf_counter()
    log.print(f"{wanted} …", highlight=False)
    name, _, subjects = wanted.partition(":")
    some = (subjects.split(","),) if subjects else ()
    failure = ""
    try:
        run = importlib.import_module(f"benchmarks.bench_{name}").run
        try:
            rows = run(quick, *some)
        except RetryLater as error:
            log.print(f"{wanted} once more: {error}", highlight=False, markup=False)
            rows = run(quick, *some)
    except Incomplete as error:
        rows, failure = error.rows, str(error)
    except Exception as error:  # noqa: BLE001 - the others still run; the exit code tells
        return [], " ".join(f"{type(error).__name__}: {error}".split())
    log.print(f"{wanted}: {time.perf_counter() - began:.1f} s", highlight=False)
    return [{"benchmark": name, **row} for row in rows], failure


def measure_apart(wanted: str, quick: bool) -> tuple[list[Row], str]:
    """The same, of a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "--json", wanted, *(["--quick"] if quick else [])]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
        found = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        return [], f"not done after {PATIENCE_S} s"
    except ValueError:
        return [], f"its process ended with {ended.returncode}"
    return found["rows"], "; ".join(found["failed"].values())


def main() -> int:
    """Run what was asked for. Returns 1 if a benchmark failed, else 0."""
    arguments = _arguments()
    log = Console(stderr=True)
    rows: list[Row] = []
    failures: dict[str, str] = {}
    wanted = arguments.names or names()
    for name in wanted:
        found, failure = (
            measure(name, arguments.quick, log) if len(wanted) == 1 else measure_apart(name, arguments.quick)
        )
        rows += found
        if failure:
            failures[name.partition(":")[0]] = failure
    if arguments.json:
        print(json.dumps({"machine": machine(), "quick": arguments.quick, "rows": rows, "failed": failures}))
    else:
        _show(rows)
    for name, failure in failures.items():
        log.print(f"{name} failed: {failure}", style="red", highlight=False, markup=False)
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure the hot paths and the whole loop.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(names())}; peers:flink,… for some"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for a first look")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    unknown = sorted({name.partition(":")[0] for name in arguments.names} - set(names()))
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(names())}")
    return arguments


def _show(rows: list[Row]) -> None:
    console = Console()
    for name, value in machine().items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        console.print(f"{name:<11} {text}", highlight=False, soft_wrap=True)
    table = Table()
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("note")
    for row in rows:
        table.add_row(row["name"], _number(row["value"]), row["unit"], row.get("note", ""))
    console.print(table)


def _number(value: float) -> str:
    """Three digits that mean something, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
