"""What the chart renders works: its commands are run as they are, against a real Kafka, and its probes are asked."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from stream_learner.config import load_config
from stream_learner.core.parts import compile_kernels
from stream_learner.traffic import TrafficModel, TrafficShape
from tests.chart.containers import Container
from tests.chart.rendered import Identity, Object, by_identity, role_of
from tests.kafka_broker.broker import delete_topics
from tests.waiting import patience
from tools.chart import CHART, KUBE_VERSION, run_helm

IMPRESSIONS, SPAN_MS, WINDOW_MS = 2_000, 2_000, 1_000
LEAST_MEMORY_BYTES = 512 << 20
"""The least limit that the chart takes for a role: half of it is left for buffers and models."""


class Site:
    """A release of one model, with a backfill, on a broker."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.model = f"h{uuid.uuid4().hex[:10]}"
        self.bootstrap, self.folder = bootstrap, folder
        self.inputs = [f"{self.model}-impressions", f"{self.model}-clicks"]
        self.backfilled = f"{self.model}-again"
        self.began_ms = int(time.time() * 1000) - 30_000
        self.produced = False
        self.objects = self._render()

    def _render(self) -> dict[Identity, Object]:
        values = {
            "kafka": {"bootstrap.servers": "kafka:9092"},
            "models": {"live": {"model": self.model, "partitions": 2, "config": self._config()}},
            "backfills": [
                {"model": "live", "as": self.backfilled, "from": _iso(self.began_ms), "until": _iso(self._until_ms)}
            ],
            "joiner": {"replicas": 1},
            "topics": {"createInputs": True},
        }
        file = self.folder / "values.yaml"
        file.write_text(json.dumps(values), encoding="utf-8")
        run = run_helm("template", "site", CHART, "--kube-version", KUBE_VERSION, "-f", file)
        assert run.returncode == 0, run.stderr
        return by_identity(run.stdout)

    @property
    def _until_ms(self) -> int:
        return self.began_ms + SPAN_MS

    def _config(self) -> dict[str, Any]:
        return {
            "input": {
                "impressions": {"topic": self.inputs[0], "time": "time"},
                "clicks": {"topic": self.inputs[1], "time": "time"},
            },
            "join": {"window": f"{WINDOW_MS}ms", "skew": "0", "tick": "200ms", "grace": "300ms"},
            "features": {"categorical": ["slot", "hour"]},
            "snapshots": {"interval": "200ms", "shards": 2, "first": {"examples": 0}},
            "topics": {"replication": 1, "control": f"{self.model}.control"},
            "serve": {"drain": "500ms"},
        }

    def container(self, role: str) -> Container:
        """The container of a role."""
        (document,) = (d for d in self.objects.values() if "template" in d.get("spec", {}) and role_of(d) == role)
        return Container(document, self.objects, self.folder, self.bootstrap)

    def produce(self) -> None:
        """Impressions and clicks of a span whose windows have closed; once, however often it is called."""
        if self.produced:
            return
        self.produced = True
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "max.in.flight.requests.per.connection": 1}
        )
        traffic = TrafficModel(
            1, TrafficShape(window_ms=WINDOW_MS, delay_median_ms=100.0, late_share=0.0, bad_share=0.0)
        )
        for chunk in traffic.events(IMPRESSIONS * 1000 / SPAN_MS, self.began_ms, SPAN_MS):
            for topic, events in zip(self.inputs, (chunk.impressions, chunk.clicks), strict=True):
                for at_ms, key, value in events:
                    producer.produce(topic, value, key, timestamp=at_ms)
        assert producer.flush(patience()) == 0


def _iso(time_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms // 1000)) + f".{time_ms % 1000:03d}Z"


@pytest.fixture(scope="module")
def site(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The release, with its topics made by the Job that the chart renders for it."""
    compile_kernels()
    made = Site(kafka, tmp_path_factory.mktemp("site"))
    with made.container("topics") as job:
        assert job.ended() == 0, job.log
    yield made
    names = [
        f"{model}.{t}" for model in (made.model, made.backfilled) for t in ("examples", "snapshots", "dead-letters")
    ]
    delete_topics(kafka, [*made.inputs, *names, f"{made.model}.control"])


def test_roles_become_ready_serve_and_end_in_time(site: Site) -> None:
    """Every probe means what it says: a scorer has started but is not ready while there is no version, and is ready
    once there is; its answer comes through the port of its Service. SIGTERM ends each role, with 0, within its grace
    period."""
    with ExitStack() as stack:
        scorer = stack.enter_context(site.container("scorer"))
        joiner = stack.enter_context(site.container("joiner"))
        learner = stack.enter_context(site.container("learner"))
        for role in (joiner, learner):
            for probe in ("startup", "readiness", "liveness"):
                role.wait_for(probe)
        for probe in ("startup", "liveness"):
            scorer.wait_for(probe)
        assert scorer.probe("readiness") == 503
        site.produce()
        for probe in ("startup", "readiness", "liveness"):
            scorer.wait_for(probe)
        assert 0 < predicted(scorer.port("http"), site.model) < 1
        for role in (scorer, joiner, learner):
            assert role.memory_bytes() < LEAST_MEMORY_BYTES / 2
            assert role.told_to_stop() == 0, role.log


@pytest.mark.thorough
def test_a_backfill_ends_by_itself(site: Site) -> None:
    """With the arguments that the chart gives it, in the limits of memory that it sets; it prints its result."""
    site.produce()
    with site.container("backfill") as job:
        assert job.ended() == 0, job.log
        result = json.loads(job.log.splitlines()[-1])
    assert result["model"]["name"] == site.backfilled
    assert result["impressions"]["examples"] == IMPRESSIONS


def predicted(port: int, model: str) -> float:
    """A prediction by the V1 protocol."""
    body = json.dumps({"instances": [{"site": "news", "slot": 1}]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models/{model}:predict", body, method="POST")
    with urllib.request.urlopen(request, timeout=patience(10.0)) as answer:
        return float(json.loads(answer.read())["predictions"][0])


def test_the_rendered_moments_are_those_meant(site: Site) -> None:
    """The span of the backfill is that of the traffic."""
    (document,) = (d for d in site.objects.values() if d["kind"] == "Job" and role_of(d) == "backfill")
    arguments = document["spec"]["template"]["spec"]["containers"][0]["args"]
    start = arguments[arguments.index("--from") + 1]
    text = site.objects["ConfigMap", "site-stream-learner-live"]["data"]["config.yaml"]
    file = site.folder / "moment.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_config(file, overrides=[f"join.start={start}"]).join.start == site.began_ms
