"""Topics in Avro and Protobuf behind a schema registry, on a real Kafka: the same examples as from JSON."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters import registry as adapter
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.doctor.run import doctor
from stream_learner.operations.doctor.watch import LIMITS, TopicsLook
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.checks import assert_balance, assert_log_equals
from tests.e2e.conftest import MakeSite
from tests.e2e.site import running, wait_until
from tests.e2e.test_first_version import made as made_with_gate
from tests.e2e.test_first_version import version_of
from tests.oracles.schema_events import Shape, avro_bytes, avro_schema, proto_bytes, proto_file
from tests.scenarios import Message, Scenario, scenario
from tests.schema_registry import SchemaRegistry, running_registry

IMPRESSION: Shape = {"id": "text", "site": "text", "ad": "text", "slot": "long", "mobile": "flag"}
CLICK: Shape = {"id": "text"}
AT: Shape = {"id": "text", "time": "millis"}
TEXTS: Shape = dict.fromkeys(("site", "ad", "segment", "device", "country"), "text")
SHOWN: Shape = {**AT, **TEXTS, "slot": "long", "hour": "long"}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    monkeypatch.setattr(adapter, "LONGEST_WAIT_S", 0.2)
    with running_registry() as found:
        found.ids[1] = {"schema": json.dumps(avro_schema(IMPRESSION))}
        descriptor = base64.b64encode(proto_file(CLICK).SerializeToString()).decode()
        found.ids[2] = {"schema": descriptor, "schemaType": "PROTOBUF"}
        found.ids[3] = {"schema": json.dumps(avro_schema(SHOWN))}
        descriptor = base64.b64encode(proto_file(AT).SerializeToString()).decode()
        found.ids[4] = {"schema": descriptor, "schemaType": "PROTOBUF"}
        yield found


def event_of(message: Message) -> dict[str, Any]:
    """The event of a message; an id that is a number is the same one as its text."""
    event: dict[str, Any] = json.loads(message.value or b"")
    return {**event, "id": str(event["id"])}


def in_schemas(made: Scenario, impressions_id: int) -> Scenario:
    """The scenario with impressions as framed Avro, clicks as framed Protobuf; the second half of the impressions was
    written by another schema."""

    def shown(at: int, of: int, message: Message) -> Message:
        event = event_of(message)
        schema_id = impressions_id if at >= of // 2 else 1
        return message._replace(value=b"\0" + struct.pack(">I", schema_id) + avro_bytes(IMPRESSION, event))

    def clicked(message: Message) -> Message:
        record = proto_bytes(CLICK, event_of(message))
        return message._replace(value=b"\0" + struct.pack(">I", 2) + b"\0" + record)

    return replace(
        made,
        impressions=[[shown(at, len(part), m) for at, m in enumerate(part)] for part in made.impressions],
        clicks=[[clicked(message) for message in part] for part in made.clicks],
    )


def formats(model: str, registry: SchemaRegistry) -> dict[str, Any]:
    """The sections for these topics."""
    sides = {
        "impressions": {"topic": f"{model}-impressions", "id": "id", "format": "avro"},
        "clicks": {"topic": f"{model}-clicks", "id": "id", "format": "protobuf"},
    }
    return {"input": sides, "registry": {"url": registry.url}}


def test_an_unknown_schema_holds_its_partition_until_the_registry_has_it(
    make_site: MakeSite, registry: SchemaRegistry
) -> None:
    """No dead letter and no other example comes of a registry that is away; the joiner says what it waits for, and goes
    on by itself. The audit makes the same examples again.
    """
    made = scenario("plain", 1)
    site = make_site(in_schemas(made, impressions_id=7))
    config = site.changed(**formats(site.model, registry))
    site.produce()
    registry.lost, joiner = {7}, site.joiner(config)
    with capture_logs() as logs, running(joiner):
        wait_until(lambda: "waits for a schema" in joiner.why_not_ready, "it says what it waits for")
        assert f"{site.impressions} waits for a schema: schema id 7" in joiner.why_not_ready
        assert site.last_tick() < site.end_tick
        registry.ids[7], registry.lost = registry.ids[1], set()
        wait_until(site.closed, "every partition closed")
    assert [line["event"] for line in logs if line["event"].startswith("registry_")] == [
        "registry_silent",
        "registry_answers",
    ]
    assert_log_equals(site, made.expected())
    site.scenario = made
    assert_balance(site)
    assert list(site.records(site.config.dead_letters_topic, 0)) == []
    found = audit(config, AuditRequest(replay=True))
    assert found["sound"], found


def traffic_in_schemas() -> Scenario:
    """The demo's traffic, impressions as framed Avro, clicks as framed Protobuf; what is no event stays as it is."""

    def write(message: Message, frame: bytes, to_bytes: Callable[[Shape, Any], bytes], shape: Shape) -> Message:
        try:
            return message._replace(value=frame + to_bytes(shape, json.loads(message.value or b"")))
        except (ValueError, TypeError):
            return message

    made = scenario("traffic")
    return replace(
        made,
        impressions=[[write(m, b"\0\0\0\0\3", avro_bytes, SHOWN) for m in part] for part in made.impressions],
        clicks=[[write(m, b"\0\0\0\0\4\0", proto_bytes, AT) for m in part] for part in made.clicks],
    )


def test_a_look_at_such_topics_does_not_hold_the_first_version(make_site: MakeSite, registry: SchemaRegistry) -> None:
    """`run` and `learn` read the topics as the joiner does; a configuration without formats is what is told."""
    site = made_with_gate(make_site, traffic_in_schemas())
    sections = formats(site.model, registry)
    for side in sections["input"].values():
        side["time"] = "time"
    config = site.changed(**sections, join={"window": "20s", "max_bad_share": 0.1})
    joiner, learner = site.joiner(config), LearnerRole(config, Metrics(site.model), look=TopicsLook)
    with capture_logs() as logs, running(joiner, learner):
        wait_until(lambda: version_of(site) is not None, lambda: f"a version: {learner.why_not_ready}")
    assert [line for line in logs if line["event"] == "topics_not_looked_at"] == []
    found = doctor(config, LIMITS, lambda text: None)
    assert found.in_the_way == []
    assert {one["path"] for one in found.fields} == {*SHOWN}
    untold = doctor(site.changed(join={"max_bad_share": 0.1}), LIMITS, lambda text: None)
    assert {"impressions_framed", "clicks_framed"} <= {*untold.in_the_way}
