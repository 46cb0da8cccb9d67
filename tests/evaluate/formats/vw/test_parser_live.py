"""VW text beside the package that is installed: which features it makes of a line, in which order, with which index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import vowpalwabbit

from stream_learner.evaluate.formats.vw.parser import KEY_OF_INDEX, VwText, VwTextOptions

ANYTHING = "1 |b x |a u 7:.5 |c z"
MANY = "1 |c x |a u |b z |d w"
QUADRATIC = ["ba", "ab ba", "ba ab", "bb ab", "cb ba ac", "::", "a:", ":a", "b: ab", "dc :a", ":b bc aa"]
CUBIC = ["bca", "aba", "baa", "bbb", "bca abc cab", ":ba", "b:b"]
LINES = [
    "1 |a x y |b z |a w",
    "1 |a |b z |a w",
    "1 |a 0:0 x:0 |b z |a w",
    "1 |a :2 x :0 :3",
    "1 | :2 x |a:0 y |b:.25 :2",
    "1 |12 12 0012 18446744073709551616 1a",
    "1 |a 12\x01 \x0212 \x01 a\x03b",
    "1 |a\tx\ty:3 \t z",
    "1 |a x||b y|",
    "1 |a 1:1e-37 4:5e30 5:.5 6:5. 7:+3 8:987654321987654321 9:0e50",
    "1 |é ü ß:2 |a " + "n" * 50,
]


def theirs(command: str, line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> list[tuple[int, float]]:
    """Index and value of every feature, as `--audit` prints them: in the order of the line while they are few."""
    source = folder / "line.dat"
    source.write_text(line + "\n", "utf-8")
    capfd.readouterr()
    vowpalwabbit.Workspace(f"{command} --audit --quiet -d {source}").finish()
    printed = capfd.readouterr().out
    found = re.findall(r":(\d+):([^:\s]+):0@0", printed)
    assert 0 < len(found) <= 16
    return [(int(index), float(f"{float(x):.6g}")) for index, x in found]


def ours(options: VwTextOptions, line: str) -> list[tuple[int, float]]:
    """The result of our parser."""
    parsed = VwText(options).parse(line.encode(), 1)
    assert parsed.faults == []
    batch = parsed.batch
    pairs = zip(batch.keys.tolist(), batch.values.tolist(), strict=True)
    return [(key - KEY_OF_INDEX, float(f"{x:.6g}")) for key, x in pairs]


def as_vw(**options: object) -> VwTextOptions:
    """VW's hashing."""
    return VwTextOptions(hashing="vw", repeats=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", QUADRATIC)
def test_pairs_come_in_the_tools_order(words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Which letter is multiplied, which pairs are the same, what a wildcard stands for."""
    command = " ".join(f"-q {word}" for word in words.split())
    line = MANY if "::" in words or ":b" in words else ANYTHING + " |d w"
    assert ours(as_vw(quadratic=tuple(words.split())), line) == theirs(command, line, tmp_path, capfd)


@pytest.mark.parametrize("words", CUBIC)
def test_triples_come_in_the_tools_order(words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The order of features of three namespaces is the tool's."""
    command = " ".join(f"--cubic {word}" for word in words.split())
    assert ours(as_vw(cubic=tuple(words.split())), MANY) == theirs(command, MANY, tmp_path, capfd)


@pytest.mark.parametrize("line", LINES)
def test_odd_lines_are_read_as_the_tool_reads_them(
    line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Features without names, names of digits, control characters, scales, tiny numbers, repeated namespaces."""
    assert ours(as_vw(), line) == theirs("", line, tmp_path, capfd)
    assert ours(as_vw(hash_all=True, bits=24), line) == theirs("--hash all -b 24", line, tmp_path, capfd)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("--ngram 2 --ignore a -q ab", {"ngram": 2, "ignore": "a", "quadratic": ("ab",)}),
        ("--keep a --noconstant", {"keep": "a", "noconstant": True}),
        ("--ngram 2 --skips 1 -q aa -b 12", {"ngram": 2, "skips": 1, "quadratic": ("aa",), "bits": 12}),
        ("--ngram 3 -q ab --cubic abc", {"ngram": 3, "quadratic": ("ab",), "cubic": ("abc",)}),
    ],
)
def test_options_work_together_as_in_the_tool(
    command: str, options: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """N-grams before interactions, left-out namespaces before both."""
    assert ours(as_vw(**options), ANYTHING) == theirs(command, ANYTHING, tmp_path, capfd)
