"""The import rules of the layers hold, and the rules themselves work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
LINT = Path(sys.executable).parent / "lint-imports"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(LINT), "--config", str(PROJECT / "pyproject.toml"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200", "LC_ALL": "C.UTF-8"},
        check=False,
    )


def test_the_layers_are_kept() -> None:
    """No module imports what lies above it, and libraries stay where they belong."""
    ended = lint(PROJECT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core", "import stream_learner.errors"),
        ("core", "import time"),
        ("core", "import confluent_kafka"),
        ("errors", "import stream_learner.core"),
        ("config", "import stream_learner.edges"),
        ("edges", "import stream_learner.roles"),
        ("roles", "import stream_learner.cli"),
        ("roles", "import confluent_kafka"),
        ("cli", "import structlog"),
        ("roles", "import multiprocessing.connection"),
        ("edges", "from pickle import loads"),
        ("errors", "import marshal"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, module: str, line: str) -> None:
    """A package of the same layers with one wrong import breaks a contract."""
    package = tmp_path / "stream_learner"
    for name in ("core", "edges", "roles", "demo", "cli", "config", "errors", "traffic"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text(f"{line}\n" if name == module else "")
    for name in ("__init__.py", "__main__.py"):
        (package / name).touch()
    ended = lint(tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "BROKEN" in ended.stdout
