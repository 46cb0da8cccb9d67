"""A release: its notes, its bills of materials, its sums, and the checks that refuse what is not whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.component import Component, ComponentType
from packageurl import PackageURL

from stream_learner import __version__
from tools.release import LOCK, PROJECT, BadRelease, check_sdist, in_image, notes, sums
from tools.sbom import bill, component, locked

CHANGELOG = """# Changelog

## [Unreleased]

## [0.10.0] - 2027-01-01

### Added

- The tenth.

## [0.1.0]

- The first.
"""
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc (2.36-9)
Version: 2.36-9+deb12u10
Description: GNU C Library
 Package: is the start of no other entry
 .

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: login
Status: install ok installed
Architecture: amd64
Version: 1:4.13+dfsg1-1
"""


def read(file: Path, components: list[Component]) -> dict[str, Any]:
    """The bill of a file, as a reader finds it."""
    said: dict[str, Any] = json.loads(bill(file, ComponentType.APPLICATION, __version__, components))
    return said


def test_notes_are_the_section_of_the_version_or_what_is_unreleased() -> None:
    assert notes(CHANGELOG, "0.10.0") == "# stream-learner 0.10.0\n\n### Added\n\n- The tenth.\n"
    assert notes(CHANGELOG, "0.1.0") == "# stream-learner 0.1.0\n\n- The first.\n"
    assert "### Added" in notes((PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    with pytest.raises(BadRelease, match=r"nothing of 0\.2\.0, and nothing under Unreleased"):
        notes(CHANGELOG, "0.2.0")


@pytest.mark.parametrize(("python", "numpy"), [("3.10.4", "2.2.6"), ("3.14.0", "2.5.5")])
def test_a_bill_has_each_package_that_a_python_installs_once_with_its_hashes(
    tmp_path: Path, python: str, numpy: str
) -> None:
    """It holds against CycloneDX's own schema, which `bill` asks."""
    lock = LOCK.read_text(encoding="utf-8")
    (tmp_path / "a.whl").write_bytes(b"wheel")
    said = read(tmp_path / "a.whl", locked(lock, python))
    assert (said["bomFormat"], said["specVersion"]) == ("CycloneDX", "1.6")
    assert said["metadata"]["component"]["version"] == __version__
    found = {one["name"]: one for one in said["components"]}
    assert len(found) == len(said["components"]) > 30
    assert found["numpy"]["purl"] == f"pkg:pypi/numpy@{numpy}"
    assert ("exceptiongroup" in found) == (python == "3.10.4")
    for name, one in found.items():
        entry = re.search(rf"^{name}=={re.escape(one['version'])} .*?(?=^\S|\Z)", lock, re.DOTALL | re.MULTILINE)
        assert entry is not None
        kept = {sha256["content"] for sha256 in one["hashes"]}
        assert kept == set(re.findall(r"--hash=sha256:(\w+)", entry[0])) != set()


def test_what_is_no_bill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    with pytest.raises(ValueError, match=r"a\.whl is not CycloneDX 1\.6"):
        read(tmp_path / "a.whl", [component(PackageURL("pypi", None, "a", "1"), ["no hash"])])


def test_an_image_has_debians_packages_python_and_the_lock_files(tmp_path: Path) -> None:
    """What was taken away is not in it."""
    for name, text in (
        ("etc/os-release", 'PRETTY_NAME="Debian"\nVERSION_ID="12"\nID=debian\n'),
        ("opt/stream-learner/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.12\n"),
        ("var/lib/dpkg/status", STATUS),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "image.tar").write_bytes(b"image")
    found = [one["purl"] for one in read(tmp_path / "image.tar", in_image(tmp_path))["components"]]
    assert sorted(one for one in found if "pypi" not in one) == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/login@1:4.13%2Bdfsg1-1?arch=amd64&distro=debian-12",
        "pkg:generic/python@3.12.12",
    ]
    assert "pkg:pypi/numpy@2.5.5" in found


def test_sums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    for name in ("a.whl", "b.tgz"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    for _ in range(2):  # the sums are no file of the sums
        (tmp_path / "SHA256SUMS").write_text(sums(tmp_path), encoding="utf-8")
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True)
    assert checked.stdout == b"a.whl: OK\nb.tgz: OK\n"


def test_an_sdist_makes_the_wheel_and_a_wheel_that_is_not_of_it_is_refused(tmp_path: Path) -> None:
    """Built from the tree and from the sdist, both have the same files and metadata."""
    for target in ("sdist", "wheel"):
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(tmp_path)]
        subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    check_sdist(sdist, wheel)
    with zipfile.ZipFile(wheel, "a") as files:
        files.writestr("stream_learner/other.py", "")
    with pytest.raises(BadRelease, match=r"another wheel than .*: stream_learner/other\.py"):
        check_sdist(sdist, wheel)
