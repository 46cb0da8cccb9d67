"""Brings the broker's jars, once, into the project's cache.

They are those of `pom.xml` beside this file, fetched with Java 17 and Maven; the folder is complete or absent. It must
never leave a half-filled folder under the final name, nor fetch twice when tests start side by side.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
POM = HERE / "pom.xml"
JAVA_MIN = 17


def kafka_version() -> str:
    """The version of Apache Kafka in the shopping list."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", POM.read_text())
    if found is None:
        raise ValueError(f"{POM} names no kafka.version")
    return found.group(1)


def java_found() -> str | None:
    """Path of a Java of at least version 17, or None."""
    java = shutil.which("java")
    if java is None:
        return None
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', run.stderr + run.stdout)
    return java if found is not None and int(found.group(1)) >= JAVA_MIN else None


def cached_jars() -> Path:
    """The folder of the jars, whether they are there yet or not."""
    return PROJECT / ".build" / "kafka" / kafka_version()


def class_archive() -> Path:
    """Kafka's classes as Java holds them, in a file beside the jars: a node starts with less work.

    Java passes over one that does not fit its version, or the jars.
    """
    return cached_jars().with_name(f"{kafka_version()}.jsa")


@contextmanager
def making_class_archive() -> Iterator[list[str]]:
    """The flags with which a Java that ends by itself leaves the archive behind."""
    partial = class_archive().with_suffix(f".{os.getpid()}")
    yield [f"-XX:ArchiveClassesAtExit={partial}"]
    if partial.exists():
        partial.replace(class_archive())


def jars() -> Path:
    """The folder of jars, fetched with Maven if it is not there yet (about 45 MB, 10–60 s).

    Raises RuntimeError with Maven's last lines when the fetch fails.
    """
    folder = cached_jars()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(POM),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={partial}",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0 or not list(partial.glob("kafka_*.jar")):
        last = "\n".join((run.stdout + run.stderr).strip().splitlines()[-15:])
        raise RuntimeError(f"Maven could not fetch the broker's jars:\n{last}")
    partial.rename(folder)
