"""Run a part of the tests, and what failed once more, by itself.

    python -m tests.suite newcomer|thorough|nightly|lowest [--load N] [--repeat N] [arguments for pytest]

A path of the package among the arguments stands for the tests that guard it. The exit code is 0 if every test passed,
at most three of them only at the second try.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.kafka_broker.broker import NoKafka, die_with_parent, find_nodes
from tests.suite.hooks import RESULTS, cpu_seconds
from tests.suite.rings import ring_of
from tests.suite.stumbles import Failure, classify, note, report
from tests.suite.times import BUILD, PROJECT

PARTS = {
    "newcomer": "not thorough and not nightly",
    "thorough": "thorough and not nightly",
    "nightly": "nightly",
    "lowest": "not thorough and not nightly",
}
"""Each part with the marks of its tests."""
CALLS_LIBRARIES = (
    *(f"tests/{room}" for room in ("adapters", "cli", "config", "contract", "evaluate/files", "roles/scorer")),
    *(f"tests/core/{room}" for room in ("machine", "model/optimizers", "control")),
    *(f"tests/core/events/test_{what}.py" for what in ("feature_keys", "features", "requests", "schema_forms")),
    *(f"tests/core/{what}.py" for what in ("join/test_join", "log/test_examples", "gate/test_series")),
    *(f"tests/core/model/{what}.py" for what in ("test_learner", "test_losses", "table/test_table")),
    *(f"tests/core/snapshots/test_{what}.py" for what in ("predictor", "replica", "snapshots")),
    *(f"tests/cli_e2e/test_{command}.py" for command in ("help", "run", "score", "scorer_forks", "topics")),
    *(
        f"tests/cli_e2e/test_evaluate.py::test_{what}"
        for what in ("every_format_gives_the_same_rows", "curves_are_drawn")
    ),
    *(f"tests/roles/learner/test_{what}.py" for what in ("leaders", "lost_state")),
    *(f"tests/e2e/test_{story}.py" for story in ("joiners", "loop", "publication", "restarts", "schemas")),
    "tests/fuzz/test_found.py",
)
"""What the part `lowest` runs. Another version of a library can change what the library answers, and what numba and
NumPy make of a kernel, but no law of the program: every adapter, every server, every command-line and configuration
form, one test with an oracle for each kind of kernel, and the main stories. `make test-lowest ARGS=tests` runs all."""
PROCESSES_EACH = 2
"""Processes that run tests, for each processor: half of a test is waiting for a broker."""
MOST_PROCESSES = 8
"""More than these would wait for their one broker, and each takes half a gigabyte."""
MOST_REPEATED = 30
"""More failures than this are no stumbles."""
TESTS_FAILED = 1
DEAREST = 15
"""So many files are named at the end of a run, with their processor time."""


def processes() -> int:
    """How many processes run tests side by side."""
    return min(PROCESSES_EACH * len(os.sched_getaffinity(0)), MOST_PROCESSES)


def environment() -> dict[str, str]:
    """The environment, without the wish that Python keeps no bytecode: thousands of processes are started."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def require_broker() -> None:
    """End with one line where no test of a broker can pass."""
    try:
        if not os.environ.get("KAFKA_BOOTSTRAP"):
            find_nodes()
    except (NoKafka, RuntimeError) as error:
        sys.exit(str(error))


def compile_kernels() -> None:
    """Compile what most tests run, once, and not in each of the processes that run them."""
    roles = [word for role in ("joiner", "learner", "scorer", "serve") for word in ("--role", role)]
    command = [sys.executable, "-m", "stream_learner", "compile", *roles]
    subprocess.run(command, env=environment(), cwd=PROJECT, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def rewriting_asserts() -> Iterator[None]:
    """Beside the block, let pytest rewrite the tests' modules once, for each of the processes that run them; where it
    never has."""
    if any((PROJECT / "tests" / "__pycache__").glob("*-pytest-*")):
        yield
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    with subprocess.Popen(command, env=environment(), cwd=PROJECT, stdout=subprocess.DEVNULL):
        yield


def pytest(project: Path, arguments: Sequence[str], results: Path) -> int:
    """Run pytest to its end; its exit code. `results` is written anew."""
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    env = {**environment(), RESULTS: str(results)}
    return subprocess.run(command, env=env, cwd=project, preexec_fn=die_with_parent(), check=False).returncode


def failures_in(results: Path) -> list[Failure]:
    """The tests that failed, each with its first failure."""
    found: dict[str, Failure] = {}
    for result in _read(results):
        if result["outcome"] == "failed":
            failure = Failure(result["id"], result["when"], result["error"], result.get("log", ""))
            found.setdefault(failure.id, failure)
    return list(found.values())


def passed_in(results: Path) -> set[str]:
    """The tests that came to their end, and did not fail."""
    ended = {result["id"] for result in _read(results) if result["when"] == "teardown"}
    return ended - {failure.id for failure in failures_in(results)}


def _read(results: Path) -> list[dict[str, Any]]:
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return [json.loads(line) for line in lines]


def processor_time(results: Path, total_s: float) -> str:
    """Where the processor time of a run went, for its end: the sum, that of the tests, the dearest files.

    total_s: user and system, of all processes of the run. Of a test count its process, in which roles are threads, and
    the processes that it started and waited for; the rest are the collection, the shared broker, and compiled kernels.
    """
    by_file: Counter[str] = Counter()
    for result in _read(results):
        by_file[result["id"].partition("::")[0]] += result.get("cpu", 0.0)
    dearest = [f"{seconds:8.1f} s  {file}" for file, seconds in by_file.most_common(DEAREST) if seconds >= 1]
    sums = f"== {total_s:.0f} s of processor time, {by_file.total():.0f} s of it in the tests"
    return "\n".join([sums, *dearest])


def slowest_told(results: Path) -> str:
    """The mistake of a user that was told latest after its start, for the end of a run; "" for none. Tests note it as
    `told_s`, and none asserts it.
    """
    noted = [(result["told_s"], result["id"]) for result in _read(results) if "told_s" in result]
    return "== {} s until the mistake of {} was told\n".format(*max(noted)) if noted else ""


def run(part: str, arguments: Sequence[str], project: Path = PROJECT) -> int:
    """Run a part of the tests of a project; what failed is run once more. The exit code: 0 if the part passed."""
    build = project / BUILD
    build.mkdir(parents=True, exist_ok=True)
    spread = [] if "-n" in arguments else ["-n", str(processes())]
    code = pytest(project, [*spread, "-m", PARTS[part], *arguments], build / f"{part}.jsonl")
    failures = failures_in(build / f"{part}.jsonl")
    if code != TESTS_FAILED or len(failures) > MOST_REPEATED or not all(failure.is_a_test for failure in failures):
        return code
    print(f"\n== once more, alone: {len(failures)} of the tests", flush=True)
    again = build / f"{part}-again.jsonl"
    pytest(project, ["-n", "0", *(failure.id for failure in failures)], again)
    verdict = classify(failures, passed_in(again))
    note(verdict.unstable, build / "unstable.jsonl")
    print(f"\n{report(verdict)}", flush=True)
    return 0 if verdict.passed else TESTS_FAILED


@contextmanager
def load(busy: int) -> Iterator[None]:
    """Keep so many processes busy beside the tests."""
    command = [sys.executable, "-I", "-c", "while True: pass"]
    others = [subprocess.Popen(command, preexec_fn=die_with_parent()) for _ in range(busy)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def main() -> int:
    """Run the part as often as asked, until it fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite", allow_abbrev=False, description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--load", type=int, default=0, metavar="N", help="busy processes beside the tests")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="so many times in a row")
    options, given = parser.parse_known_args()
    try:
        arguments = [one for argument in given for one in ring_of(argument)]
    except ValueError as error:
        parser.error(str(error))
    beside_compiler: AbstractContextManager[None] = nullcontext()
    if not any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        require_broker()
        beside_compiler = rewriting_asserts()
        arguments += CALLS_LIBRARIES if options.part == "lowest" else ()
    with beside_compiler:
        compile_kernels()
    with load(options.load):
        for turn in range(1, options.repeat + 1):
            began_s = time.monotonic()
            code = run(options.part, arguments)
            seconds = time.monotonic() - began_s
            beside = f", {options.load} busy processes beside it" if options.load else ""
            results = PROJECT / BUILD / f"{options.part}.jsonl"
            print(processor_time(results, cpu_seconds()))
            print(
                f"{slowest_told(results)}== {options.part}, run {turn} of {options.repeat}{beside}: exit {code} after "
                f"{seconds:.0f} s",
                flush=True,
            )
            if code != 0:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
