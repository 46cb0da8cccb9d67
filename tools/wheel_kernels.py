"""Compiles the kernels into a wheel, which is then one for this version of Python and this kind of machine.

`make wheel` asks hatchling for this hook; without it a wheel has no machine code, and fits every machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "stream_learner"
SAYS_WHAT_FITS = """
import json
from stream_learner.core.machine.carried import FITS, FOLDER, fits, processors
from stream_learner.core.machine.kernels import PACKAGE, sources_stamp

print(json.dumps([FOLDER, FITS, fits(sources_stamp(PACKAGE)), processors()]))
"""


class WheelKernels(BuildHookInterface[Any]):
    """Adds the folder with machine code to the files of the wheel, and the wheel's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every kernel of a copy of the package."""
        self._scratch = tempfile.TemporaryDirectory(prefix="wheel-kernels-")
        name, folder = machine_code(Path(self.root, PACKAGE), Path(self._scratch.name))
        build_data["force_include"][str(folder)] = f"{PACKAGE}/{name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        self._scratch.cleanup()


def machine_code(package: Path, scratch: Path) -> tuple[str, Path]:
    """Compile every kernel of a package for each processor; returns the folder's name in the package, and the folder.

    Numba keeps machine code beside the sources of a copy, in folders named __pycache__; from there it is taken.
    """
    copy = scratch / "source" / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    name, fits_name, fits, processors = json.loads(_run(copy, "-c", SAYS_WHAT_FITS))
    for processor in processors:
        _run(copy, "-m", PACKAGE, "compile", NUMBA_CPU_NAME=processor)
    folder = scratch / name
    for file in sorted(copy.rglob("__pycache__/*.nb[ic]")):
        target = folder / file.parent.parent.relative_to(copy)
        target.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)
    (folder / fits_name).write_text(json.dumps(fits, indent=2) + "\n", encoding="utf-8")
    return name, folder


def _run(package: Path, *arguments: str, **more: str) -> str:
    """What Python prints that runs in the folder of a package. Nothing of NUMBA_… but `more` reaches it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = {**kept, "PYTHONPATH": str(package.parent), "NUMBA_CPU_FEATURES": "", **more}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=package.parent, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout
