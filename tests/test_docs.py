"""The generated pages of docs/ are what the code says now, and say everything."""

from __future__ import annotations

import re

from stream_learner.adapters.http import openapi
from stream_learner.adapters.telemetry.metric_names import CATALOGUE
from stream_learner.config import Config
from stream_learner.config.paths import leaves
from stream_learner.errors import Stop, TopicMissing, all_errors, meaning, operator_action
from tools.docs import DOCS, NOTE, pages


def test_the_generated_pages_are_current() -> None:
    """The pages in docs/ are what `make docs` would write."""
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == NOTE + text, f"{name}: run `make docs`"


def test_every_setting_is_on_its_page() -> None:
    """Each setting has a row in the table of its section."""
    text = pages()["configuration.md"]
    for path, _ in leaves(Config):
        section = text.split(f"## `{'.'.join(path[:-1])}`\n" if len(path) > 1 else "## Top level\n")[1]
        assert f"| `{path[-1]}` |" in section.split("\n## ")[0], path


def test_every_metric_is_on_its_page() -> None:
    """Each metric has a row."""
    for metric in CATALOGUE:
        assert f"| `{metric.full_name}` | {metric.kind} |" in pages()["metrics.md"]


def test_every_error_is_on_its_page() -> None:
    """Each error has a row with its exit code, its meaning and something to do."""
    for kind in set(all_errors()) - {Stop}:
        row = f"| {kind.exit_code} | `{kind.__name__}` |"
        assert row in pages()["errors.md"]
        assert meaning(kind)
        assert operator_action(kind)


def test_every_request_is_on_its_page() -> None:
    """Each path and method has a row with its statuses, each body the server takes or gives a table."""
    document, text = openapi.document("", [], 1, with_token=True), pages()["http.md"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            (row,) = re.findall(rf"^\| `{method.upper()} {re.escape(path)}` \| .*$", text, re.M)
            assert sorted(operation["responses"]) == re.findall(r"\b\d{3}\b", row.rpartition(" | ")[2])
    for name, schema in document["components"]["schemas"].items():
        table = text.split(f"### `{name}`\n")[1].split("\n#")[0]
        assert all(f"| `{member}` |" in table for member in schema["properties"]), name


def test_exit_codes_tell_errors_apart() -> None:
    """No two errors share an exit code, and none has one of success, usage or a shell."""
    kinds = [kind for kind in all_errors() if kind is not Stop]
    codes = [kind.exit_code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert all(3 <= code < 126 for code in codes)


def test_an_error_keeps_what_it_was_given() -> None:
    """An action of its own wins over the class's; the text of an error is its message."""

    assert TopicMissing("found x").action == operator_action(TopicMissing) != ""
    assert TopicMissing("found x", action="look at x").action == "look at x"
    assert str(TopicMissing("found x")) == "found x"
