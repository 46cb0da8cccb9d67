"""`evaluate --vw` against the installed package, live: all printed digits of the average loss.

A part of the grid; `python -m tests.evaluate.vw` runs the whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluate.vw.live import (
    DATA,
    DEFAULTS,
    EXTRAS,
    LOSSES,
    compared,
    generated,
    ours,
    read,
    reals,
    sets,
)
from tests.evaluate.vw.vw_commands import FLAGS, REFERENCES

ROWS = 300
LONG = "--ngram 3"
"""Sixty thousand features, each with an index of 18 bits: in the table of weights they all have the same first slot."""


@pytest.fixture(autouse=True)
def _needs_data() -> None:
    if not DATA.exists():
        pytest.skip("needs the data sets of ../shared/data")


@pytest.mark.parametrize(
    ("command", "name"),
    [pytest.param(command, name, marks=[pytest.mark.thorough] * (LONG in command)) for command, name in REFERENCES],
)
def test_a_reference_command_prints_the_same(command: str, name: str, tmp_path: Path) -> None:
    """Float64 and the tool's float32 give the same printed digits."""
    found = compared(command, name, read(f"vw/{name}"), tmp_path)
    assert found.equal, found


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("flags", FLAGS)
def test_what_differs_has_a_cause(flags: str, loss: str, tmp_path: Path) -> None:
    """Every third of the further options, another third for the next loss; the oracle in float64 says why."""
    text = generated(counts=loss == "poisson")
    first = (FLAGS.index(flags) + LOSSES.index(loss)) % 3
    cells = [compared(f"{flags} --loss_function {loss} {e}", "", text, tmp_path) for e in EXTRAS[first::3]]
    assert [cell for cell in cells if cell.cause == "unexplained"] == []


@pytest.mark.parametrize("loss", DEFAULTS)
def test_the_default_update_prints_the_same_on_every_set(loss: str, tmp_path: Path) -> None:
    """Adaptive, normalized and invariant; logistic where labels are -1 and 1 and scales are real ones."""
    texts = sets(ROWS)
    if loss == "logistic":
        del texts["generated"]
    else:
        texts |= reals(ROWS)
    cells = [compared(f"--loss_function {loss}", name, text, tmp_path) for name, text in texts.items()]
    assert [cell for cell in cells if not cell.equal] == []


def test_predicting_only_learns_nothing() -> None:
    """With -t every prediction is 0: the average loss is that of 0."""
    assert ours("-t", b"1 |a b\n3 |a c\n") == 5.0
