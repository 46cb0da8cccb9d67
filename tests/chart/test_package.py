"""The archive of the chart is whole, and names where the source is only if that is known."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendered import shape_file
from tools.chart import CHART, KUBE_VERSION, RELEASE, run_helm
from tools.chart_package import described, package

SOURCE = "https://code.example.com/ads/stream-learner"


@pytest.mark.parametrize("source", ["", SOURCE, f"{SOURCE}/"])
def test_the_archive_is_installed_like_the_folder(source: str, tmp_path: Path) -> None:
    """It renders the same, and has who keeps it, an icon, and the addresses that were given."""
    archive = package(tmp_path, source)
    with tarfile.open(archive) as files:
        assert not [name for name in files.getnames() if "/ci/" in name or name.endswith(".in")]
        chart = yaml.safe_load(files.extractfile("stream-learner/Chart.yaml").read())  # type: ignore[union-attr]
    assert chart["maintainers"] and chart["icon"].startswith("data:image/svg+xml;base64,")
    wanted: dict[str, Any] = {
        "home": f"{SOURCE}#readme",
        "sources": [SOURCE, f"{SOURCE}/tree/HEAD/helm/stream-learner"],
    }
    assert {name: chart[name] for name in ("home", "sources") if name in chart} == (wanted if source else {})
    options = (RELEASE, "--kube-version", KUBE_VERSION, "-f", shape_file("minimal"))
    assert run_helm("template", options[0], archive, *options[1:]).stdout == (
        run_helm("template", options[0], CHART, *options[1:]).stdout
    )


def test_helm_lint_takes_what_is_added() -> None:
    """Chart.yaml is still one document, and nothing is there twice."""
    text = described((CHART / "Chart.yaml").read_text(encoding="utf-8"), SOURCE)
    (chart,) = yaml.safe_load_all(text)
    assert len(chart) == len([line for line in text.splitlines() if line[:1].isalpha()])
