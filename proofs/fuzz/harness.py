"""The parent process: runs a target in a child, and restarts the child behind every input that kills or stops it.

The parent never checks an input itself: it would not survive it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proofs.fuzz.target import load
from proofs.fuzz.worker import ACCEPTED, BATCH, DONE, FOUND, INDEX, MOST_FINDINGS, WORDS, Position

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 900.0
"""Time for a child to import, compile kernels and check the corpus."""
BATCH_LIMIT_S = 120.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Finding:
    """A finding: its kind (crash, hang or wrong), a description, and the file with the input, "" without one."""

    kind: str
    what: str
    file: str


@dataclass
class Report:
    """The outcome of a run."""

    target: str
    seed: int
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The report as one line for people."""
        found = f"{len(self.findings)} findings" if self.findings else "nothing found"
        return f"{self.target}: {self.inputs:,} inputs, {self.accepted:,} accepted, {self.seconds:.0f} s, {found}"


class Run:
    """A run of one target with one seed."""

    def __init__(
        self,
        name: str,
        path: str,
        seed: int,
        kept: Path,
        *,
        start_limit_s: float = START_LIMIT_S,
        batch_limit_s: float = BATCH_LIMIT_S,
    ) -> None:
        """path: `module:Class` of the target. kept: folder for the inputs that are found."""
        self._path, self._seed, self._kept = path, seed, kept
        self._start_limit_s, self._batch_limit_s = start_limit_s, batch_limit_s
        self._batch_inputs = load(path).batch_inputs
        self._report = Report(name, seed)

    def run(self, inputs: int) -> Report:
        """Check the corpus and about so many inputs. A few findings end the run."""
        began = time.monotonic()
        last = -(-inputs // self._batch_inputs)
        first: int | None = 0
        while first is not None and len(self._report.findings) < MOST_FINDINGS:
            with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
                first = self._child(Path(folder), first, last)
        self._report.seconds = time.monotonic() - began
        return self._report

    def _child(self, folder: Path, first: int, last: int) -> int | None:
        """Run a child. Returns the batch to continue with, None when all are checked."""
        position = Position.create(folder / "position")
        position[BATCH] = -1
        died = self._watch(folder, position, ["--first", str(first), "--last", str(last)])
        self._report.inputs += position[DONE]
        self._report.accepted += position[ACCEPTED]
        self._take_findings(folder, position)
        if not died:
            return None
        batch = position[BATCH]
        self._locate(folder, batch, died)
        return batch + 1 if batch + 1 < last else None

    def _watch(self, folder: Path, position: Position, extra: Sequence[str]) -> str:
        """Run a child to its end. Returns "", or how it died, or that it was stopped."""
        command = [
            sys.executable,
            "-m",
            "proofs.fuzz.worker",
            self._path,
            str(folder),
            "--seed",
            str(self._seed),
            *extra,
        ]
        with (folder / "stderr").open("wb") as stderr:
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr)
            try:
                return self._wait(child, position) or _ending(child.returncode, folder)
            finally:
                child.kill()
                child.wait()

    def _wait(self, child: subprocess.Popen[bytes], position: Position) -> str:
        """Wait for the end of the child. Returns "hang" if it makes no progress."""
        seen, since, moved = [position[word] for word in range(WORDS)], time.monotonic(), False
        while child.poll() is None:
            time.sleep(_POLL_S)
            now = [position[word] for word in range(WORDS)]
            if now != seen:
                seen, since, moved = now, time.monotonic(), True
            limit_s = self._batch_limit_s if moved else self._start_limit_s
            if time.monotonic() - since > limit_s:
                return f"hang: not done after {limit_s:.0f} s"
        return ""

    def _take_findings(self, folder: Path, position: Position) -> None:
        file = folder / "findings"
        if not position[FOUND] or not file.exists():
            return
        for line in map(json.loads, file.read_text().splitlines()):
            kept = self._keep(Path(line["file"]), f"wrong-{line['batch']}")
            self._report.findings.append(Finding("wrong", line["what"], kept))

    def _locate(self, folder: Path, batch: int, died: str) -> None:
        """Find the input of a batch that killed or stopped a child, by checking each alone."""
        kind = "hang" if died.startswith("hang") else "crash"
        position = Position.create(folder / "position")
        position[INDEX] = -1
        again = self._watch(folder, position, ["--one-by-one", "--first", str(batch)])
        current, where = folder / "current", f"batch {batch}, input {position[INDEX]}"
        kept = self._keep(current, f"{kind}-{batch}") if again and current.exists() else ""
        what = f"{died} ({where})" if kept else f"{died} (batch {batch}; its inputs alone do nothing)"
        self._report.findings.append(Finding(kind, what, kept))

    def _keep(self, file: Path, name: str) -> str:
        """Move an input to the folder of findings."""
        self._kept.mkdir(parents=True, exist_ok=True)
        place = self._kept / f"{self._report.target}-{self._seed}-{name}-{len(self._report.findings)}"
        shutil.move(file, place)
        return str(place)

    def replay(self, file: Path) -> str:
        """Check the input in a file alone. Returns "", or what is wrong."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            folder = Path(name)
            position = Position.create(folder / "position")
            died = self._watch(folder, position, ["--input", str(file.resolve())])
            return died or (folder / "answer").read_text()


def _ending(code: int, folder: Path) -> str:
    """The end of a child in words, "" after success."""
    if code == 0:
        return ""
    last = (folder / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}: {' '.join(last)[:500]}"
