"""Fuzzing in small: the seed corpus and some thousand inputs of each target, and faults that the harness must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.fuzz.harness import Run
from proofs.fuzz.target import CORPUS, TARGETS, corpus_of, load
from proofs.fuzz.worker import MOST_FINDINGS, inputs_of
from tests.suite.share import share
from tests.waiting import patience

INPUTS = {
    "impressions": 1_600, "clicks": 3_200, "rule-r": 200, "csv-text": 200, "libsvm-text": 300, "json-lines": 300,
    "vw-text": 200, "snapshot-sequences": 200,
}  # fmt: skip
"""How many for each target; 1,000 where nothing is said."""


@share(25, nightly=100)
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_reads_its_corpus_and_some_more_as_it_should(name: str, examples: int, tmp_path: Path) -> None:
    """No crash, hang, or undocumented exception, nothing an oracle reads otherwise. examples: per cent of inputs."""
    inputs = INPUTS.get(name, 1_000) * examples // 100
    report = Run(name, TARGETS[name], 7, tmp_path).run(inputs)
    assert not report.findings
    assert report.inputs >= inputs
    assert 0 < report.accepted < report.inputs + len(corpus_of(name))


def test_every_target_has_a_seed_corpus_and_no_folder_is_left_over() -> None:
    """All of it together is small."""
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert all(corpus_of(name) for name in TARGETS)
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < 300_000


def test_the_same_seed_makes_the_same_inputs() -> None:
    """So that what was found can be made again."""
    first, second = load(TARGETS["clicks"]), load(TARGETS["clicks"])
    assert inputs_of(first, 3, 5) == inputs_of(second, 3, 5) != inputs_of(first, 4, 5)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("planted", "inputs", "kind", "words"),
    [
        ("OverRead", 48, "crash", "SIGSEGV"),
        ("WrongAccept", 2_000, "wrong", "was taken"),
        ("Undocumented", 2_000, "wrong", "KeyError"),
        ("Greedy", 2_000, "wrong", "MemoryError"),
    ],
)
def test_a_planted_fault_is_found_and_its_input_fails_alone(
    planted: str, inputs: int, kind: str, words: str, tmp_path: Path
) -> None:
    """The input that is kept ends with the byte that triggers it. A crash takes two processes, so there are few."""
    run = Run(planted, f"tests.fuzz.planted:{planted}", 1, tmp_path)
    report = run.run(inputs)
    assert report.findings
    finding = report.findings[0]
    assert finding.kind == kind and words in finding.what
    assert Path(finding.file).read_bytes().endswith(b"z")
    if planted != "Greedy":
        assert words in run.replay(Path(finding.file))


@pytest.mark.nightly
def test_a_run_ends_when_a_few_inputs_have_crashed(tmp_path: Path) -> None:
    """The run goes on after a crash, but ends after a few."""
    report = Run("OverRead", "tests.fuzz.planted:OverRead", 1, tmp_path).run(2_000)
    assert [finding.kind for finding in report.findings] == ["crash"] * MOST_FINDINGS
    assert len({finding.file for finding in report.findings}) == MOST_FINDINGS
    assert all(Path(finding.file).read_bytes().endswith(b"z") for finding in report.findings)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("seed", "inputs", "hang"), [(1, 80, ["batch 3, input 5", "batch 4, input 4"]), (10, 16, ["batch 0, input 0"])]
)
def test_a_planted_hang_is_stopped_and_found(seed: int, inputs: int, hang: list[str], tmp_path: Path) -> None:
    """The child that does not move on is ended, and the input named, the first of all as well; the run goes on."""
    run = Run("Hang", "tests.fuzz.planted:Hang", seed, tmp_path, batch_limit_s=patience(1.0))
    report = run.run(inputs)
    assert [finding.kind for finding in report.findings] == ["hang"] * len(hang)
    for finding, place in zip(report.findings, hang, strict=True):
        assert place in finding.what
        assert Path(finding.file).read_bytes().endswith(b"z")
