"""What holds for every manifest, whatever the values: a table of laws, each looked at for every shape.

The first ones are those of the restricted Pod Security Standard, one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from stream_learner.config.kafka import is_secret
from tests.chart.rendered import (
    SHAPES,
    WORKLOADS,
    Identity,
    Object,
    by_identity,
    containers,
    objects,
    own_container,
    pod_specs,
    text_of,
)

Found = dict[Identity, Object]
Law = Callable[[Found], Iterator[Any]]

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
RECOMMENDED = {"name", "instance", "version", "part-of", "managed-by"}
LONG = "a-release-with-the-longest-name-that-helm-takes-fifty"


def nothing_of_the_host(found: Found) -> Iterator[Any]:
    """No namespace, port or path of the node."""
    for identity, spec in pod_specs(found):
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(name):
                yield identity, name
        for container in spec["containers"]:
            yield from ((identity, port) for port in container.get("ports", []) if "hostPort" in port)


def not_privileged(found: Found) -> Iterator[Any]:
    """No container is privileged, and none can become so."""
    for identity, container in containers(found):
        context = container["securityContext"]
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield identity, context


def no_capabilities(found: Found) -> Iterator[Any]:
    """All are dropped, none is added."""
    for identity, container in containers(found):
        if container["securityContext"]["capabilities"] != {"drop": ["ALL"]}:
            yield identity


def not_root(found: Found) -> Iterator[Any]:
    """The kubelet checks it, and the user has a number."""
    for identity, spec in pod_specs(found):
        context = spec["securityContext"]
        users = [context.get("runAsUser"), *(c["securityContext"].get("runAsUser") for c in spec["containers"])]
        if context.get("runAsNonRoot") is not True or 0 in users:
            yield identity, context


def system_calls_filtered(found: Found) -> Iterator[Any]:
    """By the profile of the runtime."""
    for identity, spec in pod_specs(found):
        if spec["securityContext"].get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield identity


def harmless_volumes(found: Found) -> Iterator[Any]:
    """Only kinds that the standard names."""
    for identity, spec in pod_specs(found):
        for volume in spec.get("volumes", []):
            if not set(volume) - {"name"} <= VOLUMES:
                yield identity, volume


def read_only_root(found: Found) -> Iterator[Any]:
    """Beyond the standard: the image's files cannot be written."""
    for identity, container in containers(found):
        if container["securityContext"].get("readOnlyRootFilesystem") is not True:
            yield identity


def no_token_of_the_cluster(found: Found) -> Iterator[Any]:
    """No pod gets a token: none speaks to the API server."""
    for identity, spec in pod_specs(found):
        if spec.get("automountServiceAccountToken") is not False:
            yield identity
    for identity, document in found.items():
        if identity[0] == "ServiceAccount" and document.get("automountServiceAccountToken") is not False:
            yield identity
        if identity[0] in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret"):
            yield identity


def accounts_exist(found: Found) -> Iterator[Any]:
    """Each pod's account is made here, or is one that the values name."""
    for identity, spec in pod_specs(found):
        name = spec["serviceAccountName"]
        if ("ServiceAccount", name) not in found and name != "ad-scoring":
            yield identity, name


def versions_are_named(found: Found) -> Iterator[Any]:
    """A digest, or a tag that does not move."""
    for identity, container in containers(found):
        if not re.search(r"(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+)$", container["image"]):
            yield identity, container["image"]


def resources_are_limited(found: Found) -> Iterator[Any]:
    """CPU and memory are asked for, and limited."""
    for identity, container in containers(found):
        asked, limits = (container["resources"].get(name, {}) for name in ("requests", "limits"))
        if not (set(asked) >= {"cpu", "memory"} and set(limits) >= {"cpu", "memory"}):
            yield identity, container["resources"]


def temporary_files_are_limited(found: Found) -> Iterator[Any]:
    """`/tmp` cannot fill the node."""
    for identity, spec in pod_specs(found):
        for volume in spec["volumes"]:
            if volume["name"] == "tmp" and "sizeLimit" not in volume["emptyDir"]:
                yield identity


def roles_have_probes(found: Found) -> Iterator[Any]:
    """All three, of what goes on until it is told to stop. Startup asks for life: what waits is not restarted."""
    for identity, document in found.items():
        if identity[0] not in ("StatefulSet", "Deployment"):
            continue
        container = own_container(document)
        paths = {
            name: container.get(f"{name}Probe", {}).get("httpGet", {}) for name in ("startup", "readiness", "liveness")
        }
        ports = {port["name"] for port in container["ports"]}
        if {name: get.get("path") for name, get in paths.items()} != {
            "startup": "/healthz",
            "readiness": "/readyz",
            "liveness": "/healthz",
        } or not {get["port"] for get in paths.values()} <= ports:
            yield identity, paths


def names_are_short(found: Found) -> Iterator[Any]:
    """63 characters, of which the controllers take 11 for what a workload makes."""
    for kind, name in found:
        if len(name) > (52 if kind in WORKLOADS else 63) or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            yield kind, name


def labels_are_valid(found: Found) -> Iterator[Any]:
    """Values of at most 63 characters; those that Kubernetes recommends are there."""
    for identity, document in found.items():
        labels = document["metadata"]["labels"]
        if not {f"app.kubernetes.io/{name}" for name in RECOMMENDED} <= set(labels):
            yield identity, labels
        yield from ((identity, v) for v in labels.values() if not re.fullmatch(r"[\w.-]{1,63}", v))


def selectors_select_their_own(found: Found) -> Iterator[Any]:
    """A selector is part of its template's labels, has no version in it, and no two workloads share one."""
    seen: dict[str, Identity] = {}
    for identity, document in found.items():
        if identity[0] not in ("StatefulSet", "Deployment"):
            continue
        selector = document["spec"]["selector"]["matchLabels"]
        if not selector.items() <= document["spec"]["template"]["metadata"]["labels"].items():
            yield identity, selector
        if any("version" in name or "chart" in name for name in selector):
            yield identity, selector
        if seen.setdefault(json.dumps(selector, sort_keys=True), identity) != identity:
            yield identity, seen


def references_lead_somewhere(found: Found) -> Iterator[Any]:
    """ConfigMaps, claims and Services that are named are made here; but claims and Secrets of the user's."""
    for identity, spec in pod_specs(found):
        for volume in spec["volumes"]:
            if "configMap" in volume and ("ConfigMap", volume["configMap"]["name"]) not in found:
                yield identity, volume
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and ("PersistentVolumeClaim", claim) not in found and not claim.endswith("ctr-october"):
                yield identity, volume
    for identity, document in found.items():
        if identity[0] == "StatefulSet" and ("Service", document["spec"]["serviceName"]) not in found:
            yield identity
        target = document.get("spec", {}).get("scaleTargetRef")
        if target and (target["kind"], target["name"]) not in found:
            yield identity, target


def mounts_have_volumes(found: Found) -> Iterator[Any]:
    """Every mount has its volume, and no two mounts have one path."""
    for identity, document in found.items():
        if identity[0] not in WORKLOADS:
            continue
        spec = document["spec"]["template"]["spec"]
        made = {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
        mounts = own_container(document)["volumeMounts"]
        if {mount["name"] for mount in mounts} != made | {volume["name"] for volume in spec["volumes"]}:
            yield identity, mounts
        if len({mount["mountPath"] for mount in mounts}) < len(mounts):
            yield identity, mounts


def hooks_bring_what_they_need(found: Found) -> Iterator[Any]:
    """Objects that a hook's Job refers to are hooks too, and are made before it; a test comes after everything."""
    weight = "helm.sh/hook-weight"
    for identity, document in found.items():
        notes = document["metadata"].get("annotations", {})
        if identity[0] != "Job" or notes.get("helm.sh/hook", "test") == "test":
            continue
        spec = document["spec"]["template"]["spec"]
        needed = [("ConfigMap", v["configMap"]["name"]) for v in spec["volumes"] if "configMap" in v]
        for other in [*needed, ("ServiceAccount", spec["serviceAccountName"])]:
            theirs = found[other]["metadata"].get("annotations", {})
            if theirs.get("helm.sh/hook") != notes["helm.sh/hook"] or int(theirs[weight]) >= int(notes[weight]):
                yield identity, other


def no_secret_is_written(found: Found) -> Iterator[Any]:
    """Options that may hold a secret are references, and variables that look like one too."""
    for identity, document in found.items():
        if identity[0] == "ConfigMap" and "config.yaml" in document["data"]:
            options = yaml.safe_load(document["data"]["config.yaml"])["kafka"]
            yield from ((identity, o) for o, value in options.items() if is_secret(o) and not isinstance(value, dict))
    for identity, container in containers(found):
        for variable in container.get("env", []):
            if "value" in variable and re.search("PASSWORD|SECRET|TOKEN|USER", variable["name"]):
                yield identity, variable


def budgets_let_nodes_be_drained(found: Found) -> Iterator[Any]:
    """None forbids that a node is drained, and none is for a single learner."""
    for identity, document in found.items():
        if identity[0] == "PodDisruptionBudget":
            if document["spec"]["maxUnavailable"] in (0, "0%"):
                yield identity
            is_learner = document["metadata"]["labels"]["app.kubernetes.io/component"] == "learner"
            if is_learner and found["StatefulSet", identity[1]]["spec"]["replicas"] != 2:
                yield identity


def scaled_workloads_have_no_number(found: Found) -> Iterator[Any]:
    """A workload that is scaled has no number of pods, so that an upgrade does not set it back."""
    scaled = {
        (d["spec"]["scaleTargetRef"]["kind"], d["spec"]["scaleTargetRef"]["name"])
        for d in found.values()
        if "scaleTargetRef" in d.get("spec", {})
    }
    for identity, document in found.items():
        if identity[0] in ("StatefulSet", "Deployment") and ("replicas" in document["spec"]) == (identity in scaled):
            yield identity


LAWS: list[Law] = [
    nothing_of_the_host,
    not_privileged,
    no_capabilities,
    not_root,
    system_calls_filtered,
    harmless_volumes,
    read_only_root,
    no_token_of_the_cluster,
    accounts_exist,
    versions_are_named,
    resources_are_limited,
    temporary_files_are_limited,
    roles_have_probes,
    names_are_short,
    labels_are_valid,
    selectors_select_their_own,
    references_lead_somewhere,
    mounts_have_volumes,
    hooks_bring_what_they_need,
    no_secret_is_written,
    budgets_let_nodes_be_drained,
    scaled_workloads_have_no_number,
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_holds(law: Law, shape: str) -> None:
    """For every object of the shape."""
    assert list(law(objects(shape))) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "law", [names_are_short, labels_are_valid, references_lead_somewhere], ids=lambda x: x.__name__
)
def test_a_law_holds_for_a_long_release_name(law: Law, shape: str) -> None:
    """With 53 characters, the most that Helm takes, and no two objects of one name."""
    assert len(LONG) == 53
    assert list(law(objects(shape, "--set", "fullnameOverride=", release=LONG))) == []


BREAKS: dict[str, tuple[str, str]] = {
    "nothing_of_the_host": ("enableServiceLinks: false", "hostNetwork: true"),
    "not_privileged": ("allowPrivilegeEscalation: false", "privileged: true"),
    "no_capabilities": ("drop: [ALL]", "drop: [ALL]\n              add: [NET_ADMIN]"),
    "not_root": ("runAsUser: 10001", "runAsUser: 0"),
    "system_calls_filtered": ("type: RuntimeDefault", "type: Unconfined"),
    "harmless_volumes": ("emptyDir:\n            sizeLimit: 64Mi", "hostPath:\n            path: /"),
    "read_only_root": ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    "no_token_of_the_cluster": ("automountServiceAccountToken: false", "automountServiceAccountToken: true"),
    "accounts_exist": ("serviceAccountName: stream", "serviceAccountName: other"),
    "versions_are_named": ("image: stream-learner:0.1.0", "image: stream-learner:latest"),
    "resources_are_limited": ("limits:", "claims:"),
    "temporary_files_are_limited": ("sizeLimit: 64Mi", "medium: Memory"),
    "roles_have_probes": ("path: /healthz", "path: /readyz"),
    "names_are_short": ("name: stream-learner-ctr-learner\n", f"name: {'stream-learner-ctr-learner' * 3}\n"),
    "labels_are_valid": ("app.kubernetes.io/part-of: stream-learner", "app.kubernetes.io/part-of: stream learner"),
    "selectors_select_their_own": ("component: learner\n        stream", "component: joiner\n        stream"),
    "references_lead_somewhere": ("configMap:\n            name: stream", "configMap:\n            name: other"),
    "mounts_have_volumes": ("mountPath: /tmp", "mountPath: /etc/stream-learner"),
    "hooks_bring_what_they_need": ('hook-weight: "-10"', 'hook-weight: "10"'),
    "no_secret_is_written": ("security.protocol: PLAINTEXT", "sasl.password: geheim"),
    "budgets_let_nodes_be_drained": ("maxUnavailable: 1\n  selector", "maxUnavailable: 0\n  selector"),
    "scaled_workloads_have_no_number": ("  replicas: 1\n", "  minReadySeconds: 1\n"),
}
"""A change of the manifests of the minimal shape that breaks the law."""


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_that_is_broken_is_noticed(law: Law) -> None:
    """Each of them can fail."""
    old, new = BREAKS[law.__name__]
    text = text_of("minimal", "--set", r"kafka.security\.protocol=PLAINTEXT")
    assert list(law(by_identity(text))) == []
    assert old in text
    assert list(law(by_identity(text.replace(old, new)))) != []
