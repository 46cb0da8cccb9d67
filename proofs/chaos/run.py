"""All schedules of a run, one after another on one cluster, with lines of output, sums and the exit code.

The kills of a schedule count as equal only if the whole schedule ended equal.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from proofs.chaos.cluster import Cluster
from proofs.chaos.disk import take_away
from proofs.chaos.plan import KILLS_PER_SCHEDULE, Plan, plan_of, sizes
from proofs.chaos.result import Result
from proofs.chaos.schedule import run_schedule
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.core.parts import compile_kernels

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".build" / "chaos"
FOLDER = "stream-learner-chaos-"


def plans_of(kills: int, seed: int, only: int | None = None) -> list[Plan]:
    """The plans of a run. only: the number of a single one."""
    plans = [plan_of(seed, number, size) for number, size in enumerate(sizes(kills))]
    if only is not None:
        alone = plan_of(seed, only, min(kills, KILLS_PER_SCHEDULE))
        return [next((plan for plan in plans if plan.number == only), alone)]
    return plans


def command(plan: Plan) -> str:
    """The command that runs this schedule alone."""
    kills = f" --kills {plan.kills}" if plan.kills < KILLS_PER_SCHEDULE else ""
    return f'make chaos ARGS="--seed {plan.seed} --schedule {plan.number}{kills}"'


class Progress:
    """Lines on stderr: every step on a terminal, every schedule in a log."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._began_s = time.monotonic()

    def step(self, text: str) -> None:
        """Show a step, which the next one overwrites."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[2K{text[:width]}")
            sys.stderr.flush()

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self.step("")
        sys.stderr.write(f"[{time.monotonic() - self._began_s:6.0f} s] {text}\n")
        sys.stderr.flush()


def run(kills: int, seed: int, *, only: int | None = None, as_json: bool = False, patience_s: float = 600.0) -> int:
    """Carry out the schedules. Returns 0 if all kills were made and everything ended equal."""
    plans = plans_of(kills, seed, only)
    progress = Progress()
    configure_logging(log_format="json", stream=io.StringIO())
    _sweep()
    compile_kernels()
    results: list[Result] = []
    began_s = time.monotonic()
    with Cluster() as cluster:
        for plan in plans:
            result = _run_one(plan, cluster, progress, patience_s)
            results.append(result)
    summary = summary_of(plans, results, time.monotonic() - began_s)
    out = json.dumps(summary, indent=1) if as_json else table_of(summary)
    sys.stdout.write(f"{out}\n")
    if not as_json:
        sys.stdout.write(f"{summary['kills']} kills, {summary['equal']} equal\n")
    wanted = sum(plan.kills for plan in plans)
    return 0 if summary["equal"] == summary["kills"] == wanted and not summary["failed"] else 1


def _sweep() -> None:
    """Remove what earlier runs have left that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        owner = folder.name[len(FOLDER) :].split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            take_away(folder / "disk")
            shutil.rmtree(folder, ignore_errors=True)


def _run_one(plan: Plan, cluster: Cluster, progress: Progress, patience_s: float) -> Result:
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
    try:
        result = run_schedule(plan, cluster, folder, lambda text: progress.step(f"{plan.name}: {text}"), patience_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    word = "equal" if result.equal else "NOT EQUAL"
    progress.line(f"{plan.name}: {word}; {result.records} records, {result.versions} versions, {result.seconds:.0f} s")
    if not result.equal:
        kept = _keep(result, cluster)
        for problem in result.problems:
            progress.line(f"  {problem}")
        progress.line(f"  logs in {kept.relative_to(ROOT)}; again: {command(plan)}")
    return result


def _keep(result: Result, cluster: Cluster) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"seed-{result.plan.seed}-schedule-{result.plan.number}.log"
    steps = "\n".join(map(str, result.plan.steps))
    parts = [result.plan.name, steps, *result.problems, result.logs, cluster.log()]
    kept.write_text("\n\n".join(parts), encoding="utf-8")
    return kept


def summary_of(plans: list[Plan], results: list[Result], seconds: float) -> dict[str, Any]:
    """The summary of a run as plain values."""
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
    return {
        "seed": plans[0].seed,
        "schedules": len(results),
        "kills": sum(len(result.kills) for result in results),
        "equal": sum(len(result.kills) for result in results if result.equal),
        "seconds": round(seconds, 1),
        "records": sum(result.records for result in results),
        "versions": sum(result.versions for result in results),
        "controller_changes": sum(result.controller_changes for result in results),
        "faults": dict(sorted(faults.items())),
        "killed": _killed(results),
        "failed": [
            {"schedule": result.plan.number, "again": command(result.plan), "problems": result.problems}
            for result in results
            if not result.equal
        ],
    }


def _killed(results: list[Result]) -> dict[str, dict[str, int]]:
    """The number of kills by role and phase."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        for slot, phase in result.kills:
            found.setdefault(slot.split("-")[0], Counter())[phase] += 1
    return {role: dict(sorted(phases.items())) for role, phases in sorted(found.items())}


def table_of(summary: dict[str, Any]) -> str:
    """The sums as text."""
    sums = ("schedules", "records", "versions", "controller_changes")
    told = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in sums)
    lines = [f"seed {summary['seed']}: {told} in {summary['seconds']:.0f} s"]
    for role, phases in summary["killed"].items():
        told = ", ".join(f"{phase} {count}" for phase, count in phases.items())
        lines.append(f"  killed {role}: {sum(phases.values())} ({told})")
    lines += [f"  {fault}: {count}" for fault, count in summary["faults"].items()]
    lines += [f"  failed: {failed['again']}" for failed in summary["failed"]]
    return "\n".join(lines)
