"""An upgrade never asks Kubernetes for what it refuses to change, and never gives an object another name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendered import SHAPES, Identity, Object, by_identity, objects, shape_file
from tools.chart import CHART, KUBE_VERSION, NAMESPACE, RELEASE, run_helm

CHANGED: dict[str, Any] = {
    "image": {"tag": "9.9.9", "digest": ""},
    "config": {"join": {"grace": "7s"}, "snapshots": {"interval": "3s"}},
    "joiner": {"resources": {"limits": {"memory": "3Gi"}}, "startupSeconds": 60, "pod": {"labels": {"team": "ads"}}},
    "learner": {"resources": {"limits": {"memory": "12Gi"}}, "terminationGracePeriodSeconds": 600},
    "scorer": {"service": {"port": 8000, "annotations": {"name": "value"}}, "preStopSeconds": 1},
    "pod": {"annotations": {"a": "b"}, "extraEnv": [{"name": "A", "value": "b"}]},
    "networkPolicy": {"enabled": True},
    "monitoring": {"rules": {"enabled": True}},
    "secrets": [{"secretName": "another", "mountPath": "/run/secrets/another"}],
}
MUTABLE = {
    "replicas",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "ordinals",
}
"""The fields of a StatefulSet's `spec` that may be changed."""


@pytest.fixture(scope="module")
def next_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chart with another version."""
    folder = tmp_path_factory.mktemp("next") / "stream-learner"
    shutil.copytree(CHART, folder)
    chart = folder / "Chart.yaml"
    chart.write_text(re.sub(r"ersion: [\d.]+$", "ersion: 9.9.9", chart.read_text(), flags=re.M))
    return folder


def upgraded(shape: str, chart: Path, folder: Path) -> dict[Identity, Object]:
    """The shape, rendered by another chart with other values."""
    changes = folder / "changes.yaml"
    changes.write_text(yaml.safe_dump(CHANGED))
    run = run_helm(*_arguments(shape, chart), "-f", changes)
    assert run.returncode == 0, run.stderr
    return by_identity(run.stdout)


def fixed(document: Object) -> Any:
    """The fields of an existing object that must not be changed."""
    spec = document.get("spec", {})
    if document["kind"] == "StatefulSet":
        return {name: value for name, value in spec.items() if name not in MUTABLE}
    if document["kind"] == "Deployment":
        return spec["selector"]
    if document["kind"] == "Service":
        return spec.get("clusterIP")
    if document["kind"] == "PersistentVolumeClaim":
        return spec
    is_hook = "helm.sh/hook" in document["metadata"].get("annotations", {})
    return spec["template"] if document["kind"] == "Job" and not is_hook else None


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_immutable_changes(shape: str, next_chart: Path, tmp_path: Path) -> None:
    """Another version and other values: every object keeps its name, and what cannot be changed of it."""
    before, after = objects(shape), upgraded(shape, next_chart, tmp_path)
    lasting = {identity for identity in before if identity[0] != "Job"}
    assert lasting <= set(after)
    for identity in set(before) & set(after):
        assert fixed(after[identity]) == fixed(before[identity]), identity


@pytest.mark.parametrize("shape", SHAPES)
def test_an_upgrade_reaches_every_pod(shape: str, next_chart: Path, tmp_path: Path) -> None:
    """Another image and another configuration make new pods: the checksum of the configuration changes with it."""
    before, after = objects(shape), upgraded(shape, next_chart, tmp_path)
    for identity in set(before) & set(after):
        if identity[0] in ("StatefulSet", "Deployment"):
            notes = [d[identity]["spec"]["template"]["metadata"]["annotations"] for d in (before, after)]
            assert notes[0]["checksum/config"] != notes[1]["checksum/config"]


@pytest.mark.parametrize("shape", ["backfill", "gitops"])
def test_a_job_that_changes_is_another_job(shape: str, next_chart: Path, tmp_path: Path) -> None:
    """Its name changes with it, so that Kubernetes is not asked to change it; its claim stays."""
    before, after = objects(shape), upgraded(shape, next_chart, tmp_path)
    jobs = [
        {name for kind, name in found if kind == "Job" and re.search(r"-[0-9a-f]{8}$", name)}
        for found in (before, after)
    ]
    assert jobs[0] and len(jobs[0]) == len(jobs[1]) and not jobs[0] & jobs[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_again_changes_nothing(shape: str) -> None:
    """Rendering has no chance in it: an upgrade without a change restarts nothing."""
    assert by_identity(run_helm(*_arguments(shape)).stdout) == objects(shape)


def _arguments(shape: str, chart: Path = CHART) -> list[str | Path]:
    options = ["--namespace", NAMESPACE, "--kube-version", KUBE_VERSION]
    return ["template", RELEASE, chart, *options, "-f", shape_file(shape)]
