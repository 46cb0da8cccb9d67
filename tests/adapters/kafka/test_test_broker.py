"""The test broker itself: it does not outlive who started it, and says what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.kafka.kafka_help import until
from tests.kafka_broker import broker as harness
from tests.kafka_broker.broker import Broker, NoKafka

BROKER_IN_A_PROCESS = """
import sys, time
from tests.kafka_broker.broker import Broker
broker = Broker().start()
print(broker.nodes[0]._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.thorough
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
    until(lambda: not _lives(node))


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
