"""Where machine code is kept: found while the sources are the same, and doing without where nothing can be kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stream_learner
from stream_learner.core.machine.carried import V3_INSTRUCTIONS, processor_for
from stream_learner.core.machine.kernels import KERNEL_FOLDERS, sources_stamp

PACKAGE = Path(stream_learner.__file__).parent
SCRIPT = """
from stream_learner.core.machine import hashing, kernels
from stream_learner.core.parts import HASHING, compile_parts

compile_parts([HASHING])
print(sum(hashing.hash_spans.stats.cache_misses.values()), kernels.missing())
print(kernels.MACHINE_CODE.unkept)
"""
OURS = "core/events/reasons.py"


def started(package: Path, cache: Path | str, script: str = SCRIPT) -> subprocess.Popen[str]:
    """A new process that uses the machine code of a folder."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache)},
        cwd=package.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, int, str, str]:
    """How many versions of one kernel and of all kernels a process had to compile, why they cannot be kept, and what
    it wrote to stderr.
    """
    out, err = process.communicate()
    assert process.returncode == 0, err
    counts, unkept = out.splitlines()
    one, every = counts.split()
    return int(one), int(every), unkept, err


def misses(package: Path, cache: Path | str) -> tuple[int, str]:
    """How many versions of a kernel a new process had to compile, and what it wrote to stderr."""
    one, _, _, err = ended(started(package, cache))
    return one, err


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """What one process alone leaves in an empty folder, to be copied, and how many versions of kernels it compiled."""
    cache = tmp_path_factory.mktemp("compiled")
    return cache, ended(started(PACKAGE, cache))[1]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    return Path(shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")))


def test_machine_code_is_current_while_the_sources_have_the_same_content(package: Path, tmp_path: Path) -> None:
    """Another time of change is no change, as after a copy into an image; one byte is, also where size and time stay as
    they were. That it is so in any file of `KERNEL_FOLDERS` is what the test of the stamp shows.
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


def files_with_kernels(package: Path) -> list[Path]:
    """Every file of the package that has compiled functions."""
    files = package.rglob("*.py")
    return sorted(
        file for file in files if re.search(r"^@(entry|kernel|inlined)\b", file.read_text(encoding="utf-8"), re.M)
    )


def test_every_kernel_is_part_of_the_stamp(package: Path) -> None:
    """Whichever file with kernels changes, machine code of before is not taken for current; each folder has some."""
    files = files_with_kernels(package)
    assert {folder for folder in KERNEL_FOLDERS if any(file.is_relative_to(package / folder) for file in files)} == {
        *KERNEL_FOLDERS
    }
    before = sources_stamp(package)
    for file in files:
        source = file.read_bytes()
        file.write_bytes(source.replace(b"the", b"teh", 1))
        assert sources_stamp(package) != before, file
        file.write_bytes(source)
    assert sources_stamp(package) == before


def test_where_nothing_can_be_kept_kernels_work_and_it_is_known_why() -> None:
    """A folder that cannot be written or made is no error."""
    compiled, _, unkept, err = ended(started(PACKAGE, "/dev/null/cache"))
    assert compiled > 0
    assert (unkept, err) == ("Not a directory", "")


def files_in(folder: Path) -> list[str]:
    """The names of all files below a folder."""
    return sorted(file.name for file in folder.rglob("*") if file.is_file())


@pytest.mark.thorough
def test_of_several_processes_one_compiles(compiled: tuple[Path, int], tmp_path: Path) -> None:
    """They start together with an empty folder; what all of them compile is what one alone would, and a lock leaves
    no file behind.
    """
    alone, versions = compiled
    processes = [started(PACKAGE, tmp_path) for _ in range(3)]
    assert sorted(ended(process)[1] for process in processes) == [0, 0, versions]
    assert files_in(tmp_path) == files_in(alone)


COMPILES_FOR_EVER = """
import time
from stream_learner.core.machine.kernels import MACHINE_CODE

MACHINE_CODE.begin()
assert MACHINE_CODE.take_turn()
print("has its turn", flush=True)
time.sleep(600)
"""
SAYS_WHEN_IT_WAITS = """
import threading, time
from stream_learner.core.machine.kernels import MACHINE_CODE

def watch():
    while not MACHINE_CODE.waits:
        time.sleep(0.01)
    print("waits", flush=True)

threading.Thread(target=watch, daemon=True).start()
"""


@pytest.mark.thorough
def test_a_process_that_is_killed_while_it_compiles_leaves_its_turn_to_the_next(tmp_path: Path) -> None:
    """The lock ends with the process."""
    first = started(PACKAGE, tmp_path, COMPILES_FOR_EVER)
    assert first.stdout is not None and first.stdout.readline() == "has its turn\n"
    second = started(PACKAGE, tmp_path, SAYS_WHEN_IT_WAITS + SCRIPT)
    assert second.stdout is not None and second.stdout.readline() == "waits\n"
    first.kill()
    first.communicate()
    assert ended(second)[1] > 0


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
from stream_learner.core.parts import compile_parts, parts_of
from tests.core.model import test_learner_bounded
from tests.core.model.table import test_bounded

compile_parts(parts_of(["learner"]))
with event.install_recorder("numba:compile") as seen:
    test_bounded.test_the_rows_touched_longest_ago_leave_first()
    test_learner_bounded.test_a_learner_goes_on_from_the_cold_side_with_no_row_in_memory()
print(*sorted({str(e.data["dispatcher"]) for _, e in seen.buffer}), sep="\\n", end="")
"""


def test_a_table_with_little_memory_compiles_nothing_after_the_start() -> None:
    """Rows leave and come back: the kernels for that are there from the start, as compiling one takes seconds and tens
    of MiB, in an image each time.
    """
    evicted = subprocess.run([sys.executable, "-c", EVICTS], capture_output=True, text=True, check=True)
    assert evicted.stdout == ""


SERVES = """
import sys
from numba.core.dispatcher import Dispatcher
from stream_learner.core.events.fast.requests import find_elements
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec
from stream_learner.core.parts import compile_parts, parts_of

def versions():
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith("stream_learner.")]
    return {
        (name, attribute): len(value.signatures)
        for name, module in modules
        for attribute, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }

compile_parts(parts_of(["serve"]))
before = versions()
found = find_elements(b'{"instances":[{"site":"a","n":1},{"site":"b","n":2.5}]}', b"instances", 10)
encoder = FeatureEncoder(FeatureSpec())
for _ in range(2):
    assert encoder.encode_json(found.data, found.bounds).status.tolist() == [0, 0]
found.bounds.flags.writeable = False
encoder.encode_json(found.data, found.bounds)
encoder.encode_one({"site": "a"})
print(*(versions().items() - before.items()), sep="\\n", end="")
"""


def test_a_request_loads_and_compiles_no_kernel_after_the_start() -> None:
    """Whatever kind of array its bytes and bounds are in: a server would answer its first requests late."""
    served = subprocess.run([sys.executable, "-c", SERVES], capture_output=True, text=True, check=True)
    assert served.stdout == ""


ENCODES = """
import hashlib
import numpy as np
from stream_learner.core.machine import hashing, kernels
from stream_learner.core.log.examples import ExampleBatch, decode, encode_examples
from stream_learner.core.parts import HASHING, TRAINING_LOG, compile_parts

compile_parts([HASHING, TRAINING_LOG])
missing = kernels.missing()
keys = np.array(hashing.hash_texts([b"%d" % (i % 700) for i in range(4_000)]), np.uint64)
ones = np.ones(400)
batch = ExampleBatch(np.arange(400), keys[:400], ones, ones, np.arange(0, 4_001, 10), keys, np.arange(4_000) / 7)
records = encode_examples(0, 0, 1, batch)
checksum = hashlib.sha256(b"".join(records) + b"".join(decode(record).keys.tobytes() for record in records))
print(missing, kernels.missing() - missing, checksum.hexdigest())
"""


def encoded(cache: Path) -> tuple[int, int, str]:
    """Kernels that a start did not find in a cache, those that the work after it did not, and the work's checksum."""
    process = started(PACKAGE, cache, ENCODES)
    out, err = process.communicate()
    assert process.returncode == 0, err
    missing, more, checksum = out.split()
    return int(missing), int(more), checksum


@pytest.mark.thorough
def test_kernels_compiled_beside_loaded_ones_have_the_same_bits(tmp_path: Path) -> None:
    """Loading leaves out what only a compiler needs; a kernel that is compiled after that has it all the same, and may
    call kernels that were loaded.
    """
    everything, _, checksum = encoded(tmp_path)
    for index in sorted(tmp_path.rglob("*.nbi"))[::2]:
        index.unlink()
    some, *same = encoded(tmp_path)
    assert 0 < some < everything
    assert same == [0, checksum]
    assert encoded(tmp_path) == (0, 0, checksum)


def flipped(content: bytes) -> bytes:
    """One bit in the middle is another."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


DAMAGES = (lambda _: b"", lambda content: content[: len(content) // 3], flipped, lambda content: b"x" * len(content))


@pytest.mark.thorough
@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_damaged_machine_code_is_compiled_again(ending: str, compiled: tuple[Path, int], tmp_path: Path) -> None:
    """Files that are empty, cut, flipped in a bit or full of something else: no start fails, the second is whole."""
    whole, before = compiled
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    files = sorted(tmp_path.rglob(f"*{ending}"))
    for number, file in enumerate(files):
        file.write_bytes(DAMAGES[number % len(DAMAGES)](file.read_bytes()))
    assert len(files) >= len(DAMAGES)
    one, every, unkept, err = ended(started(PACKAGE, tmp_path))
    assert 0 < every <= before
    assert (one > 0, unkept, err) == (True, "", "")
    assert ended(started(PACKAGE, tmp_path))[1] == 0


TWO_THREADS = """
import faulthandler, threading
import numpy as np
from stream_learner.core.snapshots import kernels
from stream_learner.core.snapshots.table import ReplicaTable

def predict():
    begins.wait()
    table.predict(np.arange(1, 2, dtype=np.uint64), np.ones(1), np.array([0, 1]))

def enter():
    begins.wait()
    for _ in range(100):
        kernels.leave(table.control, kernels.enter(table.control))

faulthandler.enable()
table, begins = ReplicaTable(lambda: None), threading.Barrier(2)
threads = [threading.Thread(target=target) for target in (predict, enter)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@pytest.mark.thorough
def test_a_kernel_is_called_while_another_thread_compiles_one_that_calls_it(tmp_path: Path) -> None:
    """With an empty cache. A process that ends by a signal says where."""
    process = started(PACKAGE, tmp_path, TWO_THREADS)
    _, err = process.communicate()
    assert process.returncode == 0, f"exit code {process.returncode}: {err}"
