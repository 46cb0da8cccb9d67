"""What cannot work is refused before anything is made, with the value's name and what is wrong with it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from stream_learner.config.kafka import is_secret
from tests.chart.rendered import from_values
from tools.chart_schema import OWNED

INPUT = {"impressions": {"topic": "impressions"}, "clicks": {"topic": "clicks"}}
MINIMAL: dict[str, Any] = {
    "kafka": {"bootstrap.servers": "kafka:9092"},
    "models": {"ctr": {"partitions": 4, "config": {"input": INPUT}}},
}
BACKFILL = {"model": "ctr", "as": "ctr-v2", "from": "2026-11-01T00:00Z", "until": "2026-12-01T00:00Z"}

REFUSED: list[tuple[str, Any, str]] = [
    ("replica", 3, "Additional property replica is not allowed"),
    ("joiner.replica", 3, "joiner: Additional property replica is not allowed"),
    ("joiner.replicas", "3", "joiner.replicas: Invalid type. Expected: integer"),
    ("joiner.replicas", -1, "joiner.replicas: Must be greater than or equal to 0"),
    ("joiner.replicas", 5, "models.ctr: 5 joiners for 4 partitions"),
    (
        "models.ctr",
        {"partitions": 1, "joiner": {"replicas": 2}, "config": {"input": INPUT}},
        "models.ctr: 2 joiners for 1 partition:",
    ),
    ("models.ctr.joiner", {"replicas": 5}, "models.ctr: 5 joiners for 4 partitions"),
    ("models.ctr", {"config": {"input": INPUT}}, "models.ctr.partitions is missing"),
    ("models.ctr.partitions", 0, "models.ctr.partitions: Must be greater than or equal to 1"),
    ("models.Ctr", {}, "Does not match pattern"),
    ("models.ctr.learner", {"replicas": 2}, "models.ctr.learner: Additional property replicas is not allowed"),
    (
        "models.ctr.learner",
        {"standby": True, "persistence": {"existingClaim": "ctr-v2"}},
        "models.ctr: learner.standby needs a volume for each learner",
    ),
    ("models.ctr.config.join", {"windov": "1h"}, "Additional property windov is not allowed"),
    ("models.ctr.config.join", {"window": 30}, "models.ctr.config.join.window"),
    ("models.ctr.config.input.impressions", {"topic": "a b"}, "Does not match pattern"),
    ("config", {"window": "1h"}, "config: Additional property window is not allowed"),
    ("models.ctr.config.input", {"impressions": {"topic": "a"}}, "models.ctr.config.input.clicks.topic is miss"),
    ("kafka", {}, "kafka.bootstrap.servers is missing"),
    ("kafka.group", {"env": "A", "file": "b"}, "kafka.group: Must validate at least one schema"),
    ("image.tag", "latest", "image.tag"),
    ("image.digest", "sha256:12", "image.digest: Does not match pattern"),
    ("image.pullPolicy", "Sometimes", "image.pullPolicy must be one of"),
    ("joiner.resources", {"limits": {"memory": "200Mi"}}, "a memory limit of 200Mi is too little"),
    ("joiner.resources", {"limits": {"memory": "600Mi"}}, "requests.memory is above resources.limits.memory"),
    ("joiner.resources", {"limits": {"memory": "lots"}}, "joiner.resources.limits.memory: Does not match pattern"),
    ("joiner.autoscaling", {"enabled": True}, "joiner.autoscaling.prometheusAddress is missing"),
    ("scorer.autoscaling", {"enabled": True, "minReplicas": 11}, "minReplicas is above maxReplicas"),
    ("scorer.terminationGracePeriodSeconds", 5, "Additional property terminationGracePeriodSeconds is not allowed"),
    ("scorer.service", {"type": "Internet"}, "scorer.service.type must be one of"),
    ("secrets", [{"secretName": "a"}], "secrets.0: Must validate at least one schema"),
    ("secrets", [{"secretName": "a", "mountPath": "/etc"}], "secrets.0.mountPath: Does not match pattern"),
    ("podSecurity.user", 0, "podSecurity.user"),
    ("topologySpread.zone", "Never", "topologySpread.zone must be one of"),
    ("monitoring.monitor", "Prometheus", "monitoring.monitor must be one of"),
    ("monitoring.rules.runbookUrl", "docs/runbook.md", "monitoring.rules.runbookUrl: Does not match pattern"),
    ("networkPolicy.kafka", {"ports": []}, "networkPolicy.kafka.ports: Array must have at least 1 items"),
    ("backfills", [{**BACKFILL, "as": "ctr"}], "ctr is the name of the live model"),
    ("backfills", [{**BACKFILL, "model": "other"}], "models has no other"),
    ("backfills", [BACKFILL, BACKFILL], "ctr-v2 is there twice"),
    ("backfills", [{"model": "ctr", "as": "ctr-v2", "from": "earliest"}], "backfills.0: until is required"),
    ("backfills", [{"model": "ctr", "as": "b", "until": BACKFILL["until"]}], "backfills.0: Must validate at least one"),
    ("backfills", [{**BACKFILL, "from": "2026-11-01"}], "backfills.0.from: Does not match pattern"),
    ("backfills", [{**BACKFILL, "joiners": 16}], "backfill ctr-v2: 16 joiners take a memory limit of 4352Mi or more"),
    ("backfills", [{**BACKFILL, "fromLog": "ctr", "joiners": 2}], "joiners and maxRate say nothing"),
]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The minimal values with one change."""
    values = copy.deepcopy(MINIMAL)
    place = values
    *parents, name = path.split(".")
    for part in parents:
        place = place.setdefault(part, {})
    place[name] = value
    return values


def test_the_values_that_the_refusals_begin_with_are_taken(tmp_path: Path) -> None:
    """So that it is the change that is refused."""
    assert "kind: StatefulSet" in from_values(tmp_path, MINIMAL)
    assert "kind: Job" in from_values(tmp_path, {**MINIMAL, "backfills": [BACKFILL]})


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_what_cannot_work_is_refused(path: str, value: Any, message: str, tmp_path: Path) -> None:
    """By the schema, or by a template where the schema cannot say it."""
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        from_values(tmp_path, changed(path, value))


def test_what_the_chart_sets_itself_is_refused_in_the_configuration(tmp_path: Path) -> None:
    """Each such setting would have no effect, or break objects that depend on it. Helm names all in one answer."""
    values = copy.deepcopy(MINIMAL)
    owned = [path for path in OWNED if len(path) > 1]
    for section, *names in owned:
        place = values["models"]["ctr"]["config"].setdefault(section, {})
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = "x"
    with pytest.raises(ValueError, match="is not allowed") as refused:
        from_values(tmp_path, values)
    for section, name, *_ in owned:
        assert f"models.ctr.config.{section}: Additional property {name} is not allowed" in str(refused.value)


SECRETS = (
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "ssl.certificate.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
)


def test_a_secret_must_be_a_reference(tmp_path: Path) -> None:
    """Its value would stand in a ConfigMap. A reference to a file or a variable is taken."""
    assert all(map(is_secret, SECRETS))
    with pytest.raises(ValueError, match="kafka") as refused:
        from_values(tmp_path, {**MINIMAL, "kafka": {**MINIMAL["kafka"], **dict.fromkeys(SECRETS, "geheim")}})
    for option in SECRETS:
        assert f"kafka.{option}: Invalid type. Expected: object, given: string" in str(refused.value)
    for reference in ({"file": "/run/secrets/a"}, {"env": "A"}):
        from_values(tmp_path, {**MINIMAL, "kafka": {**MINIMAL["kafka"], **dict.fromkeys(SECRETS, reference)}})


def test_what_is_no_secret_may_be_written(tmp_path: Path) -> None:
    """Names and addresses."""
    options = {
        "sasl.username": "ctr",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token",
        "sasl.oauthbearer.client.id": "ctr",
        "ssl.ca.location": "/run/secrets/kafka-ca/ca.crt",
        "fetch.wait.max.ms": 100,
        "enable.ssl.certificate.verification": True,
    }
    text = from_values(tmp_path, {**MINIMAL, "kafka": {**MINIMAL["kafka"], **options}})
    for name, value in options.items():
        assert f"{name}: {str(value).lower() if value is True else value}\n" in text
