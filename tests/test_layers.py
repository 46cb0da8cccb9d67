"""The import rules of the layers hold, and the rules themselves work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


WRONG = {
    "core": ["import stream_learner.errors", "import time", "import confluent_kafka"],
    "errors": ["import stream_learner.core", "import marshal"],
    "config": ["import stream_learner.adapters"],
    "adapters": ["import stream_learner.roles", "from pickle import loads"],
    "roles": ["import stream_learner.cli", "import confluent_kafka", "import multiprocessing.connection"],
    "evaluate": ["import stream_learner.operations", "import pyarrow"],
    "evaluate.formats": ["import socket"],
    "operations": ["import stream_learner.demo", "import rocksdict"],
    "cli": ["import structlog"],
}


def test_every_wrong_import_is_found(tmp_path: Path) -> None:
    """In a package of the same layers: each is named with its line, and none beside."""
    package = tmp_path / "stream_learner"
    for name in (*WRONG, "demo", "evaluate.vw", "traffic", "version", "wording"):
        folder = package.joinpath(*name.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("".join(f"{line}\n" for line in WRONG.get(name, ())))
    for name in ("__init__.py", "__main__.py"):
        (package / name).touch()
    ended = lint(tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found = re.findall(r"^- +stream_learner\.([\w.]+) -> (\S+) \(l\.(\d+)\)$", ended.stdout, re.MULTILINE)
    wrong = [
        (name, line.split()[1].removesuffix(".connection"), str(number))
        for name, lines in WRONG.items()
        for number, line in enumerate(lines, 1)
    ]
    assert sorted(found) == sorted(wrong), ended.stdout


PRIVATE = re.compile(
    r"^\s*(?:from|import) (numba\.core\S*|numba\.np\S*|grpc\._\S+|uvicorn\.protocols\S*|ctypes\S*|\w+\._\S+)", re.M
)
ALLOWED = {
    "adapters/http/connection.py": {"uvicorn.protocols.http.httptools_impl"},
    "adapters/kafka/library.py": {"ctypes"},
    "adapters/kafka/mock_broker.py": {"ctypes"},
    "adapters/kafka/packed_consumer.py": {"ctypes"},
    "adapters/machine.py": {"ctypes"},
    "core/join/gather.py": {"numba.core.cgutils"},
    "core/machine/kernels.py": {"numba.core", "numba.core.runtime"},
    "core/machine/records.py": {"numba.core"},
}
"""Files that use what another library keeps private, or its functions by address: docs/adr/0022, 0023 and 0024.

`cgutils` is what numba documents for intrinsics.
"""


def test_what_is_private_to_a_library_is_used_by_named_files_only() -> None:
    """A new one needs a reason, the versions it was tried with and a way back, in a decision of its own."""
    package = PROJECT / "stream_learner"
    found = {
        path.relative_to(package).as_posix(): set(PRIVATE.findall(path.read_text(encoding="utf-8")))
        for path in package.rglob("*.py")
    }
    assert {name: modules for name, modules in found.items() if modules} == ALLOWED
