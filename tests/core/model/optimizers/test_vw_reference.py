"""Vowpal Wabbit's `--ftrl` on its own data sets, through our kernels: squared loss, clipped to the labels seen."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import vowpalwabbit

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from tests.core.model.example_records import Example, as_record

DATA = Path(__file__).resolve().parents[4].parent / "shared" / "data" / "vw"
CONSTANT = ("", "")

REFERENCES = [
    ("0001.dat.gz", FtrlProximal(alpha=0.01, beta=0.0, l1=2.0, l2=0.0), 1, "0.379717"),
    ("0001.dat.gz", FtrlProximal(alpha=0.01, beta=0.0, l1=2.0, l2=0.0), 10, "0.255959"),
    ("0002_25.dat", FtrlProximal(alpha=0.5, beta=1.0, l1=0.0, l2=0.0), 1, "0.059771"),
]


def data_file(name: str) -> Path:
    """A file of Vowpal Wabbit's test data, or a skipped test."""
    if not (DATA / name).exists():
        pytest.skip(f"needs {name} in ../shared/data/vw")
    return DATA / name


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, gzipped or not."""
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("ascii").splitlines()


def read_vw(lines: list[str]) -> Iterator[Example]:
    """Examples of VW text: label, importance, tag, namespaces; numbers are float32, the constant comes last."""
    keys: dict[tuple[str, str], int] = {}
    for line in lines:
        head, *namespaces = line.split("|")
        features: dict[tuple[str, str], float] = {}
        for namespace in namespaces:
            name, *tokens = namespace.split(" ")
            for token in filter(None, tokens):
                feature, _, value = token.partition(":")
                features[name, feature] = float(np.float32(value or "1"))
        features[CONSTANT] = 1.0
        numbered = [(keys.setdefault(name, len(keys) + 1), x) for name, x in features.items() if x != 0.0]
        fields = head.split()
        weight = float(fields[1]) if len(fields) > 1 else 1.0
        yield Example(tuple(numbered), float(np.float32(fields[0])), weight)


def our_loss(path: Path, optimizer: FtrlProximal, passes: int) -> float:
    """Average loss before each update, over all passes."""
    record = as_record(list(read_vw(lines_of(path))))
    learner = Learner(optimizer, loss="squared")
    for _ in range(passes):
        learner.fold(record, 0)
    assert learner.refused == 0
    return float(learner.progress.summary()["average_loss"])


def test_a_line_of_vw_text_is_read_as_documented() -> None:
    """Label, importance and tag come before the first bar; a feature without a value has 1, one of 0 is dropped."""
    (example,) = read_vw(["0.5 2 tag|T a |f b:0.25 c:0 d"])
    assert example == Example(((1, 1.0), (2, 0.25), (3, 1.0), (4, 1.0)), 0.5, 2.0)


@pytest.mark.parametrize(("name", "optimizer", "passes", "loss"), REFERENCES)
def test_the_loss_is_vws_in_every_printed_digit(name: str, optimizer: FtrlProximal, passes: int, loss: str) -> None:
    """The documented losses of `vw --ftrl` come out of our fold."""
    assert f"{our_loss(data_file(name), optimizer, passes):.6f}" == loss


@pytest.mark.parametrize(("name", "optimizer", "passes", "loss"), REFERENCES)
def test_the_loss_is_that_of_the_vw_installed_here(
    name: str, optimizer: FtrlProximal, passes: int, loss: str, tmp_path: Path
) -> None:
    """The reference is made live, so that it cannot go stale."""
    source = data_file(name)
    text = tmp_path / "examples.dat"
    text.write_text("\n".join(lines_of(source)) + "\n", "ascii")
    flags = f"--ftrl_alpha {optimizer.alpha} --ftrl_beta {optimizer.beta} --l1 {optimizer.l1}"
    again = f"--passes {passes} --holdout_off --cache_file {tmp_path / 'cache'} -k" if passes > 1 else ""
    workspace = vowpalwabbit.Workspace(f"--ftrl {flags} {again} -d {text} --quiet")
    workspace.run_parser()
    theirs = workspace.get_sum_loss() / workspace.get_weighted_examples()
    workspace.finish()
    assert f"{our_loss(source, optimizer, passes):.6f}" == f"{theirs:.6f}"
