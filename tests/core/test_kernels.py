"""Where machine code is kept: found while the sources are the same, and doing without where nothing can be kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stream_learner
from stream_learner.core.kernels import V3_INSTRUCTIONS, processor_for

PACKAGE = Path(stream_learner.__file__).parent
SCRIPT = (
    "from stream_learner.core import hashing; hashing.warm();print(sum(hashing.hash_spans.stats.cache_misses.values()))"
)
OURS = "core/reasons.py"


def misses(package: Path, cache: Path | str) -> tuple[int, str]:
    """How many versions of a kernel a new process had to compile, and what it wrote to stderr."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache)},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(ended.stdout), ended.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    return Path(shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")))


def test_machine_code_is_current_while_the_sources_have_the_same_content(package: Path, tmp_path: Path) -> None:
    """Another time of change is no change, as after a copy into an image; one byte in any file of `core` is, also
    where size and time stay as they were.
    """
    cache = tmp_path / "cache"
    source = package / OURS
    assert misses(package, cache)[0] > 0
    os.utime(source, (1, 1))
    assert misses(package, cache) == (0, "")
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("the", "teh", 1), encoding="utf-8")
    os.utime(source, (1, 1))
    assert misses(package, cache)[0] > 0


def test_where_nothing_can_be_kept_kernels_work_and_it_is_said_once() -> None:
    """A folder that cannot be written or made is a warning, not an error."""
    compiled, err = misses(PACKAGE, "/dev/null/cache")
    assert compiled > 0
    assert err.count("every start compiles them again") == 1


def test_the_processor_is_the_named_one_where_the_machine_can_run_it() -> None:
    """Machine code for x86-64-v3 would end a process on a machine without AVX2; x86-64-v2 is taken there."""
    everything = dict.fromkeys(V3_INSTRUCTIONS, True)
    assert processor_for("x86-64-v3", everything) == "x86-64-v3"
    for name in V3_INSTRUCTIONS:
        assert processor_for("x86-64-v3", {**everything, name: False}) == "x86-64-v2"
    assert processor_for("x86-64-v3", {}) == "x86-64-v2"
    assert processor_for("generic", {}) == "generic"
    assert processor_for(None, {}) is None


EVICTS = """
from numba.core import event
from stream_learner.core.warmup import compile_kernels
from tests.core import test_learner_bounded, test_weights_bounded

compile_kernels()
with event.install_recorder("numba:compile") as seen:
    test_weights_bounded.test_the_rows_touched_longest_ago_leave_first()
    test_learner_bounded.test_a_learner_goes_on_from_the_cold_side_with_no_row_in_memory()
print(*sorted({str(e.data["dispatcher"]) for _, e in seen.buffer}), sep="\\n", end="")
"""


def test_a_table_with_little_memory_compiles_nothing_after_the_start() -> None:
    """Rows leave and come back: the kernels for that are there from the start, as compiling one takes seconds and tens
    of MiB, in an image each time.
    """
    ended = subprocess.run([sys.executable, "-c", EVICTS], capture_output=True, text=True, check=True)
    assert ended.stdout == ""


FOLDS = """
from stream_learner.core import kernels, learner
from stream_learner.core.learner import Learner
from stream_learner.core.optimizers import sample_optimizer
from tests.core.example_records import as_record, random_examples

learner.warm()
missing = kernels.missing()
folds = Learner(sample_optimizer("ftrl_proximal"))
for tick in range(4):
    folds.fold(as_record(random_examples(200, tick)), tick)
print(missing, kernels.missing() - missing, f"{folds.digest_full():016x}")
"""


def folded(cache: Path) -> tuple[int, int, str]:
    """Kernels that a learner's start did not find in a cache, those that its fold did not, and its digest."""
    ended = subprocess.run(
        [sys.executable, "-c", FOLDS],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    missing, more, digest = ended.stdout.split()
    return int(missing), int(more), digest


def test_kernels_compiled_beside_loaded_ones_have_the_same_bits(tmp_path: Path) -> None:
    """Loading leaves out what only a compiler needs; a kernel that is compiled after that has it all the same, and may
    call kernels that were loaded.
    """
    everything, _, digest = folded(tmp_path)
    for index in sorted(tmp_path.rglob("*.nbi"))[::2]:
        index.unlink()
    some, *same = folded(tmp_path)
    assert 0 < some < everything
    assert same == [0, digest]
    assert folded(tmp_path) == (0, 0, digest)
