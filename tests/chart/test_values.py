"""Every value is documented, is in the schema, and is on the README's tables, which are made from both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

from stream_learner.config import Config
from stream_learner.config.paths import leaves as settings
from tests.chart.rendered import from_values
from tests.chart.test_refusals import MINIMAL
from tests.test_readme import PROJECT, commands, parse
from tools.chart import CHART, documented, leaves, readme_text, schema_text, values
from tools.chart_schema import OWNED

README = CHART / "README.md"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def test_every_value_is_documented_and_nothing_that_is_not_there() -> None:
    """By a sentence above it in values.yaml; a comment `# -- …` belongs to a value."""
    assert set(documented()) == {path for path, _ in leaves(values(), documented())}
    assert [path for path, text in documented().items() if not text.endswith(".")] == []


def test_the_readme_is_current() -> None:
    """What `make chart` would write; and it has every value."""
    text = README.read_text(encoding="utf-8")
    assert text == readme_text()
    for path in documented():
        assert f"| `{path}` |" in text


def test_the_schema_is_current() -> None:
    """What `make chart` would write: settings of the program that are added are taken at once."""
    assert (CHART / "values.schema.json").read_text(encoding="utf-8") == schema_text()
    Draft7Validator.check_schema(SCHEMA)


def test_every_object_of_the_schema_is_closed() -> None:
    """A misspelt name is refused wherever it is; only parts that are Kubernetes' own are open."""
    open_parts = [path for path, part in objects_of(SCHEMA) if "additionalProperties" not in part]
    assert {path.split("/")[-1] for path in open_parts} <= {
        "items",
        "affinity",
        "global",
        "lifecycle",
        "dnsConfig",
        "behavior",
    }


def test_settings_are_those_of_the_program() -> None:
    """All of them, but for those that the chart sets itself."""
    known = {".".join(path) for path, _ in settings(Config)} - {"model", "kafka"}
    given = set(paths_of(SCHEMA["definitions"]["config"], ()))
    assert known - given == {".".join(path) for path in OWNED} - {"model", "kafka"}
    assert given - known == set()


def test_every_value_of_the_chart_changes_something(tmp_path: Path) -> None:
    """No value without effect: each is read by a template."""
    text = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").rglob("*.*"))
    for path in documented():
        assert re.search(rf"[.\"]{re.escape(path.split('.')[-1])}\b", text), path
    assert from_values(tmp_path, MINIMAL)


def test_the_readmes_examples_work(tmp_path: Path) -> None:
    """Values in it are taken, one after the other laid over the least there is; commands are the program's."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 2
    for block in blocks:
        assert "kind: StatefulSet" in from_values(tmp_path, {**MINIMAL, **yaml.safe_load(block)})
    found = list(commands(README))
    assert found
    for arguments in found:
        parse(arguments)
    for page in re.findall(r"\bdocs/\w+\.md", README.read_text(encoding="utf-8")):
        assert (PROJECT / page).exists(), page
    for file in re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8")):
        assert (CHART / file).exists(), file


def objects_of(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object, with where it is."""
    if isinstance(part, dict):
        if part.get("type") == "object":
            yield path, part
        for name, inner in part.items():
            yield from objects_of(inner, f"{path}/{name}")
    elif isinstance(part, list):
        for inner in part:
            yield from objects_of(inner, path)


def paths_of(part: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Every setting below a schema of a section, items of mappings under `<name>`."""
    for name, inner in part["properties"].items():
        section, items = section_of(inner), section_of(inner.get("additionalProperties"))
        if section is not None:
            yield from paths_of(section, (*path, name))
        elif items is not None:
            yield from paths_of(items, (*path, name, "<name>"))
        else:
            yield ".".join((*path, name))


def section_of(part: Any) -> dict[str, Any] | None:
    """The section that a schema refers to, None where it is no section."""
    found = SCHEMA["definitions"][part["$ref"].split("/")[-1]] if isinstance(part, dict) and "$ref" in part else None
    return found if found is not None and "properties" in found else None
