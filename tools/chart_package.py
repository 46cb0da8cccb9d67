"""Packs the chart as an archive: `python -m tools.chart_package FOLDER`, run by `make chart-package`.

Its Chart.yaml names where the source is, from the environment variable SOURCE, as the image and the wheel do. It must
never guess an address: without SOURCE the archive names none.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from tools.chart import CHART, run_helm


def described(chart: str, source: str) -> str:
    """Chart.yaml with `home` and `sources`, if the address of the source is known."""
    address = source.rstrip("/")
    if not address:
        return chart
    folder = f"{address}/tree/HEAD/{CHART.parent.name}/{CHART.name}"
    return chart + yaml.safe_dump({"home": f"{address}#readme", "sources": [address, folder]}, sort_keys=False)


def package(folder: Path, source: str) -> Path:
    """Write the archive into a folder. Raises ValueError with what Helm says."""
    with tempfile.TemporaryDirectory(prefix="chart-") as place:
        copy = Path(place, CHART.name)
        shutil.copytree(CHART, copy)
        file = copy / "Chart.yaml"
        file.write_text(described(file.read_text(encoding="utf-8"), source), encoding="utf-8")
        run = run_helm("package", copy, "--destination", folder)
    if run.returncode:
        raise ValueError(run.stderr)
    return Path(run.stdout.strip().rsplit(": ", 1)[1])


if __name__ == "__main__":
    print(package(Path(sys.argv[1]), os.environ.get("SOURCE", "")))
