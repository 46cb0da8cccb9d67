"""Makes a copy of a tree, a mistake in it, and runs the tests that should catch it.

It must never write into the tree, nor leave a file or a process behind; what the tests fetch once for all (the broker,
Helm) is kept where the tests of the tree keep it.

Compiled kernels count as current while the files that they are made of are the same. So those of the tree are copied
too, unless the mistake is made in one of these; then the tests compile what they need, which takes 20 s and more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from stream_learner.core.machine.kernels import KERNEL_FOLDERS
from tools.seeded_faults.fault import BadFault, Fault

PARTS = {
    "newcomer": ("-m", "not thorough and not nightly"),
    "thorough": ("-m", "thorough or nightly"),
    "all": (),
}
LIMIT_S = 1800.0
"""A run of tests that takes longer is ended."""
PLUGIN = Path(__file__).with_name("note_failures.py")
PLUGIN_NAME = "seeded_faults_note_failures"
KERNELS = tuple(f"stream_learner/{folder}/" for folder in KERNEL_FOLDERS)
"""The folders whose files kernels are made of."""
SHARED = ("kafka", "helm")
"""Folders of `.build` with what the tests have fetched; a copy uses those of the tree."""
BESIDE = "shared"
"""The folder beside the tree with the data sets that some tests read, and are skipped without."""
LEFT_OUT = ("PYTEST_", "TEST_", "NUMBA_CACHE_DIR")
"""Variables of a run of tests that may be under way around this one."""
PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
"""Exit codes of pytest."""


class CannotTell(Exception):
    """The tests of a fault did not come to an end; the message says why."""


class Verdict(Enum):
    """The answer to whether a fault is caught. UNSURE: a test failed, perhaps for another reason; or none came to an
    end."""

    CAUGHT = "caught"
    MISSED = "MISSED"
    UNSURE = "UNSURE"


@dataclass(frozen=True)
class Outcome:
    """The result of a fault. test: the first that failed, "" if none did. said: its error in a line, or a remark."""

    name: str
    verdict: Verdict
    test: str
    said: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """A run of pytest: its exit code, the first test that failed with what it said, the end of its output."""

    code: int
    test: str
    said: str
    output: str

    @property
    def failed(self) -> bool:
        """Whether a test failed, or a file could not be collected."""
        return self.code in (FAILED, INTERRUPTED)


class Copies:
    """Copies of one tree as it was when this was made, in a temporary folder. May be used by several threads."""

    def __init__(self, tree: Path, folder: Path) -> None:
        """Raises BadFault where git keeps no files of the tree, or where the tests would not run the copy."""
        self._folder = folder
        self._lock = threading.Lock()
        self._processes = Processes()
        self._passes: dict[str, bool] = {}
        self._files = _files_of(tree)
        self._caches, self._beside = tree / ".build", tree.parent / BESIDE
        self._clean = self._copy(tree, "without")
        self._clean.check()

    @property
    def tree(self) -> Path:
        """A copy without a mistake."""
        return self._clean.root

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[Copy]:
        """A copy with the mistake in it, for as long as this is open. Raises BadFault."""
        file, text = fault.file_in(self.tree), fault.text_in(self.tree)
        copy = self._copy(self.tree, f"with-{fault.name}", compiled=not file.startswith(KERNELS))
        try:
            (copy.root / file).write_text(text, encoding="utf-8")
            yield copy
        finally:
            shutil.rmtree(copy.folder, ignore_errors=True)

    def passes_without(self, test: str) -> bool:
        """Whether a test passes where no mistake was made."""
        with self._lock:
            if test not in self._passes:
                self._passes[test] = self._clean.run([test]).code == PASSED
            return self._passes[test]

    def end(self) -> None:
        """End the tests that are running, and let no others begin."""
        self._processes.end()

    def _copy(self, tree: Path, name: str, *, compiled: bool = True) -> Copy:
        folder = self._folder / name
        root = folder / "tree"
        for file in self._files:
            _copy_file(tree / file, root / file)
        if compiled:
            for path in (found for folder in KERNELS for found in (tree / folder).rglob("__pycache__/*.nb[ic]")):
                _copy_file(path, root / path.relative_to(tree))
        (root / ".build").mkdir()
        for shared in SHARED:
            (self._caches / shared).mkdir(parents=True, exist_ok=True)
            (root / ".build" / shared).symlink_to(self._caches / shared)
        if self._beside.is_dir():
            (folder / BESIDE).symlink_to(self._beside)
        return Copy(folder, root, self._processes)


def _files_of(tree: Path) -> list[str]:
    """The files of a tree, those that are new included. Raises BadFault where git keeps none."""
    command = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    files = [name for name in listed.stdout.split("\0") if name]
    if listed.returncode != 0 or not files:
        raise BadFault(f"{tree} is no git checkout: {listed.stderr.strip() or 'git lists no files'}")
    return files


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file, unless it is gone by now."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


class Copy:
    """A copy of the tree in `root`; `folder` holds it, and what its tests leave."""

    def __init__(self, folder: Path, root: Path, processes: Processes) -> None:
        self.folder = folder
        self.root = root
        self._processes = processes
        self._temporary = folder / "tmp"
        self._plugins = folder / "plugins"
        self._temporary.mkdir()
        self._plugins.mkdir()
        shutil.copy2(PLUGIN, self._plugins / f"{PLUGIN_NAME}.py")

    def check(self) -> None:
        """Raise BadFault unless Python imports the program from this copy."""
        code = "import stream_learner; print(stream_learner.__file__)"
        run = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self._temporary,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0 or not Path(run.stdout.strip()).is_relative_to(self.root):
            found = run.stdout.strip() or run.stderr.strip().splitlines()[-1]
            raise BadFault(f"the tests would not run the copy: stream_learner is taken from {found}")

    def run(self, arguments: Sequence[str]) -> Run:
        """Run pytest up to the first failure. Raises CannotTell where it does not come to an end."""
        notes, output = self.folder / "notes.jsonl", self.folder / "output.txt"
        notes.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", PLUGIN_NAME, "-p", "no:cacheprovider"]
        if importlib.util.find_spec("xdist") is not None:
            command += ["-n", "0"]
        environment = {**self._environment(), "SEEDED_FAULTS_NOTES": str(notes)}
        with output.open("w", encoding="utf-8") as file:
            code = self._processes.run([*command, *arguments], self.root, environment, file.fileno())
        text = output.read_text(encoding="utf-8", errors="replace")
        if code not in (PASSED, FAILED, INTERRUPTED, NO_TESTS):
            raise CannotTell(f"pytest ended with exit code {code}: {_last_line(text)}")
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        first = json.loads(lines[0]) if lines else {"test": "", "said": ""}
        return Run(code, first["test"], first["said"], text)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
        path = os.pathsep.join([str(self.root), str(self._plugins)])
        return {**kept, "PYTHONPATH": path, "TMPDIR": str(self._temporary)}


class Processes:
    """Runs commands, each with a process group of its own, which can be ended as a whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, command: Sequence[str], where: Path, environment: dict[str, str], output: int) -> int:
        """The exit code of a command. Raises CannotTell where it takes too long, or was ended."""
        with self._lock:
            if self._ended:
                raise CannotTell("the tests were ended")
            process = subprocess.Popen(
                command, cwd=where, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            self._running.add(process)
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise CannotTell(f"the tests took longer than {LIMIT_S:.0f} s") from None
        finally:
            with self._lock:
                _end_group(process)
                self._running.discard(process)

    def end(self) -> None:
        """End what is running, and let nothing else begin."""
        with self._lock:
            self._ended = True
            for process in tuple(self._running):
                _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, and those that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check_fault(fault: Fault, copies: Copies, part: str) -> Outcome:
    """Make a mistake in a copy, and run what should catch it. Raises BadFault."""
    began_s = time.monotonic()
    try:
        with copies.with_fault(fault) as copy:
            verdict, test, said = _judge(copy, copies, PARTS[part], fault.tests_in(copies.tree))
    except CannotTell as error:
        verdict, test, said = Verdict.UNSURE, "", str(error)
    return Outcome(fault.name, verdict, test, said, time.monotonic() - began_s)


def _judge(copy: Copy, copies: Copies, part: Sequence[str], files: Sequence[str]) -> tuple[Verdict, str, str]:
    """The verdict, the test that failed, what it said."""
    any_test = False
    for file in files:  # one by one: the suite would begin with the one that takes longest
        run = copy.run([*part, file])
        any_test |= run.code != NO_TESTS
        if run.failed:
            break
    else:
        return Verdict.MISSED, "", "" if any_test else "no test of this part is in these files"
    if not run.test:
        raise CannotTell(f"pytest failed, and no test did: {_last_line(run.output)}")
    if not copies.passes_without(run.test):
        return Verdict.UNSURE, run.test, "the test fails without the fault too"
    if not copy.run([run.test]).failed:
        return Verdict.UNSURE, run.test, f"run again alone, the test passed; at first it said: {run.said}"
    return Verdict.CAUGHT, run.test, run.said


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


@contextmanager
def copies_of(tree: Path) -> Iterator[Copies]:
    """Copies of a tree, which are gone when this is closed. Raises BadFault."""
    with tempfile.TemporaryDirectory(prefix="seeded-faults-", ignore_cleanup_errors=True) as folder:
        copies = Copies(tree.resolve(), Path(folder).resolve())
        try:
            yield copies
        finally:
            copies.end()
