"""How the tests are run: what is run once more, what counts as unstable, how long a test waits."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import waiting
from tests.kafka_broker.broker import NoKafka
from tests.kafka_broker.lender import SOCKET, Lender, borrow
from tests.suite.__main__ import CALLS_LIBRARIES, PARTS, main, processor_time, run, slowest_told
from tests.suite.hooks import RESULTS
from tests.suite.rings import ALSO, PACKAGE, ring_of
from tests.suite.stumbles import MOST_UNSTABLE, Failure, classify, report
from tests.suite.times import PAGE, PROJECT, measured, page_with, read, seconds_by_file, table

CONFTEST = """
from tests.suite.hooks import (
    pytest_collectreport, pytest_configure, pytest_runtest_logreport, pytest_runtest_makereport, pytest_unconfigure
)
"""
STUMBLES = """
from pathlib import Path

def test_that_passes_alone():
    seen = Path(__file__).with_name("seen-{name}")
    first = not seen.exists()
    seen.touch()
    print("what it wrote\\n" * 1_000)
    assert not first, "the words of the first failure"
"""
FAILS = "def test_that_fails(): assert 1 == 2"
PASSES = "def test_that_passes(): pass"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one test that passes."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take a second each time
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv(SOCKET, raising=False)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p xdist.plugin\n")
    (tmp_path / "test_passes.py").write_text(PASSES)
    return tmp_path


def test_a_broker_that_is_given_and_does_not_answer_ends_the_run_before_any_test(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one line that names the variable and the address; no test is collected."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and not listened on
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("KAFKA_BOOTSTRAP", address)
        monkeypatch.setenv(waiting.SLOWNESS, "1")
        ended = subprocess.run(
            [sys.executable, "-m", "pytest"], cwd=project, capture_output=True, text=True, check=False
        )
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = ended.stderr.strip().splitlines()
    assert f"KAFKA_BOOTSTRAP={address}: no broker answers" in line
    assert "test_passes" not in ended.stdout


def unstable(project: Path) -> list[dict[str, str]]:
    """The entries of the list of unstable tests."""
    file = project / ".build" / "tests" / "unstable.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def stumble(project: Path, count: int) -> None:
    """Add tests that fail the first time only."""
    for name in range(count):
        (project / f"test_stumbles_{name}.py").write_text(STUMBLES.replace("{name}", str(name)))


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_test_that_passes_alone_is_unstable_and_kept_with_its_first_failure(
    project: Path, processes: str, capfd: pytest.CaptureFixture[str]
) -> None:
    stumble(project, 1)
    assert run("newcomer", ["-n", processes], project) == 0
    said = capfd.readouterr().out
    assert "UNSTABLE test_stumbles_0.py::test_that_passes_alone (failed at call, passed alone)" in said
    assert "the words of the first failure" in said.partition("UNSTABLE")[2]
    assert 10 < said.partition("UNSTABLE")[2].count("what it wrote") < 100
    (kept,) = unstable(project)
    assert kept["id"] == "test_stumbles_0.py::test_that_passes_alone"
    assert "the words of the first failure" in kept["error"]
    assert kept["log"].count("what it wrote") == 1_000


@pytest.mark.thorough
def test_more_unstable_tests_than_three_fail_the_run(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stumble(project, MOST_UNSTABLE + 1)
    assert run("newcomer", ["-n", "0"], project) == 1
    assert "4 unstable, which is more than 3: the run counts as failed" in capfd.readouterr().out
    assert len(unstable(project)) == 4


def test_what_fails_twice_is_a_failure(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stumble(project, 1)
    (project / "test_fails.py").write_text(FAILS)
    assert run("newcomer", ["-n", "0"], project) == 1
    said = capfd.readouterr().out
    assert "FAILED test_fails.py::test_that_fails (twice)" in said
    assert "== 1 failed twice, 1 unstable" in said


@pytest.mark.parametrize("text", ["import nothing_of_this_name", "def test_cut("])
def test_a_file_that_cannot_be_read_fails_the_run_at_once(project: Path, text: str) -> None:
    (project / "test_broken.py").write_text(text)
    assert run("newcomer", ["-n", "0"], project) not in (0, 5)
    assert not (project / ".build" / "tests" / "newcomer-again.jsonl").exists()


@pytest.mark.thorough
def test_each_part_runs_its_own_tests(project: Path) -> None:
    (project / "test_long.py").write_text(f"import pytest\n@pytest.mark.thorough\n{FAILS}")
    (project / "test_night.py").write_text(
        "import pytest\n@pytest.mark.nightly\n@pytest.mark.thorough\ndef test(): pass"
    )
    assert [run(part, ["-n", "0"], project) for part in PARTS] == [0, 1, 0, 0]


ENDS_ITS_PROCESS = """
import os, pytest

def test_before(): pass
@pytest.mark.parametrize("how", [lambda: os._exit(0), os.abort])
def test_that_ends_its_process(how): how()
def test_that_fails(): assert 1 == 2
def test_after(): pass
"""


@pytest.mark.thorough
def test_what_ends_its_process_is_a_failure_and_the_others_run(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where the process ended as one that has done its work, in the run and when it was alone."""
    (project / "conftest.py").write_text(
        CONFTEST.replace("hooks import (", "hooks import (pytest_xdist_make_scheduler,")
    )
    (project / "test_ends.py").write_text(ENDS_ITS_PROCESS)
    assert run("newcomer", ["-n", "2"], project) == 1
    said = capfd.readouterr().out
    assert "3 failed, 3 passed" in said, "each once; what comes after them, too"
    assert re.findall(r"^FAILED (\S+) \(twice\)", said, re.MULTILINE) == [
        f"test_ends.py::{name}"
        for name in ("test_that_ends_its_process[<lambda>]", "test_that_ends_its_process[abort]", "test_that_fails")
    ]
    assert "== 3 failed twice, 0 unstable" in said


def test_a_run_that_leaves_tests_out_fails(project: Path) -> None:
    """A run fails if some tests were not run, as when too many processes ended."""
    (project / "conftest.py").write_text(
        CONFTEST.replace("hooks import (", "hooks import (pytest_xdist_make_scheduler, pytest_sessionfinish,")
    )
    (project / "test_ends.py").write_text(ENDS_ITS_PROCESS)
    assert run("newcomer", ["-n", "1", "--max-worker-restart", "0"], project) != 0


def test_a_repetition_that_does_not_end_clears_nobody() -> None:
    failures = [Failure("a::b", "call", "x"), Failure("a::c", "setup", "y")]
    verdict = classify(failures, set())
    assert (verdict.failed, verdict.passed) == (failures, False)
    assert "FAILED a::c (twice)" in report(verdict)


def test_what_the_lowest_versions_run_is_there() -> None:
    for file, _, test in (one.partition("::") for one in CALLS_LIBRARIES):
        assert (PROJECT / file).exists(), file
        assert not test or f"def {test}(" in (PROJECT / file).read_text(encoding="utf-8"), test


def test_a_wrong_part_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["tests.suite", "all-of-it"])
    with pytest.raises(SystemExit):
        main()
    assert "newcomer" in capsys.readouterr().err


def test_where_no_broker_can_be_had_every_process_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    assert borrow() is None
    asked = []

    def none() -> None:
        asked.append(1)
        raise NoKafka("install Java")

    monkeypatch.setattr("tests.kafka_broker.broker.find_nodes", none)
    lender = Lender()
    try:
        for _ in range(3):
            with pytest.raises(NoKafka, match=r"^install Java$"):
                borrow()
    finally:
        lender.close()
    assert (len(asked), borrow()) == (1, None)


def test_patience_grows_with_the_measure_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(waiting.SLOWNESS, "2.5")
    waiting.slowness.cache_clear()
    assert waiting.patience(10) == 25
    monkeypatch.undo()
    waiting.slowness.cache_clear()
    assert 1 <= waiting.measure() <= 10


def test_what_does_not_come_true_fails_with_what_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    with pytest.raises(AssertionError, match="the sun rises, asked 1"):
        waiting.wait_until(lambda: asked.append(1), lambda: f"the sun rises, asked {len(asked[:1])}", patience_s=0.01)
    answers = iter([None, None, 0])
    assert waiting.wait_for(lambda: next(answers), look_s=0) == 0


def test_times_are_of_files_that_exist_and_stand_in_contributing() -> None:
    times = read()
    assert set(times) == {"newcomer", "thorough"}
    missing = [file for file in seconds_by_file() if not (PROJECT / file).exists()]
    assert missing == [], "measure again: make test-all, then python -m tests.suite.times"
    assert PAGE.read_text(encoding="utf-8") == page_with(times)


def test_measured_seconds_are_summed_by_file() -> None:
    lines = [
        json.dumps({"id": f"tests/{name}.py::test[{case}]", "seconds": 0.25})
        for name in ("a", "room/b")
        for case in range(4)
    ]
    times = {"newcomer": measured(lines), "thorough": {}}
    assert times["newcomer"] == {"tests/a.py": 1.0, "tests/room/b.py": 1.0}
    assert "| `tests/room` | 1 s | 0 s |" in table(times)


def test_processor_time_is_summed_by_file_and_the_dearest_come_first(project: Path) -> None:
    """Of all phases; a child that a test has waited for counts, and what takes no second is not named."""
    results = project / "results.jsonl"
    busy = ("a.py::test_a", 0.5), ("b.py::test_b", 2.0), ("b.py::test_c", 1.25), ("c.py::test_d", 0.25)
    results.write_text("".join(json.dumps({"id": name, "when": "call", "cpu": cpu}) + "\n" for name, cpu in busy))
    assert processor_time(results, 9.0).splitlines() == [
        "== 9 s of processor time, 4 s of it in the tests",
        "     3.2 s  b.py",
    ]


def test_the_mistake_that_was_told_latest_is_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what tests note; "" where none does."""
    results = project / "results.jsonl"
    monkeypatch.setenv(RESULTS, str(results))
    noting = "".join(f"def test_{s}(record_property): record_property('told_s', {s})\n" for s in (2, 11, 3))
    (project / "test_told.py").write_text(noting)
    assert slowest_told(results) == ""
    subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=project, capture_output=True, check=True)
    assert slowest_told(results) == "== 11 s until the mistake of test_told.py::test_11 was told\n"


def test_every_folder_of_the_package_has_a_ring_of_tests_that_are_there() -> None:
    """Its mirror below `tests`, or what `ALSO` names; other arguments are pytest's."""
    folders = [path.parent for path in (PROJECT / PACKAGE).glob("*/__init__.py")]
    inner = [
        path.parent
        for above in ("core", "adapters", "roles")
        for path in folders[0].parent.glob(f"{above}/*/__init__.py")
    ]
    named = [PROJECT / PACKAGE / path for path in ALSO]
    for path in [*folders, *inner, *named]:
        found = ring_of(path.relative_to(PROJECT).as_posix())
        assert found and all((PROJECT / test).exists() for test in found), path
    assert ring_of(f"{PACKAGE}/core/join/state.py") == ring_of(f"{PACKAGE}/core/join")
    assert ring_of("-k") == ["-k"] and ring_of("tests/core") == ["tests/core"]
    with pytest.raises(ValueError, match="there is no stream_learner/core/joyn"):
        ring_of(f"{PACKAGE}/core/joyn")
