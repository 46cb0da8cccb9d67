"""Brings promtool, which tests the rules of Prometheus, into the project's cache, and prints where it is.

It is a `promtool` on PATH, or comes out of the package `prometheus` of the distribution. apt compares that package with
the signed lists of the distribution. Those are read into the cache too, so that it takes no rights, and nothing is
installed or started. A version is not pinned: the distribution keeps one at a time.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE, MEMBER = "prometheus", "usr/bin/promtool"
WHAT_TO_INSTALL = "no promtool to test the alerts with: put promtool on PATH (the Debian package prometheus has it)"


class NoPromtool(RuntimeError):
    """promtool cannot be had here; the message is one line that says what to install."""


def promtool() -> Path:
    """The path of promtool. Raises NoPromtool."""
    cached = PROJECT / ".build" / "promtool" / "promtool"
    cached.parent.mkdir(parents=True, exist_ok=True)
    with (cached.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        own = shutil.which("promtool")
        if own is not None:
            return Path(own)
        if not cached.exists():
            if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
                raise NoPromtool(WHAT_TO_INSTALL)
            _fetch(cached)
    return cached


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True)
        settings = {
            "Dir::State": folder / "state",
            "Dir::State::status": "/var/lib/dpkg/status",
            "Dir::Cache": folder / "cache",
            "APT::Sandbox::User": "",
        }
        apt = ["apt-get", "-qq", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
        for command in ("update", "download"):
            _run([*apt, command, *([PACKAGE] if command == "download" else [])], folder)
        (archive,) = folder.glob("*.deb")
        _run(["dpkg-deb", "-x", archive.name, "unpacked"], folder)
        (folder / "unpacked" / MEMBER).rename(target)


def _run(command: list[str], folder: Path) -> None:
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        said = (run.stderr.strip() or run.stdout.strip() or "it says nothing").splitlines()[-1]
        raise NoPromtool(f"{WHAT_TO_INSTALL}; {command[0]} could not fetch it: {said}")


if __name__ == "__main__":
    try:
        print(promtool())
    except NoPromtool as error:
        sys.exit(str(error))
