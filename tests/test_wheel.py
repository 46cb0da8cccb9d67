"""A built wheel: all files are in it, its long description can be read anywhere, its dependencies have upper bounds."""

from __future__ import annotations

import email
import email.message
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = "https://code.example/stream-learner"


def metadata_of_wheel(folder: Path, source: str) -> email.message.Message:
    """The metadata of a wheel that is built with SOURCE set to this address."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=PROJECT, env={**os.environ, "SOURCE": source}, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_string(files.read(name).decode())


def links(text: str) -> list[str]:
    """The targets of the links in a description."""
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> email.message.Message:
    """The metadata of a wheel that has the address of its source code."""
    return metadata_of_wheel(tmp_path_factory.mktemp("wheel"), SOURCE)


def test_every_link_of_the_long_description_is_absolute(metadata: email.message.Message) -> None:
    """Those that the README has to files of the project lead to these files at the address of the source."""
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    found = links(str(metadata.get_payload()))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(found) == len(links(readme)) >= 10
    for link in found:
        assert re.match(r"https?://", link), link
        if link.startswith(SOURCE):
            path = link.removeprefix(f"{SOURCE}/blob/HEAD/").partition("#")[0]
            assert (PROJECT / path).exists(), link


def test_the_projects_addresses_are_told(metadata: email.message.Message) -> None:
    """Source and documentation, each below the address of the source, each a page that exists."""
    addresses = dict(value.split(", ") for value in metadata.get_all("Project-URL", []))
    assert {"Source", "Documentation"} <= set(addresses)
    assert addresses.pop("Source") == SOURCE
    for address in addresses.values():
        assert (PROJECT / address.removeprefix(f"{SOURCE}/blob/HEAD/").partition("#")[0]).is_file(), address


def test_without_an_address_no_link_leads_nowhere(tmp_path: Path) -> None:
    """The text of each link stays, and the wheel names no address."""
    metadata = metadata_of_wheel(tmp_path, "")
    text = str(metadata.get_payload())
    assert [link for link in links(text) if not re.match(r"https?://", link)] == []
    assert metadata.get_all("Project-URL") is None
    assert "Backfill from last month's topics" in text


def test_every_dependency_has_an_upper_bound(metadata: email.message.Message) -> None:
    """So that a new major version of one does not break an installation that was right."""
    needed = metadata.get_all("Requires-Dist", [])
    assert len(needed) >= 15
    assert [one for one in needed if "<" not in one.partition(";")[0]] == []


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    """Modules, and what they read beside them: the OpenAPI document is one such file."""
    metadata_of_wheel(tmp_path, "")
    (wheel,) = tmp_path.glob("*.whl")
    package = PROJECT / "stream_learner"
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert package / "adapters" / "http" / "openapi.json" in files
    with zipfile.ZipFile(wheel) as there:
        assert {path.relative_to(PROJECT).as_posix() for path in files} <= set(there.namelist())
