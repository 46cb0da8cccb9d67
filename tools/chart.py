"""Writes what of the Helm chart is made from other files: `python -m tools.chart`, run by `make chart`.

These are values.schema.json, README.md, and the rendered manifests that tests compare with. It must never say what a
value means: that is the place of its comment.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.chart_schema import schema
from tools.get_helm import helm

PROJECT = Path(__file__).resolve().parent.parent
CHART = PROJECT / "helm" / "stream-learner"
GOLDEN = PROJECT / "tests" / "chart" / "golden"
RELEASE, NAMESPACE, KUBE_VERSION = "stream-learner", "ads", "1.31.0"
"""The release, namespace and version for which the compared manifests are rendered."""

_LINE = re.compile(r"^( *)(?:# -- (?P<text>.*)|# (?P<more>.*)|(?P<key>[\w-]+):(?P<value>.*))$")


def shapes() -> list[Path]:
    """The values files of every supported shape."""
    return sorted((CHART / "ci").glob("*-values.yaml"))


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm, without the settings that its user may have."""
    command = [str(helm()), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render(values: Path, *options: str, release: str = RELEASE, kube_version: str = KUBE_VERSION) -> str:
    """The manifests of a shape. Raises ValueError with what Helm says."""
    command: list[str | Path] = [
        "template",
        release,
        CHART,
        "--namespace",
        NAMESPACE,
        "--kube-version",
        kube_version,
        "-f",
        values,
    ]
    run = run_helm(*command, *options)
    if run.returncode:
        raise ValueError(run.stderr)
    return run.stdout


def documented() -> dict[str, str]:
    """The comment of each value in values.yaml, by dotted path, in order."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    text: list[str] = []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        match = _LINE.match(line)
        if match is None:
            text = []
        elif match["text"] is not None:
            text = [match["text"]]
        elif match["more"] is not None:
            text += [match["more"]] if text else []
        else:
            indent = len(match[1])
            path = [part for part in path if part[0] < indent] + [(indent, match["key"])]
            if text:
                found[".".join(key for _, key in path)] = " ".join(text)
            text = []
    return found


def leaves(values: dict[str, Any], known: dict[str, str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by dotted path; a mapping that has a comment, or nothing in it, is one value."""
    for key, value in values.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value and where not in known:
            yield from leaves(value, known, where)
        else:
            yield where, value


def values() -> dict[str, Any]:
    """values.yaml."""
    return dict(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))


def schema_text() -> str:
    """values.schema.json."""
    return json.dumps(schema(documented()), indent=1, ensure_ascii=False) + "\n"


def readme_text() -> str:
    """README.md: its introduction is the template's, the tables are made here."""
    definitions = schema({})["definitions"]
    known = documented()
    rows = [(f"`{path}`", f"`{json.dumps(value)}`", known[path]) for path, value in leaves(values(), known)]
    parts = {
        "values": _table(("value", "default", "meaning"), rows),
        "model": _table(("value", "meaning"), _described(definitions["model"])),
        "backfill": _table(("value", "meaning"), _described(definitions["backfillEntry"])),
        "shapes": "\n".join(f"- [`ci/{shape.name}`](ci/{shape.name}): {_first_comment(shape)}" for shape in shapes()),
    }
    text = (CHART / "README.md.in").read_text(encoding="utf-8")
    return re.sub(r"^@(\w+)@$", lambda match: parts[match[1]], text, flags=re.M)


def golden_text(rendered: str) -> str:
    """Manifests as tests compare them: without what changes with every release of the program."""
    return re.sub(r"^# Source: .*\n", "", rendered, flags=re.M)


def main() -> None:
    """Write everything."""
    for path, text in ((CHART / "values.schema.json", schema_text()), (CHART / "README.md", readme_text())):
        _write(path, text)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for shape in shapes():
        _write(GOLDEN / f"{shape.name.removesuffix('-values.yaml')}.yaml", golden_text(render(shape)))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(path.relative_to(PROJECT))


def _described(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"`{name}`", of["description"]) for name, of in found["properties"].items()]


def _first_comment(shape: Path) -> str:
    lines = shape.read_text(encoding="utf-8").splitlines()
    text = " ".join(line.removeprefix("# ") for line in lines[: next(i for i, x in enumerate(lines) if x[:1] != "#")])
    return text[:1].lower() + text[1:]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
