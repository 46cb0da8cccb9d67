"""Every supported shape renders, on every version of Kubernetes that is looked at, to objects that it takes."""

from __future__ import annotations

import re

import pytest
import yaml

import stream_learner
from tests.chart.rendered import SHAPES, objects, shape_file, text_of
from tests.chart.schemas import SHIPPED, problems
from tools.chart import CHART, GOLDEN, golden_text, run_helm

VERSIONS = ["1.25.0", "1.28.0", "1.31.0", SHIPPED[-1]]


@pytest.mark.parametrize("shape", SHAPES)
def test_helm_finds_nothing_to_say(shape: str) -> None:
    """`helm lint --strict`, with the values of the shape."""
    run = run_helm("lint", "--strict", CHART, "-f", shape_file(shape))
    assert run.returncode == 0, run.stdout
    assert "[WARNING]" not in run.stdout and "[ERROR]" not in run.stdout


def test_without_values_there_is_nothing_but_accounts() -> None:
    """The chart's own values are valid; they name no model, and the notes say what it takes."""
    assert run_helm("lint", "--strict", CHART).returncode == 0
    run = run_helm("template", "empty", CHART)
    assert {document["kind"] for document in yaml.safe_load_all(run.stdout) if document} == {"ServiceAccount"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_object_is_one_that_kubernetes_takes(shape: str, version: str) -> None:
    """Strict: no field that the version does not know."""
    found = objects(shape, kube_version=version)
    assert len(found) > 10
    assert [problem for document in found.values() for problem in problems(document, version)] == []


def test_an_unknown_field_would_be_found() -> None:
    """The check above can fail, in Kubernetes' objects and in those of operators."""
    for kind in ("StatefulSet", "ScaledObject"):
        document = next(d for (k, _), d in objects("autoscaling").items() if k == kind)
        wrong = {**document, "spec": {**document["spec"], "replicaz": 1}}
        assert any("replicaz" in problem for problem in problems(wrong, "1.31.0"))


def test_a_cluster_that_is_too_old_is_refused() -> None:
    """The oldest version looked at is the oldest that the chart takes."""
    run = run_helm("template", "old", CHART, "--kube-version", "1.24.0")
    assert run.returncode != 0
    assert "incompatible with Kubernetes v1.24.0" in run.stderr


@pytest.mark.parametrize("shape", SHAPES)
def test_manifests_are_those_that_were_looked_at(shape: str) -> None:
    """Whoever changes what is rendered sees it in the difference, and writes it anew with `make chart`."""
    assert (GOLDEN / f"{shape}.yaml").read_text(encoding="utf-8") == golden_text(text_of(shape))


def test_no_manifest_is_of_a_shape_that_is_gone() -> None:
    """One golden file for each shape."""
    assert sorted(path.stem for path in GOLDEN.iterdir()) == SHAPES


def test_the_chart_is_for_this_version_of_the_program() -> None:
    """appVersion, which the image's tag comes from."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == stream_learner.__version__


def test_every_kind_of_object_is_in_some_shape() -> None:
    """No template is without a shape that renders it."""
    sources = {
        source for shape in SHAPES for source in re.findall(r"^# Source: \S+?/templates/(\S+)$", text_of(shape), re.M)
    }
    folder = CHART / "templates"
    templates = {str(path.relative_to(folder)) for path in folder.rglob("*.yaml")}
    assert sources == templates
