"""The pages for who is on call cover every alert and every reason for not being ready; what they name exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from stream_learner.adapters.telemetry.metric_names import CATALOGUE
from stream_learner.config import Config
from stream_learner.config.paths import leaves
from stream_learner.core.events.reasons import Reason
from stream_learner.errors import all_errors, operator_action
from tests.test_readme import anchors

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"
NAMES = ("runbook", "alerts-joiner", "alerts-inputs", "alerts-learner", "alerts-scorer", "troubleshooting", "disks")
"""The page with the table of conditions, then those that it leads to."""
PAGE = "\n".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in (*NAMES, "operations"))
PREFIX = "stream_learner_"
RULES = (PROJECT / "helm" / "stream-learner" / "templates" / "prometheusrule.yaml").read_text(encoding="utf-8")
WITHOUT_A_LINE = {"learner_table_bytes"}
"""The metric of a condition of which no line tells, since there is no moment at which it begins."""


class Condition(NamedTuple):
    """A row of the table of conditions; `–` is an empty list."""

    text: str
    metrics: list[str]
    alerts: list[str]
    events: list[str]
    link: str
    reaction: str


def conditions() -> list[Condition]:
    """The rows of the table."""
    lines = PAGE.split("<!-- conditions -->")[1].split("<!-- /conditions -->")[0].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert all(len(row) == 6 for row in rows)
    return [
        Condition(text, *(re.findall(r"`(\w+)`", cell) for cell in named), link, reaction)
        for text, *named, link, reaction in rows
    ]


@cache
def texts_of_the_program() -> frozenset[str]:
    """Every string in the package that is no docstring: what is logged is among them, as a word of its own."""
    found = set()
    for path in (PROJECT / "stream_learner").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
        found |= {node.value for node in constants if isinstance(node.value, str)}
    return frozenset(found)


@pytest.mark.parametrize("row", conditions(), ids=lambda row: row.text[:40])
def test_a_condition_is_told_by_what_there_is(row: Condition) -> None:
    """Its metrics are measured, its alerts are in the chart's rules, its lines are logged, its section is on the page,
    and each alert looks at one of the metrics or leads to that section."""
    assert row.metrics and set(row.metrics) <= {metric.name for metric in CATALOGUE}
    rules = dict(re.findall(r"- alert: StreamLearner(\w+)\n((?:  .*\n)+)", RULES))
    assert row.alerts and set(row.alerts) <= set(rules)
    assert row.events or WITHOUT_A_LINE & set(row.metrics)
    assert set(row.events) <= texts_of_the_program()
    link = re.fullmatch(r"\[[^]]+\]\(([\w-]+)\.md#([\w-]+)\)", row.link)
    assert link is not None and link[1] in NAMES and link[2] in anchors(DOCS / f"{link[1]}.md")
    assert row.text and row.reaction
    for name in row.alerts:
        looks = any(f"{PREFIX}{metric}" in rules[name] for metric in row.metrics)
        assert looks or f"page: {link[1]}\n  section: {link[2]}\n" in rules[name], name


def test_every_alert_is_in_the_table() -> None:
    """Of an alert without a row nobody knows what the program does."""
    found = {name for row in conditions() for name in row.alerts}
    assert found == set(re.findall(r"- alert: StreamLearner(\w+)", RULES))


def test_what_is_added_to_an_error_names_one_with_its_exit_code() -> None:
    """`docs/errors.md` has them all: `tests/test_docs.py`."""
    rows = set(re.findall(r"^\| `(\w+)` \[(\d+)\] \| ", PAGE, re.M))
    assert rows and rows <= {(kind.__name__, str(kind.exit_code)) for kind in all_errors()}


@pytest.mark.parametrize("name", [*NAMES, "operations"])
def test_a_page_is_short_enough_to_be_read_at_night(name: str) -> None:
    """At most 3,000 words."""
    assert len((DOCS / f"{name}.md").read_text(encoding="utf-8").split()) <= 3_000


@pytest.mark.parametrize(
    "module",
    [
        "roles/joiner/role",
        "roles/joiner/loop",
        "roles/learner/role",
        "roles/learner/loop",
        "roles/scorer/replica",
        "roles/scorer/scorer",
        "operations/run",
    ],
)
def test_every_reason_for_not_being_ready_has_its_row(module: str) -> None:
    """The texts that `why_not_ready` can give are on the page, numbers in them as an ellipsis."""
    source = (PROJECT / "stream_learner" / f"{module}.py").read_text(encoding="utf-8")
    texts = re.findall(r'return .*?f?"(the [^"]+)"', source)
    assert texts
    for text in texts:
        assert f"| {re.sub(r'({[^}]*})+', '…', text)} |" in PAGE


@pytest.mark.parametrize(("module", "count"), [("follower", 6), ("replica", 1)])
def test_every_trouble_of_a_replica_has_its_row(module: str, count: int) -> None:
    """What a replica says that it lacks, with an ellipsis for the publication."""
    source = (PROJECT / "stream_learner" / "core" / "snapshots" / f"{module}.py").read_text(encoding="utf-8")
    code = re.sub(r'""".*?"""', "", source, flags=re.S)
    texts = re.findall(r'f?"((?:the|page|no) [^"]*(?:read|reached|anew|whole|yet))"', code)
    assert len(texts) == count
    for text in texts:
        assert re.sub(r"(?: of publication)?(?: {[^}]*})", " …", text).replace("… …", "…") in PAGE


def test_no_error_asks_for_a_setting_that_would_have_no_effect() -> None:
    """`join.start` counts for a model without a training log only: whoever reads an error has one."""
    assert not [kind for kind in all_errors() if "join.start" in operator_action(kind)]


def test_every_reason_of_a_dead_letter_is_listed() -> None:
    """Word for word as in the header."""
    for reason in Reason:
        assert reason is Reason.OK or f"\n- {reason.text}\n" in PAGE


def test_metrics_named_are_metrics() -> None:
    """They are written without the prefix that all have."""
    known = {metric.full_name.removeprefix(PREFIX) for metric in CATALOGUE}
    named = set(re.findall(r"`((?:joiner|learner|scorer)_\w+)`", PAGE))
    assert len(named) > 10
    assert named <= known


def test_settings_named_are_settings() -> None:
    """Each `section.name` is one that the configuration knows, or a section within a section."""
    known = {".".join(path) for path, _ in leaves(Config)}
    known |= {path.rpartition(".")[0] for path in known if path.count(".") > 1}
    sections = {path.split(".")[0] for path in known if "." in path}
    named = set(re.findall(rf"`((?:{'|'.join(sections)})\.[\w.]+)(?:: \w+)?`", PAGE))
    assert len(named) > 10
    assert named <= known
