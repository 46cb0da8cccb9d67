"""Builds the image with Buildah and mounts its files.

It needs root and Buildah, and debootstrap if no registry can be reached. It must never write outside the project's
cache, and never build from anything but the project's own Dockerfile and tools.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".build" / "image"
RUN = Path("/run/stream-learner-image-test")
NAME = "localhost/stream-learner:test"
STAND_IN = "localhost/stream-learner-base:test"
CONTAINER = "stream-learner-test"
CACHE_LIMIT_BYTES = 8 << 30
MARKER = "mirror-5d0c1f.invalid"
"""A host among pip's settings of the build: trusted, never asked. It must not be found in the image."""
NEEDED = ("buildah", "unshare", "setpriv", "mount", "chroot")
WHAT_TO_INSTALL = "the image cannot be built here: run as root, with Buildah and util-linux (apt-get install buildah)"
WHAT_FOR_A_BASE = (
    "no registry can be reached, and debootstrap is missing, which would make a base (apt-get install debootstrap);"
    " or set BASE to an image with Python"
)


class NoBuilder(RuntimeError):
    """This machine cannot build the image; the message is one line that says what to install."""


@dataclass
class Image:
    """A built image. `root` is the folder with its files, `config` the OCI configuration of its containers."""

    root: Path
    config: dict[str, Any]
    history: list[dict[str, Any]]
    base: str
    stand_in: bool

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it sets."""
        return dict(entry.split("=", 1) for entry in self.config["Env"])


@contextmanager
def built() -> Iterator[Image]:
    """The image, built anew where anything has changed, mounted for as long as the block lasts.

    Raises NoBuilder.
    """
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in NEEDED):
        raise NoBuilder(WHAT_TO_INSTALL)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        storage = _Storage()
        base, stand_in = storage.base()
        _build(storage, base)
        described = json.loads(storage.buildah("inspect", "--type", "image", NAME))["OCIv1"]
        root = storage.mounted(NAME)
        try:
            yield Image(root, described["config"], described["history"], base, stand_in)
        finally:
            storage.forget()


class _Storage:
    """Buildah's store in the project's cache."""

    def __init__(self) -> None:
        self._file = CACHE / "storage.conf"
        self.environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(self._file),
            "BUILDER": "buildah",
            "IMAGE": NAME,
            "PIP_TRUSTED_HOST": MARKER,
        }
        for variable in ("STORAGE_DRIVER", "STORAGE_OPTS"):
            self.environment.pop(variable, None)
        if _size_bytes(CACHE) > CACHE_LIMIT_BYTES:
            shutil.rmtree(CACHE / "vfs", ignore_errors=True)
            shutil.rmtree(CACHE / "overlay", ignore_errors=True)
        for driver in ("overlay", "vfs"):
            self._use(driver)
            if self._works():
                return
        raise NoBuilder("neither Buildah's overlay driver nor its vfs driver works here: run as root")

    def _use(self, driver: str) -> None:
        lines = ["[storage]", f'driver = "{driver}"', f'graphroot = "{CACHE / driver}"', f'runroot = "{RUN / driver}"']
        self._file.write_text("\n".join(lines) + "\n")

    def _works(self) -> bool:
        try:
            self.forget()
            self.mounted("scratch")
            self.forget()
        except subprocess.CalledProcessError:
            return False
        return True

    def buildah(self, *arguments: str, timeout_s: float | None = None) -> str:
        """The output of a command of Buildah's. Raises CalledProcessError."""
        run = subprocess.run(
            ["buildah", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout_s,
        )
        return run.stdout.strip()

    def mounted(self, image: str) -> Path:
        """The files of an image, in a container that `forget` takes away."""
        self.buildah("from", "--quiet", "--name", CONTAINER, image)
        return Path(self.buildah("mount", CONTAINER))

    def forget(self) -> None:
        """Take the container away, also one that a killed run has left."""
        if CONTAINER in self.buildah("containers", "--format", "{{.ContainerName}}").split():
            self.buildah("rm", CONTAINER)

    def base(self) -> tuple[str, bool]:
        """The image to start from, and whether it is only a stand-in for the one in the Dockerfile."""
        given = os.environ.get("BASE") or _base_in_dockerfile()
        try:
            self.buildah("pull", "--quiet", "--policy", "ifmissing", given, timeout_s=300)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            self._make_stand_in()
            return STAND_IN, True
        return given, False

    def _make_stand_in(self) -> None:
        archive = CACHE / "base.tar"
        if not archive.exists():
            if shutil.which("debootstrap") is None:
                raise NoBuilder(WHAT_FOR_A_BASE)
            _run([str(PROJECT / "tools" / "debian-base"), str(archive)], self.environment)
        if STAND_IN not in self.buildah("images", "--all", "--format", "{{.Name}}:{{.Tag}}").split():
            self.forget()
            self.buildah("from", "--quiet", "--name", CONTAINER, "scratch")
            self.buildah("add", "--quiet", CONTAINER, str(archive), "/")
            self.buildah("commit", "--quiet", "--rm", CONTAINER, STAND_IN)


def _base_in_dockerfile() -> str:
    found = re.search(r"^ARG BASE=(\S+)$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _build(storage: _Storage, base: str) -> None:
    """Build the image as `make image` does."""
    _run([str(PROJECT / "tools" / "build-image")], {**storage.environment, "BASE": base})


def _run(command: list[str], environment: dict[str, str]) -> None:
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=PROJECT)
    if run.returncode != 0:
        last = "\n".join((run.stdout + run.stderr).strip().splitlines()[-30:])
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{last}")


def _size_bytes(folder: Path) -> int:
    run = subprocess.run(["du", "--summarize", "--bytes", str(folder)], capture_output=True, text=True, check=False)
    return int(run.stdout.split()[0]) if run.stdout else 0
