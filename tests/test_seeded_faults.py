"""The table of seeded faults fits the code, and the tool tells what is caught from what is missed."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tools.seeded_faults.__main__ import PROJECT, main
from tools.seeded_faults.fault import BadFault, Fault
from tools.seeded_faults.run import Verdict, check_fault, copies_of
from tools.seeded_faults.table import FAULTS

CHEAP = Fault(
    name="largest-of-the-limits",
    area="a fault of this test",
    harm="A role takes more memory than its container has.",
    file="stream_learner/adapters/machine.py",
    old="    return min(_limits(root), default=None)\n",
    new="    return max(_limits(root), default=None)\n",
    tests=("tests/adapters/test_container.py",),
)


def test_every_fault_fits_the_code() -> None:
    """Its old text stands in its file once, what comes of it is no syntax error, and there are tests to run."""
    for fault in FAULTS:
        text = fault.text_in(PROJECT)
        assert fault.old != fault.new, fault.name
        if fault.file.endswith(".py"):
            ast.parse(text, fault.name)
        assert fault.tests_in(PROJECT), fault.name


def test_there_are_many_faults_and_each_has_a_name_of_its_own() -> None:
    """At least twenty, in at least fifteen areas."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20
    assert len({fault.area for fault in FAULTS}) >= 15


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of a small program with two tests, one of which fails."""
    root = tmp_path / "checkout"
    files = {
        # Without the plugins that its tests do not need, pytest starts in a tenth of the time.
        "pytest.ini": "[pytest]\naddopts = -p no:schemathesis -p no:hypothesispytest -p no:anyio\n",
        "stream_learner/__init__.py": "ANSWER = 42\nTWICE = 84\n",
        "tests/test_answer.py": "import stream_learner\n\ndef test_answer():\n    assert stream_learner.ANSWER == 42\n",
        "tests/test_broken.py": "def test_broken():\n    assert False\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


SMALL = Fault(
    "answer", "", "", "stream_learner/__init__.py", "42", "41", ("tests/test_answer.py", "tests/test_gone.py")
)


def test_a_fault_is_caught_and_a_harmless_change_is_not(tree: Path) -> None:
    """The test that fails is named, with what it said; nothing is left behind."""
    harmless = replace(SMALL, name="a-comment", new="42  # a comment")
    with copies_of(tree) as copies:
        caught, missed = (check_fault(fault, copies, "all") for fault in (SMALL, harmless))
        folder = copies.tree.parent
    assert (caught.verdict, caught.test) == (Verdict.CAUGHT, "tests/test_answer.py::test_answer")
    assert caught.said.startswith("assert 41 == 42")
    assert (missed.verdict, missed.test, missed.said) == (Verdict.MISSED, "", "")
    assert not folder.exists()
    assert "42" in (tree / SMALL.file).read_text(encoding="utf-8")


def test_a_test_that_fails_anyhow_catches_nothing(tree: Path) -> None:
    """A test that is broken anyhow does not count as one that has noticed the fault."""
    with copies_of(tree) as copies:
        outcome = check_fault(replace(SMALL, tests=("tests/test_broken.py",)), copies, "all")
    assert outcome.verdict is Verdict.UNSURE
    assert outcome.said == "the test fails without the fault too"


def test_a_thread_that_never_ends_holds_nothing_up(tree: Path) -> None:
    """What a fault has broken may leave threads behind; the test that failed counts all the same."""
    (tree / "tests" / "test_hangs.py").write_text(
        "import threading\nfrom stream_learner import ANSWER\n\ndef test_hangs():\n"
        "    threading.Thread(target=threading.Event().wait).start() if ANSWER == 41 else None\n"
        "    assert ANSWER == 42\n",
        encoding="utf-8",
    )
    with copies_of(tree) as copies:
        outcome = check_fault(replace(SMALL, tests=("tests/test_hangs.py",)), copies, "all")
    assert outcome.verdict is Verdict.CAUGHT


def test_tests_that_cannot_begin_catch_nothing(tree: Path) -> None:
    """Where pytest itself gives up, its last words are shown."""
    (tree / "tests" / "conftest.py").write_text("import stream_learner.gone\n", encoding="utf-8")
    with copies_of(tree) as copies:
        outcome = check_fault(SMALL, copies, "all")
    assert (outcome.verdict, outcome.test) == (Verdict.UNSURE, "")
    assert outcome.said.startswith("pytest ended with exit code 4: ")
    assert "stream_learner.gone" in outcome.said


def test_a_part_without_a_test_catches_nothing(tree: Path) -> None:
    """A file whose tests are all of the other part is not an error."""
    with copies_of(tree) as copies:
        outcome = check_fault(SMALL, copies, "thorough")
    assert (outcome.verdict, outcome.said) == (Verdict.MISSED, "no test of this part is in these files")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (replace(SMALL, old="43"), "answer: its old text is not in stream_learner/__init__.py"),
        (replace(SMALL, old="="), "answer: its old text stands 2 times in stream_learner/__init__.py"),
        (replace(SMALL, file="gone.py"), "answer: there is no file gone.py in "),
        (replace(SMALL, tests=("tests/test_gone.py",)), "has none of tests/test_gone.py"),
    ],
    ids=lambda value: None if isinstance(value, Fault) else str(value)[:30],
)
def test_a_fault_that_does_not_fit_the_tree_is_named(tree: Path, fault: Fault, said: str) -> None:
    """The message says what to mend."""
    with pytest.raises(BadFault, match=said), copies_of(tree) as copies:
        check_fault(fault, copies, "all")


def test_what_cannot_be_meant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that there is not, a folder that git does not keep."""
    assert main(["hinge-at-its-king"]) == 2
    assert capsys.readouterr().err == "error: there is no fault hinge-at-its-king; did you mean hinge-at-its-kink?\n"
    assert main(["hinge-at-its-kink", "--tree", str(tmp_path)]) == 2
    assert "hinge-at-its-kink: there is no file" in capsys.readouterr().err
    with pytest.raises(BadFault, match="is no git checkout"), copies_of(tmp_path):
        pass


def test_the_program_must_be_that_of_the_copy(tree: Path) -> None:
    """Where Python takes the program from elsewhere, a fault in the copy would show nothing."""
    (tree / "stream_learner" / "__init__.py").unlink()
    (tree / "stream_learner").rmdir()
    (tree / "tests" / "stream_learner.txt").write_text("no program\n", encoding="utf-8")
    with pytest.raises(BadFault, match="the tests would not run the copy"), copies_of(tree):
        pass


def test_the_faults_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` has every name, with what goes wrong."""
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{fault.name}\n    {fault.area}: {fault.harm}" in listed for fault in FAULTS)


@pytest.mark.thorough
def test_a_fault_in_the_program_is_caught_and_a_harmless_change_is_not() -> None:
    """The test that fails is named; a comment breaks nothing."""
    harmless = replace(CHEAP, name="a-comment", new=f"    # the least counts\n{CHEAP.old}")
    with copies_of(PROJECT) as copies:
        caught, missed = (check_fault(fault, copies, "all") for fault in (CHEAP, harmless))
    assert (caught.verdict, missed.verdict) == (Verdict.CAUGHT, Verdict.MISSED)
    assert caught.test.startswith("tests/adapters/test_container.py::")
