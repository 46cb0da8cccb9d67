"""`docs/start.md` is executed on a real Kafka, with topics such as it describes, and prints what it says."""

from __future__ import annotations

import json
import random
import re
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cli_e2e.commands import answer_of, started
from tests.cli_e2e.test_evaluate_page import commands
from tests.cli_e2e.world import free_port
from tests.conftest import MakeTopic
from tests.deploy.shell import Shell
from tests.operations.doctor.site import iso
from tests.waiting import patience, wait_until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)
IMPRESSIONS, SPACING_MS, LONGEST_MS = 6_000, 50, 11_200
RATES = (0.02, 0.05, 0.1, 0.3)
"""Of four kinds of ads; on one site each is clicked twice as often."""


def produce(bootstrap: str, impressions: str, clicks: str) -> None:
    """Send five minutes of events, in the order of their times, the last ones of moments ago."""
    draw = random.Random(1)
    begin_ms = int(time.time() * 1000) - IMPRESSIONS * SPACING_MS - LONGEST_MS
    events: list[tuple[int, str, str, dict[str, object]]] = []
    for number in range(IMPRESSIONS):
        at_ms, key, ad = begin_ms + number * SPACING_MS, f"{draw.getrandbits(64):016x}", draw.randrange(8)
        site = draw.choice(("news", "sport", "weather"))
        device = {"os": draw.choice(("ios", "android", "web")), "w": draw.choice((360, 390, 768, 1440))}
        shown = {"imp": {"id": key, "slot": draw.randrange(3)}, "ts": iso(at_ms), "site": site, "ad": {"id": f"a{ad}"}}
        events.append((at_ms, impressions, key, {**shown, "device": device, "price": round(draw.uniform(0.2, 3), 2)}))
        if draw.random() < RATES[ad % 4] * (1 + (site == "sport")):
            at_ms += int(min(200 + draw.expovariate(1 / 3_000), LONGEST_MS))
            events.append(
                (at_ms, clicks, key, {"event": f"e{number}", "ref": {"impression_id": key}, "at": at_ms / 1000})
            )
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for at_ms, topic, key, event in sorted(events, key=lambda event: event[0]):
        producer.produce(topic, json.dumps(event), key, timestamp=at_ms)
        producer.poll(0)
    assert producer.flush(patience()) == 0


def form(line: str) -> str:
    """A line without its figures and the width of its columns."""
    return " ".join(re.sub(r"\d[\d,.:-]*", "#", line).split())


@pytest.mark.thorough
def test_its_commands_print_what_it_says(kafka: str, topics: MakeTopic, tmp_path: Path) -> None:
    """In the order of the page, with other names and figures; the ad that is clicked more often has the higher p."""
    impressions, clicks, model = topics("impressions", 4), topics("clicks", 4), f"m{uuid.uuid4().hex[:10]}"
    produce(kafka, impressions, clicks)
    here = {"ads.impressions": impressions, "ads.clicks": clicks, "ads-ctr": model, "localhost:9092": kafka}
    shell = Shell(tmp_path)
    control = f"{model}.control"
    predictions = []

    def run(command: str, printed: list[str]) -> str:
        for name, own in here.items():
            command = command.replace(name, own)
        out = shell.run(command)
        page_out = out.replace(control, "stream-learner.control")
        for name, own in here.items():
            page_out = page_out.replace(own, name)
        assert [form(line) for line in page_out.splitlines()] == [form(line) for line in printed], command
        return out

    looked, ensured, scored, evaluated = (commands(block) for block in BLOCKS)
    for command, printed in looked:
        run(command, printed)
    file = tmp_path / "model.yaml"
    file.write_text(f"{file.read_text()}topics:\n  replication: 1\n  control: {control}\n", encoding="utf-8")
    for command, printed in ensured:
        run(command, printed)
    settings = (f"telemetry.http_port={free_port()}", f"learner.state_dir={tmp_path / 'state'}")
    with started("run", "-c", file, *(word for one in settings for word in ("--set", one))) as learning:
        learning.wait_for("learner_started")
        for command, printed in scored:
            predictions.append(json.loads(run(command, printed))["p"])
        assert predictions[0] > 2 * predictions[1]
        wait_until(lambda: f"{IMPRESSIONS:,}" in answer_of("evaluate", "--log", "-c", file).out)
        for command, printed in evaluated:
            run(command, printed)
        assert learning.stop().code == 0
