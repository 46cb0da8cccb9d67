"""`docs/scorer.md` is executed, and has every argument, call and field of the scorer."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import stream_learner
from stream_learner import Prediction, Predictions, Scorer
from stream_learner.core.events.reasons import Reason
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from tests.cli_e2e.commands import environment
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.waiting import patience

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scorer.md").read_text(encoding="utf-8")
NEWS, A42 = hash_texts([b"site=news", b"ad=a42"])
NEVER_CLOSED = """
import sys
from stream_learner import Scorer
scorer = Scorer(sys.argv[1], sys.argv[2]).start()
scorer.wait_ready()
print(scorer.version)
"""


@pytest.fixture
def published(make_world: MakeWorld) -> Published:
    """The model that the page speaks of."""
    published = Published(make_world())
    published.publish(1000, {BIAS_KEY: -2.0, NEWS: 0.5, A42: -0.25})
    published.close()
    return published


def section(title: str) -> str:
    """The text below a heading of the second level."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """The names that the rows of the tables begin with, without their arguments."""
    return re.findall(r"^\| `(\w+)(?:\([^|`]*\))?` \|", text, re.M)


def test_its_examples_give_what_it_says(published: Published) -> None:
    """In the order of the page, with the names of this test's broker and model."""
    text = PAGE.replace("localhost:9092", published.world.settings.bootstrap)
    text = text.replace('"ctr"', f'"{published.world.model}"').replace("'ctr'", f"'{published.world.model}'")
    examples = doctest.DocTestParser().get_doctest(text, {}, "scorer.md", "docs/scorer.md", 0)
    told: list[str] = []
    result = doctest.DocTestRunner().run(examples, out=told.append)
    assert result.attempted >= 15
    assert result.failed == 0, "".join(told)


def test_a_scorer_that_is_never_closed_keeps_no_program_from_ending(published: Published) -> None:
    """A program that never closes its scorer ends all the same, as the page says."""
    ended = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED, published.world.settings.bootstrap, published.world.model],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "1000\n"), ended.stderr


def test_every_argument_is_on_the_page_with_its_default() -> None:
    """In the order of the signature; whoever adds, renames or removes one does so here too."""
    parameters = inspect.signature(Scorer).parameters.values()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", section("Arguments"), re.M)
    assert rows == [(parameter.name, repr(parameter.default)) for parameter in parameters]


def test_every_call_and_property_is_on_the_page() -> None:
    """Each public name has a row or is spoken of, and no row names what is not there."""
    public = {name for name in vars(Scorer) if not name.startswith("_")}
    rows = [name for title in ("Ready", "What it serves", "Staleness") for name in first_cells(section(title))]
    rows += first_cells(section("Predicting").partition("`Predictions` is")[0])
    spoken = {"start", "close"}
    assert all(f"`{name}()` " in PAGE for name in spoken)
    assert sorted([*rows, *spoken]) == sorted(public | {"name"})


def test_every_call_has_its_arguments_on_the_page() -> None:
    """Names in their order, and defaults."""
    for name, arguments in re.findall(r"^\| `(\w+)\(([^|`]*)\)` \|", PAGE, re.M):
        parameters = list(inspect.signature(getattr(Scorer, name)).parameters.values())[1:]
        written = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
        assert arguments == ", ".join(written), name


def test_every_field_of_an_answer_is_on_the_page() -> None:
    """Those of `Predictions` in a table, those of `Prediction` where it is returned; and every exported name."""
    table = section("Predicting").partition("`Predictions` is")[2].partition("| status |")[0]
    assert first_cells(table) == [field.name for field in fields(Predictions)]
    (row,) = re.findall(r"^\| `predict\(event\)`.*$", PAGE, re.M)
    assert all(f"`{name}` (" in row for name in Prediction._fields)
    assert all(f"`{name}`" in PAGE or f"import BadEvent, {name}" in PAGE for name in stream_learner.__all__[:-1])


def test_the_reasons_are_those_of_events_without_id_time_and_weight() -> None:
    """Each number with its words."""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section("Predicting"), re.M)
    assert len(rows) >= 5
    assert rows == [(str(int(reason)), reason.text) for reason in map(Reason, (int(number) for number, _ in rows))]
