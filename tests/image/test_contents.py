"""What is in the image and what is not, read from its files, its configuration and its history."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_learner import __version__
from tests.image.builder import MARKER, Image
from tests.image.conftest import Measured
from tests.image.container import STATE

pytestmark = pytest.mark.thorough

SIZE_LIMIT_BYTES = 600_000_000
INSTALLED = "opt/stream-learner"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "ld", "as", "make", "cargo", "rustc", "go", "pip", "pip3", "uv")
WRITABLE_FOR_ALL = {"tmp", "var/tmp", "run/lock", "dev/shm"}


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and folder but devices and links: its path below the root, and what `stat` says."""
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 -- a hundred thousand of them
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
                yield os.path.relpath(path, root), found


def test_the_size_is_bounded(image: Image, measured: Measured) -> None:
    """What a node has to fetch and keep, all layers together."""
    size_bytes = sum(found.st_size for _, found in walk(image.root) if stat.S_ISREG(found.st_mode))
    ours_bytes = sum(found.st_size for _, found in walk(image.root / INSTALLED) if stat.S_ISREG(found.st_mode))
    measured(f"size: {size_bytes / 1e6:.0f} MB, of which {ours_bytes / 1e6:.0f} MB above the base")
    assert size_bytes < SIZE_LIMIT_BYTES


def test_it_starts_as_the_program_under_a_numeric_user(image: Image) -> None:
    """Kubernetes can tell that the user is not root only if it is a number; signals reach an exec-form entry point."""
    assert image.config["User"] == "10001:10001"
    assert image.config["Entrypoint"] == ["stream-learner"]
    assert image.config["Cmd"] == ["--help"]
    assert image.config["StopSignal"] == "SIGTERM"
    assert image.config["WorkingDir"] == STATE
    assert list(image.config["Volumes"]) == [STATE]


def test_it_says_what_it_is(image: Image) -> None:
    """The labels of the Open Container Initiative, with the version and the commit it was built from."""
    labels = image.config["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[prefix + "title"] == "stream-learner"
    assert labels[prefix + "version"] == __version__
    assert labels[prefix + "licenses"] == "Apache-2.0"
    assert re.fullmatch(r"([0-9a-f]{40}(-changed)?)?", labels[prefix + "revision"])
    assert labels[prefix + "description"] and prefix + "source" in labels


def test_there_is_no_compiler_and_no_installer(image: Image) -> None:
    """An intruder finds nothing to build or to install with."""
    folders = ["opt/stream-learner/bin", "usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"]
    assert [name for name in COMPILERS for folder in folders if os.path.lexists(image.root / folder / name)] == []
    assert [path for path, _ in walk(image.root) if path.endswith(("-packages/pip", "-packages/setuptools"))] == []


def test_there_are_no_caches_and_no_leftovers(image: Image) -> None:
    """Nothing of apt's, of pip's or of the build's, and no home folder with anything in it."""
    kept = [path for path, found in walk(image.root) if stat.S_ISREG(found.st_mode)]
    leftovers = re.compile(
        r"(var/cache/apt/.*\.(deb|bin)|var/lib/apt/lists/.*_.*|(root|home/\w+)/\.cache/.*|build/.*|tmp/.*|var/tmp/.*"
        r"|run/secrets/.*|etc/pip\.conf|.*/site-packages/.*/tests/.*)"
    )
    assert [path for path in kept if leftovers.fullmatch(path)] == []


def test_nothing_of_the_building_machine_is_left(image: Image) -> None:
    """The build was given a mirror's name among pip's settings. No file has it, no variable, no step of the history;
    and no step or variable has any address at all.
    """
    found = subprocess.run(
        ["grep", "-rlF", "--devices=skip", MARKER, str(image.root)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "")
    texts = [json.dumps(image.history), *(f"{name}={value}" for name, value in image.environment.items())]
    assert not [text for text in texts if re.search(rf"{re.escape(MARKER)}|://|password|token|secret=", text, re.I)]
    resolver = image.root / "etc" / "resolv.conf"
    assert not resolver.exists() or resolver.read_text() == ""


def test_only_the_state_can_be_written(image: Image) -> None:
    """Everything belongs to root, and neither the image's user, nor group 0, nor everyone may change it."""
    writable = set()
    for path, found in walk(image.root):
        bits = found.st_mode & (0o002 | (0o020 if found.st_gid in (0, 10001) else 0))
        if bits or found.st_uid == 10001:
            writable.add(path)
    assert STATE[1:] in writable
    assert writable - WRITABLE_FOR_ALL == {STATE[1:]}
    assert {found.st_uid for path, found in walk(image.root / INSTALLED)} == {0}


@pytest.mark.parametrize("module", ["stream_learner/cli/role_commands.py", "numpy/__init__.py", "pydantic/main.py"])
def test_byte_code_is_there(image: Image, module: str) -> None:
    """A read-only root cannot keep what Python would compile, so every start would compile it."""
    (source,) = (image.root / INSTALLED / "lib").glob(f"python3.*/site-packages/{module}")
    assert list((source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc"))
