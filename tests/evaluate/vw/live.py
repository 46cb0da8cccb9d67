"""A command line over the same lines, here and in the installed package; where the average losses differ, and why.

References are made when they are asked for, so that none can go stale.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import vowpalwabbit

from stream_learner.evaluate.example_block import ExampleBlock, RecordMaker
from stream_learner.evaluate.formats.vw.parser import VwText
from stream_learner.evaluate.request import BestPass
from stream_learner.evaluate.vw.command import parse_vw
from stream_learner.evaluate.vw.model import VwTrial
from tests.evaluate.vw.vw_commands import FLAGS
from tests.oracles.vw import Options, learner_of
from tests.oracles.vw_text import VwExample

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
DIVERGED = 1e6


def theirs(command: str, text: bytes, folder: Path) -> str:
    """The average loss that the package prints."""
    source = folder / "examples.dat"
    source.write_bytes(text)
    cache = f"--cache_file {folder / 'cache'} -k" if "--passes" in command else ""
    workspace = vowpalwabbit.Workspace(f"{command} -d {source} {cache}", enable_logging=True)
    workspace.finish()
    (printed,) = re.findall(r"average loss = (\S+)", "\n".join(workspace.get_log()))
    return str(printed)


def ours(command: str, text: bytes) -> float:
    """Our average loss, by what `evaluate --vw` runs."""
    parsed_command = parse_vw(command)
    parsed = VwText(parsed_command.reading).parse(text, 1)
    assert not parsed.faults, parsed.faults[:3]
    block = ExampleBlock(RecordMaker().records(parsed.batch), parsed.labelled)
    trial = VwTrial(command, parsed_command, learn=not parsed_command.test)
    while not trial.done:
        trial.take(block)
        trial.end_pass()
    loss = trial.figures()["average_loss"]
    return math.nan if loss is None else float(loss)


class Compared(NamedTuple):
    """One cell of the grid. cause: "" where both print the same."""

    command: str
    data: str
    printed: str
    ours: float
    cause: str

    @property
    def equal(self) -> bool:
        """Whether all printed digits are the same."""
        return not self.cause


def compared(command: str, name: str, text: bytes, folder: Path) -> Compared:
    """A command line on both sides."""
    printed = theirs(command, text, folder)
    if not abs(float(printed)) < DIVERGED:
        return Compared(command, name, printed, math.nan, "diverges")
    found = ours(command, text)
    cause = "" if f"{found:.6f}" == printed else cause_of(command, text, found)
    return Compared(command, name, printed, found, cause)


def cause_of(command: str, text: bytes, found: float) -> str:
    """Why a run differs: the oracle of the tool's formulas in float64 tells rounding from all else."""
    exact = exactly(command, text)
    if math.isclose(found, exact, rel_tol=1e-6, abs_tol=1e-6):
        return "rounding: the tool's formulas give this in float64"
    shaken = (exactly(command, text, scale) for scale in (1.0 - 1e-15, 1.0 + 1e-15, 1.0 + 4e-15))
    if not all(math.isclose(one, exact, rel_tol=1e-6, abs_tol=1e-6) for one in shaken):
        return "rounding: the tool's formulas in float64 give another loss for inputs that differ by 1e-15"
    for flag, cause in CAUSES.items():
        if flag in command:
            return cause
    return "unexplained"


def exactly(command: str, text: bytes, scale: float = 1.0) -> float:
    """The oracle's average loss in float64, with values and importances multiplied by `scale`."""
    known = parse_vw(command)
    batch = VwText(replace(known.reading, repeats=True)).parse(text, 1).batch
    learner = learner_of(Options(_OF_TEXT.sub("", command)), np.float64)
    plan, best, sums, found = known.plan, BestPass(known.plan), [0.0, 0.0], math.inf
    with np.errstate(all="ignore"):
        while not best.done:
            for i, held_out in enumerate(plan.held_out(0, len(batch))):
                row = slice(batch.row_start[i], batch.row_start[i + 1])
                keys, values = batch.keys[row].tolist(), batch.values[row] * scale
                y, h = batch.label[i], batch.weight[i] * scale
                example = VwExample(y, h, list(zip(keys, values, strict=True)), np.dot(values, values))
                learner.see_label(y)
                loss = float(learner.loss.value(learner.learn(example, bool(held_out)), y) * h)
                sums = [sums[0] + loss, sums[1] + h] if held_out or not plan.holds_out else sums
            learner.end_pass()
            mean = sums[0] / sums[1]
            found = mean if best.finish(mean) or not plan.holds_out else found
            sums = [0.0, 0.0] if plan.holds_out else sums
    return found


_OF_TEXT = re.compile(r"--(noconstant|(cubic|hash|ignore|holdout_period|early_terminate) \S+)")
"""Flags that the oracle does not know: they change what it is fed, not what it does."""

CAUSES = {
    "--ftrl": "a feature that an example has twice is one feature here; gradients of unclipped predictions",
    "--pistol": "gradients of unclipped predictions; held-out examples are predicted with up-to-date weights",
    "--coin": "gradients of unclipped predictions; held-out examples are predicted with up-to-date weights",
    "--loss_function logistic": "rounding: W(e^a) - a cancels where a is large, and last bits of logarithms decide",
}


def read(path: str) -> bytes:
    """A file of the data sets, unpacked."""
    raw = (DATA / path).read_bytes()
    return gzip.decompress(raw) if path.endswith(".gz") else raw


def converted(path: str, rows: int) -> bytes:
    """The first rows of a file in LIBSVM's format, as VW text with labels -1 and 1; names are the numbers there."""
    lines = []
    for line in read(path).decode("ascii").splitlines()[:rows]:
        label, *features = line.split(" #")[0].split()
        lines.append(f"{1 if float(label) > 0 else -1} |f {' '.join(features)}")
    return ("\n".join(lines) + "\n").encode()


def generated(*, counts: bool = False, rows: int = 40) -> bytes:
    """Two namespaces, one of them scaled; importances, tags, repeated features, values over three decades."""
    rng = np.random.default_rng(5)
    lines = []
    for row in range(rows):
        y = int(rng.integers(0, 4)) if counts else int(rng.choice([-1, 1]))
        h = rng.choice(["1", "2", ".5", "3.25"])
        values = rng.uniform(-3, 3, size=rng.integers(1, 6)) * 10.0 ** rng.integers(-2, 1)
        words = " ".join(f"w{rng.integers(0, 30)}:{v:.5g}" for v in values)
        names = " ".join(f"z{rng.integers(0, 9)}" for _ in range(rng.integers(0, 4)))
        lines.append(f"{y} {h} t{row}|a {words} |b:0.5 {names}")
    return ("\n".join(lines) + "\n").encode()


LOSSES = ("squared", "logistic", "hinge", "quantile", "poisson")
EXTRAS = (
    "",
    "-l 0.1",
    "--power_t 0.3",
    "--power_t 1",
    "--initial_t 5",
    "--l1 0.001",
    "--l2 0.01",
    "--l1 0.0005 --l2 0.001",
    "--passes 4",
    "--passes 4 --holdout_off",
    "--passes 6 --holdout_period 3 --early_terminate 1",
    "-q ab",
    "-q aa -b 8",
    "--cubic aab --noconstant",
    "--passes 2 --holdout_off --decay_learning_rate 0.9 --ngram 2 --skips 2 -b 10",
    "--hash all --ignore b",
)
DEFAULTS = ("squared", "hinge", "quantile", "logistic")
"""Losses of the default update that must print the same, logistic on a9a and sentiment."""


def sets(rows: int) -> dict[str, bytes]:
    """Labels -1 and 1: data sets by name, so many rows of each at most."""
    found = {"generated": generated(rows=min(rows, 200)), "a9a": converted("a9a/a9a.gz", rows)}
    for name in ("books", "kitchen"):
        found[name] = converted(f"sentiment/{name}_train.svmlight.gz", rows)
    return found


def reals(rows: int) -> dict[str, bytes]:
    """Labels that are numbers: the tool's own data sets."""
    names = ("0001.dat.gz", "0001_25.dat.gz", "0002.dat.gz", "0002_25.dat")
    return {name: b"".join(read(f"vw/{name}").splitlines(keepends=True)[:rows]) for name in names}


def cells() -> Iterator[tuple[str, bool]]:
    """Every command line of the grid, and whether its labels are counts."""
    for loss in LOSSES:
        for flags in FLAGS:
            for extra in EXTRAS:
                yield f"{flags} --loss_function {loss} {extra}".strip(), loss == "poisson"
