"""Processor time of the join and of the whole loop, of this project and of others that do the same work.

39 features, about 600 bytes of JSON, 2 % clicks, a click window of half of what there is; 2 partitions. Each program
reads full topics and is a process on one core, but for the joiner and the learner of the whole loop, which are two. The
time is that of the program, user and system, all threads, from its first impression to its last result. That of the
broker is a row of its own, from the program's start to its end. Programs that compile while they run get a third of the
data first. `peers:flink,python-vw` measures some. With `--quick` there are so few impressions that what is done once,
such as joining a group, weighs on this project's.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.brokers import TIME, Figures, brokers
from benchmarks.counters import EVENTS
from benchmarks.peers.maven import ToolMissing
from benchmarks.peers.programs import PROGRAMS, Program, World
from benchmarks.rows import Incomplete, Row

BASE = {
    "join": "stream-learner-join",
    "learning": "stream-learner-learn",
    "reading": "stream-learner-read",
    "whole loop": "stream-learner",
}
"""What the others are compared with, by what they do."""
MOST_SAID = 400
"""Characters that are shown of why a program was left out, in one line."""
LOSSES_AGREE = 0.03
"""The learned models are the same algorithm's with the same parameters, so their losses are nearly one figure."""


def run(quick: bool, only: Sequence[str] = ()) -> list[Row]:
    """Rows of seconds for a million impressions. Raises Incomplete, with the other rows, if one cannot be measured."""
    unknown = set(only) - {program.name for program in PROGRAMS}
    if unknown:
        raise ValueError(
            f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in PROGRAMS)}"
        )
    count = 50_000 if quick else 1_000_000
    chosen = [program for program in PROGRAMS if not only or program.name in (*only, *BASE.values())]
    with brokers() as those, tempfile.TemporaryDirectory() as folder:
        return measured(World.of(those, Path(folder), count), chosen)


def measured(world: World, chosen: Sequence[Program]) -> list[Row]:
    """The rows of these programs."""
    found: dict[str, Figures] = {}
    left_out: list[str] = []
    for program in chosen:
        try:
            found[program.name] = program.figures(world)
        except (ToolMissing, RuntimeError, subprocess.TimeoutExpired) as error:
            left_out.append(f"{program.name} left out: {' '.join(str(error).split())[:MOST_SAID]}")
    for name, why in wrong_losses(found).items():
        left_out.append(f"{name} left out: {why}")
        del found[name]
    rows = [row for program in chosen if program.name in found for row in _rows(program, found, world.whole.data.count)]
    if left_out:
        raise Incomplete(rows, "; ".join(left_out))
    return rows


def wrong_losses(found: dict[str, Figures]) -> dict[str, str]:
    """By program, what to say of a log-loss that is not that of this project."""
    losses = {name: figures["log_loss"] for name, figures in found.items() if "log_loss" in figures}
    ours = losses.get(BASE["whole loop"])
    return {
        name: f"learned something else: log-loss {loss:.4f}, not {ours:.4f}"
        for name, loss in losses.items()
        if ours is not None and abs(loss / ours - 1) > LOSSES_AGREE
    }


def _rows(program: Program, found: dict[str, Figures], count: int) -> list[Row]:
    figures, base = found[program.name], found.get(BASE[program.does])
    cost = figures["cpu_seconds"] / count * 1e6
    loss = f"; log-loss {figures['log_loss']:.4f}" if "log_loss" in figures else ""
    lacks = f"; lacks {program.lacks}" if program.lacks else ""
    note = f"{program.settings}; {count:,} impressions in {figures['seconds']:.1f} s{loss}{lacks}"
    does = f"{program.does}: {program.name}"
    rows = [{"name": does, "value": cost, "unit": "s of CPU/M", "note": note}]
    if TIME in figures:
        note = f"processor time of the broker beside {program.name}"
        rows.append(
            {"name": f"brokers, {does}", "value": figures[TIME] / count * 1e6, "unit": "s of CPU/M", "note": note}
        )
    for event in EVENTS:
        if event in figures:
            rows.append({"name": f"{event}, {does}", "value": figures[event] / count, "unit": "an impression"})
    if base is not None and program.name not in BASE.values():
        times = figures["cpu_seconds"] / base["cpu_seconds"]
        rows.append({"name": f"times_{program.name}", "value": times, "unit": "x", "note": f"/ {BASE[program.does]}"})
    return rows
