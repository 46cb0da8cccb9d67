"""The figures of the sources in small: every claim that a minute can check holds, and the page has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proofs.figures.__main__ import DOCS, FIGURES, make
from proofs.figures.data import FOLDER, DataMissing, libsvm
from proofs.figures.page import Claim, Figure, Plot, draw, section

SMALL = ("theorem1", "bounds", "oscillation")
NEED_DATA = ("sentiment",)


@pytest.mark.parametrize("name", SMALL)
def test_the_claims_of_a_figure_hold_in_small(name: str) -> None:
    """The same code as `make figures`, on fewer rounds."""
    figure = make(name, quick=True)
    assert figure.name == name and figure.claims
    for claim in figure.claims:
        assert claim.holds, claim


@pytest.mark.parametrize("name", NEED_DATA)
def test_the_claims_of_a_figure_on_real_data_hold_in_small(name: str) -> None:
    """The ranking of Table 1 for two of the twenty seeds."""
    if not (FOLDER / name).exists():
        pytest.skip(f"needs {name} in ../shared/data")
    figure = make(name, quick=True)
    for claim in figure.claims:
        assert claim.holds, claim


def test_missing_data_is_named() -> None:
    """A figure without its data says which file it wants."""
    with pytest.raises(DataMissing, match=r"needs a9a/none\.gz"):
        libsvm("a9a/none.gz")


def test_the_page_has_every_figure_with_its_command_and_its_plots() -> None:
    """docs/figures.md is made by `make figures`; each plot that it shows is there."""
    text = (DOCS / "figures.md").read_text("utf-8")
    assert re.findall(r"`make figures ARGS=(\w+)`", text.split("\n## ", 1)[1]) == list(FIGURES)
    plots = re.findall(r"\]\((figures/[\w-]+\.svg)\)", text)
    assert plots and all((DOCS / plot).exists() for plot in plots)


def test_a_claim_that_does_not_hold_is_marked(tmp_path: Path) -> None:
    """Nobody has to read figures to see that one does not agree; a plot of the same numbers is the same bytes."""
    plot = Plot("line", "a line", lambda axes: axes.plot([0, 1], [1, 2]) and None)
    figure = Figure("x", "X", "[X]", "text", [Claim("more", "less", False)], plots=[plot])
    assert not figure.holds
    assert "| more | less | **no** |" in section(figure, "figures")
    assert draw(plot, tmp_path / "a").read_bytes() == draw(plot, tmp_path / "b").read_bytes()
