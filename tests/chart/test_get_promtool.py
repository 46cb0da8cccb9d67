"""promtool comes from PATH or out of the distribution's package, or not at all: then one line says what to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.chart.test_get_helm import put
from tools import get_promtool


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what the test puts there, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(get_promtool, "PROJECT", tmp_path)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_it_runs() -> None:
    """Whatever brought it."""
    run = subprocess.run([get_promtool.promtool(), "--version"], capture_output=True, text=True, check=True)
    assert "promtool, version" in run.stdout + run.stderr


def test_one_on_path_will_do(path: Path) -> None:
    """It is the owner's."""
    own = put(path, "promtool", "exit 0")
    assert get_promtool.promtool() == own


def test_without_a_package_it_says_what_to_install(path: Path) -> None:
    """In one line; nothing stays in the cache."""
    with pytest.raises(get_promtool.NoPromtool, match="put promtool on PATH") as caught:
        get_promtool.promtool()
    assert "\n" not in str(caught.value)


def test_what_apt_says_is_passed_on(path: Path) -> None:
    """Its last line."""
    put(path, "dpkg-deb", "exit 0")
    put(path, "apt-get", "echo no network here >&2; exit 100")
    with pytest.raises(get_promtool.NoPromtool, match="apt-get could not fetch it: no network here"):
        get_promtool.promtool()
    assert not (path.parent / ".build" / "promtool" / "promtool").exists()
