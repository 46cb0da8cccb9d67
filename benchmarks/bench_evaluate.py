"""`evaluate` from files to figures, beside Vowpal Wabbit on the same file, each a process with all cores."""

from __future__ import annotations

import gzip
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FIELDS = 39
ZIPF = 1.05
WIDEST = 200_000
CLICK_RATE = 0.05
BLOCK = 20_000
OURS = "ftrl_proximal alpha=0.1 beta=1 l1=1 l2=1"
TOOL = "--ftrl --ftrl_alpha 0.1 --ftrl_beta 1 --l1 1 --l2 1 --loss_function logistic -b 22"
RUNNER = "import sys, vowpalwabbit; w = vowpalwabbit.Workspace(sys.argv[1]); w.finish()"

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note. Compiled before; medians of three, of the wall clock of whole processes
    less that of the same process over an almost empty file: its start."""
    examples = 100_000 if quick else 400_000
    with tempfile.TemporaryDirectory() as directory:
        files, small = _written(Path(directory), examples), _written(Path(directory, "small"), 1)
        rows = []
        for name, file in files.items():
            ours = _rate(_ours(file), _ours(small[name]), examples)
            rows.append(_row(f"evaluate_{name}", ours, f"{examples:,} examples of {FIELDS} features, {OURS}"))
        if importlib.util.find_spec("vowpalwabbit"):
            tool = _rate(_tool(files["vw"]), _tool(small["vw"]), examples)
            rows.append(_row("vw_ftrl_text", tool, "the same VW text, the same hyper-parameters"))
            rows += [
                {**_row(f"{row['name']}_times_vw", row["value"] / tool, "beside vw_ftrl_text"), "unit": "x"}
                for row in rows[: len(files)]
            ]
    return rows


def _ours(file: Path) -> list[str]:
    return [sys.executable, "-m", "stream_learner", "evaluate", str(file), "--learn", OURS, "--json"]


def _tool(file: Path) -> list[str]:
    return [sys.executable, "-c", RUNNER, f"{TOOL} --quiet -d {file}"]


def _rate(command: list[str], start: list[str], examples: int) -> float:
    """Examples a second of a process, without its start."""
    subprocess.run(start, check=True, capture_output=True)
    seconds = [_seconds(command) - _seconds(start) for _ in range(3)]
    return examples / sorted(seconds)[1]


def _seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begun


def _written(folder: Path, examples: int) -> dict[str, Path]:
    """Files of the same examples: VW text, plain and gzip, LIBSVM and CSV."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    widths = np.geomspace(10, WIDEST, FIELDS).astype(np.int64)
    starts = np.cumsum(widths) - widths
    chances = [np.cumsum(np.arange(1, width + 1) ** -ZIPF) for width in widths]
    places = [s + np.searchsorted(c, rng.random(examples) * c[-1]) for s, c in zip(starts, chances, strict=True)]
    clicks = (rng.random(examples) < CLICK_RATE).astype(np.int64)
    field = np.repeat(np.arange(FIELDS), widths)
    values = np.arange(widths.sum()) - starts[field]
    names = ",".join(["label", *(f"c{i}" for i in range(FIELDS))])
    cells = {
        "vw": (["-1 |c", "1 |c"], [f" c{i}={v:x}" for i, v in zip(field.tolist(), values.tolist(), strict=True)], ""),
        "libsvm": (["-1", "1"], [f" {i}:1" for i in range(len(field))], ""),
        "csv": (["0", "1"], [f",v{v:x}" for v in values.tolist()], f"{names}\n"),
    }
    files = {name: folder / f"clicks.{name}" for name in cells}
    for name, (labels, features, head) in cells.items():
        columns = np.array([*features, *labels, "\n"], np.bytes_)
        rows = np.column_stack([len(features) + clicks, *places, np.full(examples, len(columns) - 1)])
        with files[name].open("wb") as file:
            file.write(head.encode())
            for block in np.array_split(rows, 1 + examples // BLOCK):
                padded = columns[block].view(np.uint8)
                file.write(padded[padded != 0].tobytes())
    files["vw_gz"] = folder / "clicks.vw.gz"
    files["vw_gz"].write_bytes(gzip.compress(files["vw"].read_bytes(), 1))
    return files


def _row(name: str, value: float, note: str) -> Row:
    return {"name": name, "value": value, "unit": "examples/s", "note": note}
