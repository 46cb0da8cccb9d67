"""The chart's manifests as objects.

Those of a shape without further options are read from the golden files, which `test_manifests.py` holds against what
Helm renders; all others are rendered. Objects are shared by the tests, which must not change them. It must never look
at what an object means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.chart import CHART, GOLDEN, KUBE_VERSION, RELEASE, render, run_helm, shapes

Object = dict[str, Any]
Identity = tuple[str, str]

SHAPES = [path.name.removesuffix("-values.yaml") for path in shapes()]
WORKLOADS = ("StatefulSet", "Deployment", "Job")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shape_file(shape: str) -> Path:
    """The values of a shape."""
    return CHART / "ci" / f"{shape}-values.yaml"


@cache
def text_of(shape: str, *options: str, release: str = RELEASE, kube_version: str = KUBE_VERSION) -> str:
    """The manifests of a shape, rendered."""
    return render(shape_file(shape), *options, release=release, kube_version=kube_version)


@cache
def objects(
    shape: str, *options: str, release: str = RELEASE, kube_version: str = KUBE_VERSION
) -> dict[Identity, Object]:
    """The objects of a shape by kind and name; no two have the same."""
    if (options, release, kube_version) == ((), RELEASE, KUBE_VERSION):
        return by_identity((GOLDEN / f"{shape}.yaml").read_text(encoding="utf-8"))
    return by_identity(text_of(shape, *options, release=release, kube_version=kube_version))


def by_identity(text: str) -> dict[Identity, Object]:
    """The objects in a text of manifests by kind and name."""
    found = [document for document in yaml.load_all(text, Loader=_Loader) if document]
    identities = [(document["kind"], document["metadata"]["name"]) for document in found]
    assert len(set(identities)) == len(identities), "two objects have one name"
    return dict(zip(identities, found, strict=True))


def from_values(tmp_path: Path, values: dict[str, Any], chart: Path = CHART) -> str:
    """The manifests that values give. Raises ValueError with what Helm says."""
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    run = run_helm("template", RELEASE, chart, "--kube-version", KUBE_VERSION, "-f", file)
    if run.returncode:
        raise ValueError(run.stderr)
    return run.stdout


def pod_specs(found: dict[Identity, Object]) -> Iterator[tuple[Identity, Object]]:
    """The pod's specification of every workload."""
    for identity, document in found.items():
        if identity[0] in WORKLOADS:
            yield identity, document["spec"]["template"]["spec"]


def containers(found: dict[Identity, Object]) -> Iterator[tuple[Identity, Object]]:
    """Every container of every workload."""
    for identity, spec in pod_specs(found):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield identity, container


def own_container(document: Object) -> Object:
    """The container of a workload's role, without those that values add."""
    (found,) = (c for c in document["spec"]["template"]["spec"]["containers"] if c["name"] == role_of(document))
    return dict(found)


def role_of(document: Object) -> str:
    """The role that an object is of."""
    return str(document["metadata"]["labels"].get("app.kubernetes.io/component", ""))
