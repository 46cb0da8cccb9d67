"""`docs/runbook.md` covers every error and every reason for not being ready; metrics and settings it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stream_learner.adapters.telemetry.metric_names import CATALOGUE
from stream_learner.config import Config
from stream_learner.config.paths import leaves
from stream_learner.core.events.reasons import Reason
from stream_learner.errors import Stop, all_errors, operator_action

PROJECT = Path(__file__).resolve().parent.parent
PAGE = (PROJECT / "docs" / "runbook.md").read_text(encoding="utf-8")
PREFIX = "stream_learner_"


def test_every_error_has_its_row() -> None:
    """With its exit code, and no row is for an error that is not there."""
    rows = dict(re.findall(r"^\| `(\w+)` \[(\d+)\] \| ", PAGE, re.M))
    assert rows == {kind.__name__: str(kind.exit_code) for kind in all_errors() if kind is not Stop}


@pytest.mark.parametrize(
    "module",
    [
        "roles/joiner/role",
        "roles/learner/role",
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
        assert f"| {re.sub(r'{[^}]*}', '…', text)} |" in PAGE


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
