"""Alerts, the dashboard and autoscaling speak of metrics that there are, and alerts lead to a row of the runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from stream_learner.adapters.telemetry.metric_names import CATALOGUE, Metric
from stream_learner.config import Config
from tests.chart.rendered import objects
from tests.test_readme import PROJECT, anchor_of, anchors
from tools.chart import CHART, NAMESPACE

KNOWN: dict[str, Metric] = {metric.full_name: metric for metric in CATALOGUE}
DASHBOARD: dict[str, Any] = json.loads((CHART / "dashboards" / "stream-learner.json").read_text(encoding="utf-8"))
ADDED = {"namespace", "model", "pod"}
"""Labels that every metric has besides its own: Prometheus's, and the model's."""


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts of the production shape by name."""
    document = objects("production")["PrometheusRule", "stream-learner"]
    rules = [rule for group in document["spec"]["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    return {rule["alert"]: rule for rule in rules}


def queries() -> Iterator[tuple[str, str]]:
    """Every query with what it is for."""
    yield from ((name, rule["expr"]) for name, rule in alerts().items())
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", []))
    scaled = objects("autoscaling")["ScaledObject", "stream-learner-ctr-joiner"]
    yield "ScaledObject", scaled["spec"]["triggers"][0]["metadata"]["query"]


def metric_of(name: str) -> Metric:
    """The metric that a series is of. Raises KeyError for a series of none."""
    of = name.removesuffix("_bucket")
    if of != name:
        assert KNOWN[of].kind == "histogram"
    return KNOWN[of]


@pytest.mark.parametrize(("what", "query"), list(queries()), ids=lambda text: text[:40])
def test_a_query_is_of_metrics_and_labels_that_there_are(what: str, query: str) -> None:
    """And counters are asked for their increase, everything else for its value."""
    series = re.findall(r"(stream_learner_\w+)\{([^}]*)\}", query)
    assert series, what
    assert len(series) == len(re.findall(r"stream_learner_\w+", query)), "one without a selector"
    for name, selector in series:
        metric = metric_of(name)
        labels = set(re.findall(r"(\w+)=~?\"", selector))
        assert {"namespace", "model"} <= labels <= ADDED | set(metric.labels)
        by = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
        assert by <= ADDED | set(metric.labels) | ({"le"} if metric.kind == "histogram" else set())
        ranged = re.search(rf"(rate|increase)\({name}\{{[^}}]*\}}\[\d+[mh]\]\)", query) is not None
        assert ranged == (metric.kind != "gauge"), name


def test_parentheses_and_braces_are_balanced() -> None:
    """In every query."""
    for what, query in queries():
        for left, right in ("()", "{}", "[]"):
            assert query.count(left) == query.count(right), what


@pytest.mark.parametrize("name", alerts())
def test_an_alert_leads_to_the_runbook(name: str) -> None:
    """To a heading that is there, with four parts below it; it says how bad it is, and waits before it fires."""
    rule = alerts()[name]
    led = re.fullmatch(
        r"https://wiki\.example\.com/stream-learner/([\w-]+)\.html#([\w-]+)", rule["annotations"]["runbook_url"]
    )
    assert led is not None
    page = PROJECT / "docs" / f"{led[1]}.md"
    assert led[2] in anchors(page)
    (section,) = (part for part in page.read_text("utf-8").split("\n## ") if anchor_of(part.split("\n")[0]) == led[2])
    assert re.findall(r"^\*\*What (.+?)\.\*\*", section, re.M) == ["it means", "to look at", "to do", "not to do"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")
    assert re.fullmatch(r"\d+[mh]", rule["for"])


def test_alerts_fire_at_what_the_configuration_says() -> None:
    """Half of `join.max_bad_share`; 60 % of the learner's memory; the values of the chart."""
    found = {name: float(rule["expr"].rsplit(" ", 1)[1]) for name, rule in alerts().items() if ">" in rule["expr"]}
    assert found["StreamLearnerBadShare"] == pytest.approx(0.01 / 2)
    assert found["StreamLearnerModelGrows"] == int((8 << 30) * 0.6)
    assert found["StreamLearnerLagBeyondWindow"] == 60
    assert found["StreamLearnerFieldGrows"] == 100_000 and found["StreamLearnerRowsNearBound"] == 0.8
    assert found["StreamLearnerFieldNearBound"] == 0.8
    minimal = objects("minimal", "--set", "monitoring.rules.enabled=true")["PrometheusRule", "stream-learner"]
    (rule,) = (r for g in minimal["spec"]["groups"] for r in g["rules"] if r["alert"] == "StreamLearnerBadShare")
    assert (
        float(rule["expr"].rsplit(" ", 1)[1])
        == Config.model_fields["join"].get_default(call_default_factory=True).max_bad_share / 2
    )


def test_a_copy_is_late_by_its_interval_and_what_the_chart_allows() -> None:
    """And only while checkpoints are written; without copies there is no alert about them."""

    def rule(*more: str) -> str | None:
        given = [word for setting in ("monitoring.rules.enabled=true", *more) for word in ("--set", setting)]
        document = objects("minimal", *given)["PrometheusRule", "stream-learner"]
        found = {one["alert"]: one["expr"] for group in document["spec"]["groups"] for one in group["rules"]}
        return found.get("StreamLearnerCopiesStop")

    assert "> 3660 and sum(increase(" in str(rule())
    assert "> 7300 and" in str(rule("models.ctr.config.learner.copy_interval=2h", "monitoring.rules.copySeconds=100"))
    assert rule("models.ctr.config.learner.copies=false") is None


def test_alerts_of_scorers_are_about_the_names_they_serve() -> None:
    """Metrics of a scorer that follows an alias carry the alias as their model."""
    document = objects("models", "--set", "monitoring.rules.enabled=true")["PrometheusRule", "stream-learner"]
    (group,) = (group for group in document["spec"]["groups"] if "serving" in group["name"])
    selectors = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    assert 'model=~"ctr"' in selectors["StreamLearnerStale"]
    assert 'model="serving"' in selectors["StreamLearnerRequestsFail"]
    assert {rule["alert"] for rule in group["rules"]} == {
        "StreamLearnerStale",
        "StreamLearnerVersionStale",
        "StreamLearnerUnusableRecords",
        "StreamLearnerRequestsDoNotFit",
        "StreamLearnerServesCopy",
        "StreamLearnerCopyFails",
        "StreamLearnerScorerDiskFills",
        "StreamLearnerScorerNotReady",
        "StreamLearnerRequestsFail",
        "StreamLearnerConnectionsCut",
        "StreamLearnerRefusesSoon",
        "StreamLearnerSlow",
        "StreamLearnerScorerEnds",
    }


def test_joiners_are_scaled_by_the_lag_beyond_the_window() -> None:
    """As one figure, less what the stream explains, as its alert; never beyond the partitions; of this model in this
    namespace."""
    found = objects("autoscaling", "--set", "monitoring.rules.enabled=true")
    spec = found["ScaledObject", "stream-learner-ctr-joiner"]["spec"]
    (trigger,) = spec["triggers"]
    query = trigger["metadata"]["query"]
    of_this = f'{{namespace="{NAMESPACE}",model="ctr"}}'
    assert query.startswith(f"max(stream_learner_joiner_lag_beyond_window_seconds{of_this} - ")
    rules = [rule for group in found["PrometheusRule", "stream-learner"]["spec"]["groups"] for rule in group["rules"]]
    (alert,) = (rule["expr"] for rule in rules if rule["alert"] == "StreamLearnerLagBeyondWindow")
    assert alert == query.replace("max(", "max by (partition) (", 1) + " > 60"
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 16)
    assert trigger["metricType"] == "Value"


def test_prometheus_is_told_the_token_and_probes_need_none() -> None:
    """The monitor names the key that is sent; pods mount the one that is accepted; probes are plain."""
    found = objects("production")
    (endpoint,) = found["PodMonitor", "stream-learner"]["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": "ctr-metrics", "key": "sent"}}
    for kind in ("StatefulSet", "Deployment"):
        for pod in [d["spec"]["template"]["spec"] for (k, _), d in found.items() if k == kind]:
            (container,) = pod["containers"]
            assert {"name": "telemetry-token", "secret": {"secretName": "ctr-metrics", "defaultMode": 0o440}} in pod[
                "volumes"
            ]
            assert "httpHeaders" not in container["livenessProbe"]["httpGet"]
    plain = objects("minimal", "--set", "monitoring.monitor=PodMonitor")["PodMonitor", "stream-learner"]
    assert "authorization" not in plain["spec"]["podMetricsEndpoints"][0]


def test_the_dashboard_is_whole() -> None:
    """It is in the ConfigMap as it is in the file; panels do not overlap, and every one says what it shows."""
    document = objects("production")["ConfigMap", "stream-learner-dashboard"]
    assert json.loads(document["data"]["stream-learner.json"]) == DASHBOARD
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith(".")


@pytest.mark.parametrize("shape", ["production", "autoscaling"])
def test_monitors_find_every_role(shape: str) -> None:
    """By labels that pods and Services have, on a port of that name; each pod once."""
    found = objects(shape)
    (monitor,) = (d for (kind, _), d in found.items() if kind in ("PodMonitor", "ServiceMonitor"))
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    if monitor["kind"] == "PodMonitor":
        templates = [d["spec"]["template"] for (kind, _), d in found.items() if kind in ("StatefulSet", "Deployment")]
        for template in templates:
            assert wanted <= template["metadata"]["labels"].items()
            assert "telemetry" in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    else:
        services = [
            d for (kind, _), d in found.items() if kind == "Service" and wanted <= d["metadata"]["labels"].items()
        ]
        scraped = [s["spec"]["selector"] for s in services if "telemetry" in {p["name"] for p in s["spec"]["ports"]}]
        assert sorted(s["app.kubernetes.io/component"] for s in scraped) == ["joiner", "learner", "scorer"]
