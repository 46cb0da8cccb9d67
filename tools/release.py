"""Completes a release in dist/ and checks it: `python -m tools.release`, run by `make release`.

In: dist/ with the wheel and the chart, and the site in .build/site. It adds the sdist, bills of materials, the site as
one file, the notes, the image where this machine can build one, and SHA256SUMS. The checks install and run what is in
dist/; they must never see the package of the tree. Nothing is sent anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from cyclonedx.model.component import Component, ComponentType
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from stream_learner.core.machine.carried import FOLDER
from stream_learner.version import __version__
from tools.sbom import bill, component, locked, of_debian

PROJECT = Path(__file__).resolve().parent.parent
LOCK = PROJECT / "requirements" / "runtime.lock"
OURS = ("HATCH_", "NUMBA_", "PYTHON", "STREAM_LEARNER_")
"""Variables of the one who builds, which reach no check."""


class BadRelease(RuntimeError):
    """What was built is not what it should be; the message says which file, and why."""


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version: its own section, else what is under Unreleased."""
    for name in (version, "Unreleased"):
        found = re.search(rf"^## \[{re.escape(name)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
        if found and found[1].strip():
            return f"# stream-learner {version}\n\n{found[1].strip()}\n"
    raise BadRelease(f"CHANGELOG.md says nothing of {version}, and nothing under Unreleased")


def run(*command: str | Path, folder: Path = PROJECT, **more: str) -> str:
    """What a command prints. Raises BadRelease with its last lines."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    done = subprocess.run(command, cwd=folder, env={**kept, **more}, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise BadRelease(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{last}")
    return done.stdout.strip()


def image(archive: Path) -> list[Component]:
    """Build the image into an archive; returns what is in it."""
    name = run(PROJECT / "tools" / "build-image", BUILDER="buildah").splitlines()[-1]
    run("buildah", "push", "--quiet", name, f"oci-archive:{archive}:{name}")
    container = run("buildah", "from", name)
    try:
        return in_image(Path(run("buildah", "mount", container)))
    finally:
        run("buildah", "rm", container)


def in_image(root: Path) -> list[Component]:
    """What is in the files of an image: Debian's packages, Python, and those of the lock file."""
    system = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', (root / "etc/os-release").read_text(), re.MULTILINE))
    found = re.search(r"^version = (\S+)", (root / "opt/stream-learner/pyvenv.cfg").read_text(), re.MULTILINE)
    if found is None:
        raise BadRelease("the image does not say which Python it has, in opt/stream-learner/pyvenv.cfg")
    debian = of_debian((root / "var/lib/dpkg/status").read_text(), f"{system['ID']}-{system['VERSION_ID']}")
    return [*debian, component(PackageURL("generic", None, "python", found[1])), *locked(LOCK.read_text(), found[1])]


def sums(dist: Path) -> str:
    """The SHA-256 of each file, as `sha256sum --check` reads them."""
    files = sorted(file for file in dist.iterdir() if file.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def check_sdist(sdist: Path, wheel: Path) -> None:
    """The sdist makes the same wheel, but for machine code and what describes it."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, sdist)
        (again,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(again) as made, zipfile.ZipFile(wheel) as released:
            lost = set(made.namelist()) ^ {name for name in released.namelist() if f"/{FOLDER}/" not in name}
            differ = [
                name
                for name in sorted(set(made.namelist()) - lost)
                if not name.endswith(("/RECORD", "/WHEEL")) and made.read(name) != released.read(name)
            ]
    if lost or differ:
        raise BadRelease(f"{sdist.name} makes another wheel than {wheel.name}: {', '.join([*sorted(lost), *differ])}")


def check_wheel(wheel: Path, components: list[Component]) -> None:
    """In a fresh environment the wheel runs and compiles nothing, beside exactly the packages of its bill."""
    with tempfile.TemporaryDirectory(prefix="release-") as place:
        folder, programs = Path(place), Path(place, "environment", "bin")
        venv.create(programs.parent, symlinks=True)
        pip = (sys.executable, "-m", "pip", "--python", programs / "python")
        run(*pip, "install", "--quiet", "--require-hashes", "-r", LOCK, folder=folder)
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
        listed = json.loads(run(*pip, "list", "--format=json", folder=folder))
        there = {(canonicalize_name(one["name"]), one["version"]) for one in listed}
        if wrong := there ^ {("stream-learner", __version__), *((one.name, one.version) for one in components)}:
            raise BadRelease(f"only one of {wheel.name} and its bill has {sorted(wrong)}")
        program = programs / "stream-learner"
        if __version__ not in run(program, "--version", folder=folder):
            raise BadRelease(f"{wheel.name} does not say that it is {__version__}")
        run(program, "config", "check", "-c", PROJECT / "configs" / "minimal.yaml", folder=folder)
        kernels = json.loads(run(program, "compile", "--json", folder=folder, NUMBA_CACHE_DIR=str(folder / "kernels")))
        if kernels["compiled"]:
            raise BadRelease(f"{kernels['compiled']} kernels are missing from {wheel.name}, or do not fit this machine")


def main() -> None:
    """Add what is missing from dist/, then check it."""
    dist, name = PROJECT / "dist", f"stream-learner-{__version__}"
    (wheel,) = dist.glob("*.whl")
    sdist = dist / f"stream_learner-{__version__}.tar.gz"
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", dist)
    for file in (sdist, dist / f"{name}.tgz"):
        if not file.exists():
            raise BadRelease(f"no {file.name}: give version.py, pyproject.toml and Chart.yaml the same version")
    shutil.make_archive(str(dist / f"{name}-site"), "zip", PROJECT / ".build" / "site")
    (dist / f"{name}-notes.md").write_text(notes((PROJECT / "CHANGELOG.md").read_text(), __version__))
    components = locked(LOCK.read_text(), platform.python_version())
    (dist / f"{wheel.stem}.cdx.json").write_text(bill(wheel, ComponentType.APPLICATION, __version__, components))
    if os.geteuid() == 0 and shutil.which("buildah"):
        archive = dist / f"{name}-image.tar"
        there = image(archive)
        (dist / f"{archive.stem}.cdx.json").write_text(bill(archive, ComponentType.CONTAINER, __version__, there))
    else:
        print("No image, and no bill of one: they need root and Buildah.", file=sys.stderr)
    (dist / "SHA256SUMS").write_text(sums(dist))
    check_sdist(sdist, wheel)
    check_wheel(wheel, components)
    print("\n".join(f"{file.stat().st_size:>12,} {file.name}" for file in sorted(dist.iterdir())))


if __name__ == "__main__":
    try:
        main()
    except BadRelease as error:
        sys.exit(str(error))
