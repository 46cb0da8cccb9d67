"""What `configs/compose` starts fits together: commands, configuration, mounted files, what Prometheus asks."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stream_learner.config import load_config
from tests.cli_e2e.commands import answer_of
from tests.cli_e2e.world import free_port
from tests.kafka_broker.broker import HEAP_MB, find_nodes
from tests.kafka_broker.jars import kafka_version
from tests.test_readme import parse
from tests.waiting import wait_until
from tools.get_promtool import promtool

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "compose"
ROLES = ("run", "serve")


def read(name: str) -> dict[str, Any]:
    """The text of a file of the folder."""
    return dict(yaml.safe_load((FOLDER / name).read_text(encoding="utf-8")))


SERVICES = read("compose.yaml")["services"]


def test_services_run_commands_that_exist_with_a_configuration_that_works() -> None:
    """Kafka has the version of the tests, the model its address."""
    for name in ("topics", *ROLES):
        parse(SERVICES[name]["command"])
        assert "./model.yaml:/etc/stream-learner/config.yaml:ro" in SERVICES[name]["volumes"]
    config = load_config(FOLDER / "model.yaml", environ={})
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka_version()}"
    inside = f"INSIDE://{config.kafka.root['bootstrap.servers']}"
    assert inside in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert SERVICES["serve"]["ports"] == [f"{config.serve.port}:{config.serve.port}"]
    checked = answer_of("config", "check", "-c", FOLDER / "model.yaml")
    assert (checked.code, checked.out) == (0, "ok\n")


def test_files_that_are_mounted_are_there() -> None:
    """Each one, and every named volume is declared."""
    mounts = [one.split(":") for service in SERVICES.values() for one in service.get("volumes", [])]
    named = {source for source, *_ in mounts if not source.startswith(".")}
    assert named == set(read("compose.yaml")["volumes"])
    assert all((FOLDER / source).resolve().exists() for source, *_ in mounts if source.startswith("."))


def test_prometheus_asks_every_role_where_it_answers_and_grafana_asks_prometheus() -> None:
    """With the labels by which the dashboard chooses; it is the chart's."""
    port = load_config(FOLDER / "model.yaml", environ={}).telemetry.http_port
    (job,) = read("prometheus.yaml")["scrape_configs"]
    assert [one["targets"] for one in job["static_configs"]] == [[f"{role}:{port}"] for role in ROLES]
    assert all({"namespace", "pod"} <= one["labels"].keys() for one in job["static_configs"])
    checked = subprocess.run(
        [promtool(), "check", "config", FOLDER / "prometheus.yaml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (source,) = read("grafana-source.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090" and source["isDefault"]
    (provider,) = read("grafana-dashboards.yaml")["providers"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    mounted = dict(one.split(":")[1::-1] for one in SERVICES["grafana"]["volumes"])[provider["options"]["path"]]
    assert json.loads((FOLDER / mounted / Path(home).name).read_text(encoding="utf-8"))["title"] == "stream-learner"


@pytest.mark.thorough
def test_kafka_starts_with_these_variables_and_takes_the_models_topics(tmp_path: Path) -> None:
    """As the image makes properties of them; other ports, and its data elsewhere."""
    ports = {number: str(free_port()) for number in ("29092", "9092", "9093")}
    lines = []
    for name, value in SERVICES["kafka"]["environment"].items():
        value = re.sub("|".join(ports), lambda match: ports[match[0]], value).replace("//kafka:", "//localhost:")
        value = str(tmp_path / "data") if name == "KAFKA_LOG_DIRS" else value
        lines.append(f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}")
    (tmp_path / "server.properties").write_text("\n".join(lines), encoding="utf-8")
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    node = find_nodes()(tmp_path, cluster, HEAP_MB)
    node.start()
    try:
        for port in (ports["9092"], ports["29092"]):
            client = AdminClient({"bootstrap.servers": f"localhost:{port}", "log_level": 0})
            wait_until(partial(_answers, client), node.log)
        where = f"kafka.bootstrap.servers=localhost:{ports['9092']}"
        command = ("topics", "ensure", "--partitions", "4", "-c", FOLDER / "model.yaml", "--set", where)
        assert [answer_of(*command).code for _ in range(2)] == [0, 0]
    finally:
        node.kill()


def _answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
