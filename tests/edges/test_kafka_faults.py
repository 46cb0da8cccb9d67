"""A broker that hangs, dies and comes back; and the test broker itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stream_learner.edges.kafka import Admin, Appender, EndWatch, KafkaSettings, PartitionReader, TopicInfo, TopicPlan
from stream_learner.errors import BrokerUnreachable, TopicMissing
from tests.edges.kafka_help import append, raises_within, read, until
from tests.kafka_broker import broker as harness
from tests.kafka_broker.broker import Broker, NoKafka

BROKER_IN_A_PROCESS = """
import sys, time
from tests.kafka_broker.broker import Broker
broker = Broker().start()
print(broker.nodes[0]._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def fragile() -> Iterator[Broker]:
    """A broker of its own, to be hurt."""
    with Broker() as broker:
        yield broker


def test_a_hanging_broker_stops_the_time_of_the_ends(fragile: Broker) -> None:
    """While the broker hangs the old answers keep their old times; afterwards they move on."""
    settings = KafkaSettings({"bootstrap.servers": fragile.bootstrap})
    admin = Admin(settings)
    admin.create([TopicPlan("ends", 1)])
    place = ("ends", 0)
    with EndWatch(admin.offsets, time.monotonic_ns, [place], period_s=0.05) as watch:
        until(lambda: place in watch.snapshot)
        fragile.nodes[0].signal(signal.SIGSTOP)
        time.sleep(0.3)
        still = watch.snapshot[place]
        time.sleep(0.3)
        assert watch.snapshot[place] == still
        fragile.nodes[0].signal(signal.SIGCONT)
        until(lambda: watch.snapshot[place].asked_at_ms > still.asked_at_ms)


def test_a_killed_broker_is_reported_and_everything_goes_on_when_it_is_back(fragile: Broker) -> None:
    """Readers say that nobody answers; after the restart the same reader and appender go on where they were."""
    quick = {"reconnect.backoff.max.ms": 300}
    settings = KafkaSettings({"bootstrap.servers": fragile.bootstrap, **quick})
    Admin(settings).create([TopicPlan("killed", 1)])
    appender = Appender(settings)
    appender.append("killed", 0, b"before")
    appender.flush(10.0)
    with PartitionReader(settings, "killed", 0, 0) as reader:
        assert read(reader, 1) == ([0], [b"before"])
        fragile.nodes[0].kill()
        raises_within(BrokerUnreachable, lambda: reader.read(1, 0.05))
        appender.append("killed", 0, b"while away")
        fragile.nodes[0].start()
        fragile.wait_ready()
        assert [d.offset for d in appender.flush(30.0)] == [1]
        until(lambda: _read_one(reader) == [b"while away"], 20.0)
    appender.close()


def _read_one(reader: PartitionReader) -> list[bytes | None]:
    try:
        batch = reader.read(1, 0.1)
    except BrokerUnreachable:
        return []
    return [] if batch is None else list(batch.values)


def test_three_nodes_replicate() -> None:
    """A cluster of three has three replicas of a topic and needs two for an acknowledgement."""
    with Broker(3) as cluster:
        settings = KafkaSettings({"bootstrap.servers": cluster.bootstrap})
        admin = Admin(settings)
        admin.create([TopicPlan("replicated", 2)])
        info = until(lambda: described(admin, "replicated"))
        assert (info.replication, info.configs["min.insync.replicas"]) == (3, "2")
        assert append(settings, "replicated", 1, [b"x", b"y"]) == [0, 1]


def described(admin: Admin, topic: str) -> TopicInfo | None:
    """A topic with its settings; None while a node that is asked has not heard of it."""
    with suppress(TopicMissing):
        return admin.describe([topic], with_configs=True).get(topic)
    return None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent died")
def test_no_node_outlives_a_killed_test_run() -> None:
    """After `kill -9` of the process that started it the broker is gone."""
    with subprocess.Popen([sys.executable, "-c", BROKER_IN_A_PROCESS], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            node = int(run.stdout.readline())
            os.kill(node, 0)
        finally:
            run.kill()
    until(lambda: not _lives(node), 5.0)


def _lives(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has waited for does not."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_without_java_and_docker_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line, and an error rather than a skip."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoKafka) as caught:
        Broker().start()
    assert str(caught.value) == harness.WHAT_TO_INSTALL
    assert "\n" not in str(caught.value)
