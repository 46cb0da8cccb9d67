"""Machine code that an installed wheel carries: kernels compiled for a processor that many machines can stand in for.

`make wheel` puts it beside the package's modules. It is used where it fits: the same sources, the same versions of
Python, numba and llvmlite, and no other processor asked for. Everywhere else kernels are compiled, as without it.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import llvmlite
import numba

FOLDER: Final = "machine_code"
"""The folder in the package; below it each source's folder, with the files that numba keeps of its kernels."""
FITS: Final = "fits.json"
"""The file in `FOLDER` that says what the machine code fits."""

V3_INSTRUCTIONS = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
"""The instructions of x86-64-v3 that x86-64-v2 lacks, by LLVM's names."""


def processors() -> tuple[str, ...]:
    """The processors that machine code is carried for on machines such as this one, the most able one first."""
    return ("x86-64-v3", "x86-64-v2") if platform.machine() in ("x86_64", "AMD64") else ("generic",)


def processor_for(named: str | None, instructions: Mapping[str, bool]) -> str | None:
    """The processor to compile for, if NUMBA_CPU_NAME is `named` and the machine has `instructions`.

    It is the named one, except that a machine without all of x86-64-v3 gets x86-64-v2: an image holds machine code for
    both. The results are the same to the bit.
    """
    if named == "x86-64-v3" and not all(instructions.get(name) for name in V3_INSTRUCTIONS):
        return "x86-64-v2"
    return named


def fits(sources_stamp: bytes) -> dict[str, str]:
    """What machine code that is compiled now, from these sources, fits."""
    return {
        "machine": platform.machine(),
        "python": f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}",
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "sources": sources_stamp.hex(),
    }


def carried_folder(package: Path, sources_stamp: bytes) -> Path | None:
    """The folder with machine code of a package; None if it carries none, or none that fits here."""
    folder = package / FOLDER
    try:
        said = json.loads((folder / FITS).read_bytes())
    except (OSError, ValueError):
        return None
    return folder if said == fits(sources_stamp) else None
