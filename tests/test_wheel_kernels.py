"""A wheel that carries its kernels: where it fits nothing is compiled, and elsewhere it works as any other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import llvmlite.binding
import pytest

import stream_learner
from stream_learner.core.machine.carried import FITS, FOLDER, carried_folder, fits, processor_for, processors
from stream_learner.core.machine.kernels import sources_stamp

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = Path(stream_learner.__file__).parent
BUILD_S = 3600
STAMP = b"stamp"
HASHING = """
import numba
from stream_learner.core.machine.kernels import missing
from stream_learner.core.parts import HASHING, compile_parts

compile_parts([HASHING])
print(missing(), numba.config.CPU_NAME)
"""


def package_that_says(folder: Path, said: str) -> Path:
    """A folder with machine code that is said to fit this."""
    (folder / FOLDER).mkdir()
    (folder / FOLDER / FITS).write_text(said, encoding="utf-8")
    return folder


def test_machine_code_is_taken_where_all_it_says_fits(tmp_path: Path) -> None:
    """The same machine, Python, libraries and sources."""
    package = package_that_says(tmp_path, json.dumps(fits(STAMP)))
    assert carried_folder(package, STAMP) == package / FOLDER
    assert carried_folder(package, b"other sources") is None


@pytest.mark.parametrize("name", fits(STAMP))
def test_machine_code_of_anything_else_is_left_alone(tmp_path: Path, name: str) -> None:
    """One difference is enough."""
    assert carried_folder(package_that_says(tmp_path, json.dumps({**fits(STAMP), name: "0"})), STAMP) is None


@pytest.mark.parametrize("said", ["", "{", "[]", "null", "{}"])
def test_a_damaged_note_is_no_machine_code(tmp_path: Path, said: str) -> None:
    """Nor is a package without any."""
    assert carried_folder(tmp_path, STAMP) is None
    assert carried_folder(package_that_says(tmp_path, said), STAMP) is None


def test_machine_code_is_taken_and_numba_left_as_it_is(tmp_path: Path) -> None:
    """Whatever else the process compiles with numba is compiled for the machine, as without this package."""
    package = tmp_path / "with" / PACKAGE.name
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    processor = processor_for(processors()[0], llvmlite.binding.get_host_cpu_features())
    assert hashing_of(package, NUMBA_CPU_NAME=str(processor), NUMBA_CPU_FEATURES="") != "0 None"
    for file in sorted(package.rglob("__pycache__/*.nb[ic]")):
        target = package / FOLDER / file.parent.parent.relative_to(package)
        target.mkdir(parents=True, exist_ok=True)
        file.rename(target / file.name)
    (package / FOLDER / FITS).write_text(json.dumps(fits(sources_stamp(package))), encoding="utf-8")
    assert hashing_of(package) == "0 None"


def hashing_of(package: Path, **more: str) -> str:
    """What `HASHING` prints with this package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    return subprocess.run(
        [sys.executable, "-c", HASHING],
        env={**kept, "PYTHONPATH": str(package.parent), **more},
        cwd=package.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()


class Installed:
    """A wheel in an empty environment, which sees the libraries of this one but not its package."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        packages = Path(self.output("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        self.package = packages / "stream_learner"
        (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)

    def output(self, *arguments: str, **more: str) -> str:
        """What its Python prints, with no variable of numba's set but these."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
        done = subprocess.run(
            [self.python, *arguments], env={**kept, **more}, cwd="/", stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    def missing(self, **more: str) -> tuple[int, str]:
        """How many kernels of hashing a process has to compile, and for which processor."""
        count, processor = self.output("-c", HASHING, **more).split()
        return int(count), processor


def compiled_by(installed: Installed, **more: str) -> int:
    """How many of all roles' kernels are missing, for every optimizer."""
    answer: dict[str, Any] = json.loads(installed.output("-m", "stream_learner", "compile", "--json", **more))
    return int(answer["compiled"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with machine code."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    environment = {**os.environ, "HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"}
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return Path(built)


@pytest.mark.nightly
@pytest.mark.timeout(BUILD_S)
def test_from_a_wheel_with_machine_code_nothing_is_compiled(wheel: Path, tmp_path: Path) -> None:
    """Of any role and optimizer, in an empty environment. Where it does not fit, kernels are compiled and kept; so they
    are for a processor that is asked for.
    """
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{tag}-{tag}-" in wheel.name
    installed = Installed(wheel, tmp_path / "environment")
    kept, other, again = (str(tmp_path / name) for name in ("kept", "other", "again"))
    assert compiled_by(installed, NUMBA_CACHE_DIR=kept) == 0
    assert installed.missing(NUMBA_CACHE_DIR=kept) == (0, "None")
    count, processor = installed.missing(NUMBA_CACHE_DIR=other, NUMBA_CPU_NAME="generic")
    assert (count > 0, processor) == (True, "generic")
    note = installed.package / FOLDER / FITS
    note.write_text(json.dumps({**json.loads(note.read_bytes()), "numba": "0"}), encoding="utf-8")
    assert installed.missing(NUMBA_CACHE_DIR=again) == (count, "None")
    assert installed.missing(NUMBA_CACHE_DIR=again)[0] == 0


@pytest.mark.nightly
@pytest.mark.timeout(BUILD_S)
def test_machine_code_is_all_that_the_wheel_has_more(wheel: Path, tmp_path: Path) -> None:
    """Every other file is that of a wheel without machine code, and no file is without use."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (plain,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as carrying, zipfile.ZipFile(plain) as without:
        more = set(carrying.namelist()) - set(without.namelist())
        assert set(without.namelist()) <= set(carrying.namelist())
    assert {name.rpartition(".")[2] for name in more} == {"nbi", "nbc", "json"}
    assert all(name.startswith(f"stream_learner/{FOLDER}/") for name in more)
