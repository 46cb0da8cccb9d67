"""Helm comes from the package that is pinned, or from PATH, or not at all: then one line says what to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import get_helm


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what the test puts there, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(get_helm, "PROJECT", tmp_path)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(path: Path, name: str, script: str) -> Path:
    """A command that is a shell script."""
    file = path / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_the_cached_helm_is_the_pinned_one() -> None:
    """Whatever brought it, it is a Helm 3 that runs."""
    run = subprocess.run([get_helm.helm(), "version", "--short"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("v3.")


def test_without_npm_and_helm_it_says_what_to_install(path: Path) -> None:
    """In one line."""
    with pytest.raises(get_helm.NoHelm, match=r"apt-get install npm") as caught:
        get_helm.helm()
    assert "\n" not in str(caught.value)


def test_another_archive_than_the_pinned_one_is_not_unpacked(path: Path) -> None:
    """Its checksum is compared before anything of it is used; nothing stays in the cache."""
    put(path, "npm", "echo something else > helm.tgz")
    with pytest.raises(get_helm.NoHelm, match="is not the archive that is pinned: its SHA-512 is"):
        get_helm.helm()
    assert not (path.parent / ".build" / "helm" / get_helm.VERSION / "helm").exists()


def test_what_npm_says_is_passed_on(path: Path) -> None:
    """Its last line."""
    put(path, "npm", "echo no network here >&2; exit 1")
    with pytest.raises(get_helm.NoHelm, match="no network here"):
        get_helm.helm()


@pytest.mark.parametrize(("version", "taken"), [("v3.14.0+g1", True), ("v4.0.0", False)])
def test_a_helm_3_on_path_will_do(path: Path, version: str, taken: bool) -> None:
    """Where there is no npm; another version renders differently."""
    own = put(path, "helm", f"echo {version}")
    if taken:
        assert get_helm.helm() == own
    else:
        with pytest.raises(get_helm.NoHelm):
            get_helm.helm()
