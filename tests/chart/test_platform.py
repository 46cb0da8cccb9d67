"""What a platform adds to the chart arrives where it should, and nowhere else."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendered import (
    SHAPES,
    WORKLOADS,
    Identity,
    Object,
    by_identity,
    from_values,
    objects,
    own_container,
    pod_specs,
    role_of,
    shape_file,
)
from tests.chart.test_refusals import MINIMAL, changed
from tests.waiting import patience
from tools.chart import CHART, KUBE_VERSION, RELEASE, run_helm

SCORER = ("Deployment", "stream-learner-ctr-scorer")
LEARNER = ("StatefulSet", "stream-learner-ctr-learner")
VALUES: dict[str, Any] = yaml.safe_load(shape_file("platform").read_text(encoding="utf-8"))


def made(tmp_path: Path, path: str, value: Any) -> dict[Identity, Object]:
    """The objects of the minimal values with one change."""
    return by_identity(from_values(tmp_path, changed(path, value)))


def own(found: dict[Identity, Object]) -> Iterator[tuple[Identity, Object]]:
    """The objects that the chart makes, without those that values add."""
    yield from ((i, d) for i, d in found.items() if "helm.sh/chart" in d["metadata"]["labels"] and "ca" not in i[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_made_where_the_chart_is_switched_off(shape: str) -> None:
    """`enabled: false` at the root, which a chart around this one gives as a condition."""
    run = run_helm("template", RELEASE, CHART, "--set", "enabled=false", "-f", shape_file(shape))
    assert run.returncode == 0, run.stderr
    assert [one for one in yaml.safe_load_all(run.stdout) if one] == []


def test_a_chart_around_this_one_can_switch_it_off(tmp_path: Path) -> None:
    """With the condition in its Chart.yaml; its `global` reaches this one, whatever else is in it."""
    outer = tmp_path / "outer"
    (outer / "charts").mkdir(parents=True)
    (outer / "charts" / "stream-learner").symlink_to(CHART)
    dependency = {"name": "stream-learner", "version": "*", "condition": "stream-learner.enabled"}
    chart = {"apiVersion": "v2", "name": "outer", "version": "1.0.0", "dependencies": [dependency]}
    (outer / "Chart.yaml").write_text(yaml.safe_dump(chart))
    given = {"global": {"imageRegistry": "mirror.example.com", "storageClass": "fast"}, "stream-learner": MINIMAL}
    (outer / "values.yaml").write_text(yaml.safe_dump(given))
    whole = run_helm("template", "outer", outer, "--kube-version", KUBE_VERSION)
    assert whole.returncode == 0, whole.stderr
    assert set(re.findall(r"image: (\S+)", whole.stdout)) == {"mirror.example.com/stream-learner:0.1.0"}
    off = run_helm("template", "outer", outer, "--set", "stream-learner.enabled=false")
    assert (off.returncode, [one for one in yaml.safe_load_all(off.stdout) if one]) == (0, [])


@pytest.mark.parametrize(
    ("registry", "above", "repository", "image"),
    [
        ("", "", "stream-learner", "stream-learner"),
        ("", "", "r.example.com/a/b", "r.example.com/a/b"),
        ("mirror:5000", "", "stream-learner", "mirror:5000/stream-learner"),
        ("mirror.example.com", "", "ads/stream-learner", "mirror.example.com/ads/stream-learner"),
        ("mirror.example.com/", "", "r.example.com/a/b", "mirror.example.com/a/b"),
        ("", "above", "localhost/a", "above/a"),
        ("mirror", "above.example.com/proxy", "r:5000/a/b", "above.example.com/proxy/a/b"),
    ],
)
def test_a_registry_takes_the_place_of_the_images(
    registry: str, above: str, repository: str, image: str, tmp_path: Path
) -> None:
    """That of all charts before this one's, and both before the one in the repository."""
    values = {**MINIMAL, "global": {"imageRegistry": above}, "image": {"registry": registry, "repository": repository}}
    found = by_identity(from_values(tmp_path, values))
    assert {own_container(d)["image"] for (k, _), d in found.items() if k in WORKLOADS} == {f"{image}:0.1.0"}


def test_pull_secrets_of_all_charts_and_of_this_one_are_used_once(tmp_path: Path) -> None:
    """As names or as objects."""
    given = {"global": {"imagePullSecrets": ["a", {"name": "b"}]}, "imagePullSecrets": [{"name": "a"}, {"name": "c"}]}
    found = by_identity(from_values(tmp_path, {**MINIMAL, **given}))
    for _, spec in pod_specs(found):
        assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]


def test_common_labels_and_annotations_are_everywhere_but_in_selectors() -> None:
    """On every object and, labels, on every pod; a claim's template cannot change, and has none."""
    for identity, document in own(objects("platform")):
        labels = document["metadata"]["labels"]
        assert (labels["team"], labels["cost-center"]) == ("ads-serving", "17"), identity
        assert document["metadata"]["annotations"]["example.com/owner"] == "ads-serving", identity
        spec = document.get("spec", {})
        if identity[0] in WORKLOADS:
            assert spec["template"]["metadata"]["labels"]["team"] == "ads-serving"
        for selector in (spec.get("selector"), spec.get("podSelector"), *spec.get("volumeClaimTemplates", [])):
            assert "team" not in str(selector), identity


def test_annotations_that_hooks_and_values_give_are_there_together() -> None:
    """None takes another's place."""
    found = objects("platform")
    notes = {i: d["metadata"]["annotations"] for i, d in found.items() if "annotations" in d["metadata"]}
    hook = notes["Job", "stream-learner-ctr-topics"]
    assert hook["helm.sh/hook"] == "pre-install,pre-upgrade" and hook["helm.sh/hook-weight"] == "0"
    assert hook["batch.example.com/notify"] == "ads"
    assert notes["Ingress", "stream-learner-ctr-scorer"]["cert-manager.io/cluster-issuer"] == "internal"
    assert notes["PersistentVolumeClaim", "stream-learner-backfill-ctr-again"]["helm.sh/resource-policy"] == "keep"
    assert (
        notes[LEARNER]["argocd.argoproj.io/sync-wave"] == "1" and notes[SCORER]["argocd.argoproj.io/sync-wave"] == "2"
    )


def test_pods_have_what_values_add() -> None:
    """Containers before and beside the role's own, which stays the first; variables, volumes, names, a scheduler."""
    found = objects("platform")
    for identity, spec in pod_specs(found):
        assert [c["name"] for c in spec["initContainers"]] == ["mesh"], identity
        beside = ["log-shipper"] if identity == SCORER else []
        assert [c["name"] for c in spec["containers"]] == [role_of(found[identity]), *beside]
        assert spec["containers"][0]["envFrom"] == VALUES["pod"]["extraEnvFrom"]
        for name in ("runtimeClassName", "schedulerName", "dnsPolicy", "dnsConfig", "hostAliases"):
            assert spec[name] == VALUES["pod"][name]
        assert spec["topologySpreadConstraints"] == VALUES["pod"]["topologySpreadConstraints"]
    assert own_container(found[SCORER])["lifecycle"] == VALUES["scorer"]["pod"]["lifecycle"]
    assert "lifecycle" not in own_container(found[LEARNER])


def test_a_hook_at_the_start_keeps_the_sleep_at_the_end(tmp_path: Path) -> None:
    """Only a `preStop` of its own takes the place of `preStopSeconds`."""
    start = {"postStart": {"exec": {"command": ["true"]}}}
    found = made(tmp_path, "scorer", {"preStopSeconds": 7, "pod": {"lifecycle": start}})
    sleep = {"preStop": {"exec": {"command": ["sleep", "7"]}}}
    assert own_container(found[SCORER])["lifecycle"] == {**start, **sleep}


def test_workloads_and_jobs_have_the_lives_that_values_give(tmp_path: Path) -> None:
    """And none where nothing is said: zero is a value, null is none."""
    found = objects("platform")
    joiner = found["StatefulSet", "stream-learner-ctr-joiner"]["spec"]
    assert (joiner["revisionHistoryLimit"], joiner["minReadySeconds"]) == (3, 10)
    jobs = {role_of(d): d["spec"] for (kind, _), d in found.items() if kind == "Job"}
    assert (jobs["backfill"]["activeDeadlineSeconds"], jobs["backfill"]["ttlSecondsAfterFinished"]) == (86400, 604800)
    assert (jobs["topics"]["activeDeadlineSeconds"], jobs["topics"]["ttlSecondsAfterFinished"]) == (600, 3600)
    zero = made(tmp_path, "topics", {"ttlSecondsAfterFinished": 0})["Job", "stream-learner-ctr-topics"]["spec"]
    assert zero["ttlSecondsAfterFinished"] == 0 and "activeDeadlineSeconds" not in zero
    assert "revisionHistoryLimit" not in objects("minimal")[SCORER]["spec"]
    none = made(tmp_path, "scorer", {"revisionHistoryLimit": 0})[SCORER]["spec"]
    assert none["revisionHistoryLimit"] == 0


def test_large_numbers_stay_whole(tmp_path: Path) -> None:
    """Not 1e+07, which Kubernetes takes for no whole number."""
    most = 10_000_000
    given = {"activeDeadlineSeconds": most, "ttlSecondsAfterFinished": most}
    values = {
        **MINIMAL,
        "topics": given,
        "scorer": {"minReadySeconds": most, "revisionHistoryLimit": most},
        "monitoring": {"monitor": "PodMonitor", "sampleLimit": most},
    }
    text = from_values(tmp_path, values)
    assert "e+0" not in text
    assert text.count(f": {most}\n") == 5


@pytest.mark.parametrize(
    "values",
    [
        {"global": None},
        {"global": {"labels": None, "imagePullSecrets": None, "imageRegistry": None}},
        {"pod": dict.fromkeys(["labels", "lifecycle", "extraContainers", "extraEnvFrom", "extraInitContainers"])},
        {"commonLabels": None, "commonAnnotations": None, "extraObjects": None, "imagePullSecrets": None},
        {"scorer": {"annotations": None, "service": {"labels": None}, "ingress": {"hosts": None}}},
    ],
)
def test_null_is_nothing(values: dict[str, Any], tmp_path: Path) -> None:
    """As Helm has it: null takes a default away."""
    assert by_identity(from_values(tmp_path, {**MINIMAL, **values})) == by_identity(from_values(tmp_path, MINIMAL))


def test_the_learners_volume_is_as_values_say() -> None:
    """Its modes, annotations and what becomes of it; the last one only where Kubernetes knows it."""
    spec = objects("platform")[LEARNER]["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert claim["metadata"]["annotations"] == {"backup.example.com/schedule": "daily"}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Retain"}
    assert objects("minimal")[LEARNER]["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    old = objects("platform", kube_version="1.25.0")[LEARNER]["spec"]
    assert "persistentVolumeClaimRetentionPolicy" not in old


def test_only_a_changed_version_of_a_secret_replaces_pods(tmp_path: Path) -> None:
    """The chart cannot see a Secret. Pods that take it as files need no version."""

    def noted(*secrets: dict[str, Any]) -> set[str | None]:
        found = by_identity(from_values(tmp_path, {**MINIMAL, "secrets": list(secrets)}))
        templates = [d["spec"]["template"] for (k, _), d in found.items() if k in ("StatefulSet", "Deployment")]
        return {template["metadata"]["annotations"].get("checksum/secrets") for template in templates}

    files = {"secretName": "a", "mountPath": "/run/secrets/a"}
    variables = {"secretName": "b", "env": {"A": "a"}}
    assert noted(files, variables) == {None}
    first, second, again = (noted(files, {**variables, "version": version}) for version in ("1", "2", 1))
    assert len(first) == 1 and first == again != second


def test_ways_in_lead_to_the_scorers_service() -> None:
    """Ingress and HTTPRoute, by a port that it has; without paths or rules everything is let through."""
    found = objects("platform")
    service = found["Service", SCORER[1]]["spec"]
    (port,) = (one for one in service["ports"] if one["name"] == "http")
    ingress = found["Ingress", SCORER[1]]["spec"]
    backends = [path["backend"]["service"] for rule in ingress["rules"] for path in rule["http"]["paths"]]
    assert backends == 3 * [{"name": SCORER[1], "port": {"name": port["name"]}}]
    assert [path["path"] for path in ingress["rules"][0]["http"]["paths"]] == ["/"]
    (rule,) = found["HTTPRoute", SCORER[1]]["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": SCORER[1], "port": port["port"]}]
    for name in ("loadBalancerClass", "trafficDistribution", "ipFamilies", "externalTrafficPolicy"):
        assert service[name] == VALUES["scorer"]["service"][name]
    assert port["appProtocol"] == "http"
    assert "trafficDistribution" not in objects("platform", kube_version="1.28.0")["Service", SCORER[1]]["spec"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("scorer.ingress", {"enabled": True}, "models.ctr: scorer.ingress.hosts is empty"),
        ("scorer.httpRoute", {"enabled": True}, "models.ctr: scorer.httpRoute.parentRefs is empty"),
        ("scorer.httpRoute.rules", [{"backendRefs": []}], "scorer.httpRoute.rules.0"),
        ("scorer.ingress.hosts", [{"host": "a", "paths": [{"path": "b"}]}], "Does not match pattern"),
        ("scorer.autoscaling", {"enabled": True, "targetCPUPercent": None}, "has nothing to go by"),
        ("monitoring.rules.disabled", {"StreamLearnerStal": True}, "StreamLearnerStal is not allowed"),
        ("monitoring.rules.additionalRuleLabels", {"severity": "info"}, "additionalRuleLabels"),
        ("commonLabels", {"app.kubernetes.io/name": "a"}, "commonLabels"),
        ("global.labels", {"helm.sh/chart": "a"}, "global.labels"),
        ("pod.labels", {"stream-learner/model": "a"}, "pod.labels"),
        ("learner.persistence.accessModes", [], "accessModes"),
        ("learner.persistence.retentionPolicy", {"whenDeleted": "Keep"}, "whenDeleted must be one of"),
        ("scorer.service.internalTrafficPolicy", "local", "internalTrafficPolicy must be one of"),
        ("scorer.minReadySeconds", -1, "minReadySeconds"),
        ("backfill.ttlSecondsAfterFinished", "1h", "ttlSecondsAfterFinished"),
        ("monitoring.scrapeTimeout", "soon", "scrapeTimeout"),
        ("test.replicas", 2, "Additional property replicas is not allowed"),
    ],
)
def test_what_cannot_work_is_refused(path: str, value: Any, message: str, tmp_path: Path) -> None:
    """With the value's name."""
    with pytest.raises(ValueError, match=re.escape(message)):
        made(tmp_path, path, value)


def test_every_rule_can_be_switched_off_by_itself(tmp_path: Path) -> None:
    """And rules of one's own come along."""
    every = {rule["alert"] for rule in rules(made(tmp_path, "monitoring.rules", {"enabled": True}))}
    # Any two rules are apart in one of the halves, so a rule that another's name switches off is found.
    numbered = list(enumerate(sorted(every)))
    for bit, value in itertools.product(range(len(every).bit_length()), (0, 1)):
        off = {name for number, name in numbered if number >> bit & 1 == value}
        left = rules(made(tmp_path, "monitoring.rules", {"enabled": True, "disabled": dict.fromkeys(off, True)}))
        assert {rule["alert"] for rule in left} == every - off
    found = {rule["alert"]: rule for rule in rules(objects("platform"))}
    assert set(found) == every - {"StreamLearnerModelGrows"} | {"AdsNothingServed"}
    stale = found["StreamLearnerStale"]
    assert stale["labels"].items() >= {"team": "ads", "severity": "critical", "model": "ctr"}.items()
    assert stale["annotations"]["channel"] == "#ads" and "runbook_url" in stale["annotations"]


def rules(found: dict[Identity, Object]) -> list[Object]:
    """The alerts of the rendered PrometheusRule."""
    (document,) = (d for (kind, _), d in found.items() if kind == "PrometheusRule")
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def test_monitors_read_as_values_say() -> None:
    """Time-out and labels of the endpoint, the limit of the monitor."""
    spec = objects("platform")["PodMonitor", "stream-learner"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    for name in ("interval", "scrapeTimeout", "relabelings", "metricRelabelings"):
        assert endpoint[name] == VALUES["monitoring"][name]
    assert spec["sampleLimit"] == 20000


def test_scorers_are_scaled_by_what_values_name() -> None:
    """Without CPU, where it is null."""
    spec = objects("platform")["HorizontalPodAutoscaler", SCORER[1]]["spec"]
    assert [metric["type"] for metric in spec["metrics"]] == ["Resource", "Pods"]
    assert spec["metrics"][0]["resource"]["name"] == "memory"
    assert spec["behavior"] == VALUES["scorer"]["autoscaling"]["behavior"]
    (cpu,) = objects("autoscaling")["HorizontalPodAutoscaler", SCORER[1]]["spec"]["metrics"]
    assert cpu["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}


def test_objects_of_ones_own_are_rendered() -> None:
    """Texts and mappings, with the templates in them."""
    found = objects("platform")
    assert found["ConfigMap", "stream-learner-ca"]["data"] == {"ca.crt": RELEASE}
    assert found["ConfigMap", "plain"]["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE


def test_a_policy_lets_the_test_in() -> None:
    """Whoever else may ask for predictions; and no Service selects the test's pod."""
    found = objects("platform")
    job = found["Job", "stream-learner-ctr-test"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    asked = found["NetworkPolicy", "stream-learner-scorer"]["spec"]["ingress"][1]["from"]
    assert any(one.get("podSelector", {}).get("matchLabels", {"": 0}).items() <= labels.items() for one in asked)
    for (kind, name), document in found.items():
        if kind == "Service":
            assert not document["spec"]["selector"].items() <= labels.items(), name


@pytest.mark.parametrize(("statuses", "code"), [([200], 0), ([503, 503, 200], 0), ([503], 1)])
def test_helm_test_waits_for_a_version(statuses: list[int], code: int) -> None:
    """Its script, run as it is: it ends well with the first 200, and badly when time is up, with what was said."""
    container = own_container(objects("platform")["Job", "stream-learner-ctr-test"])
    assert container["args"] == ["http://stream-learner-ctr-scorer.ads.svc:80/v2/health/ready", "60"]
    python, option, script = container["command"]
    assert (python, option) == ("python3", "-c")
    seconds = "2" if code else str(patience())
    with answering(statuses) as url:
        run = subprocess.run([sys.executable, "-c", script, url, seconds], capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    assert ("no version yet" in run.stderr) == (code == 1)


@contextmanager
def answering(statuses: list[int]) -> Iterator[str]:
    """The address of a server that answers with one status after the other, and with the last one from then on."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.end_headers()
            self.wfile.write(b"no version yet")

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v2/health/ready"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
