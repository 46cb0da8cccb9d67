"""Builds a program in Java, once, into the project's cache.

A folder beside this file that has a `pom.xml` becomes classes and jars, complete or absent; it is built anew when its
sources change. It takes a JDK of at least version 17 and Maven.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.kafka_broker.jars import java_found

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".build" / "peers"
JVM = (
    "-Xmx3g",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
"""Flink asks for what Java 17 closes; no other flag is set, so that Java picks its collector by the machine."""


class ToolMissing(RuntimeError):
    """This machine lacks what a program needs; the message is one line that says what."""


def java_command(name: str, main: str, scratch: Path, *arguments: str) -> list[str]:
    """The command that runs a program, built if it is not, with a folder for its files.

    Raises ToolMissing, or RuntimeError if Maven fails.
    """
    java = java_found()
    if java is None or shutil.which("javac") is None or shutil.which("mvn") is None:
        raise ToolMissing("needs a JDK of version 17 or later, and Maven")
    folder = built(name)
    return [
        java,
        *JVM,
        f"-Djava.io.tmpdir={scratch}",
        "-cp",
        f"{folder / 'classes'}:{folder / 'jars'}/*",
        main,
        *arguments,
    ]


def built(name: str) -> Path:
    """The folder with the classes and jars of a program."""
    folder = CACHE / f"{name}-{_digest(HERE / name)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _build(HERE / name, folder)
    return folder


def _build(source: Path, folder: Path) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(source / "pom.xml"), f"-Dbuilt={partial}"]
    command += [
        "compile",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={partial}/jars",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        last = "\n".join((run.stdout + run.stderr).strip().splitlines()[-15:])
        raise RuntimeError(f"Maven could not build {source.name}:\n{last}")
    partial.rename(folder)


def _digest(source: Path) -> str:
    """A name for the state of the sources."""
    digest = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.suffix in (".java", ".xml")):
        digest.update(file.relative_to(source).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
