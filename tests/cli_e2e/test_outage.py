"""A broker that goes away and comes back, under roles that run: they wait, say so, and go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_learner import Scorer
from tests.cli_e2e.commands import answer_of, started
from tests.cli_e2e.world import World
from tests.kafka_broker.broker import Broker
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker of this test's own, since it will be killed."""
    with Broker() as broker:
        yield broker


@pytest.mark.nightly
def test_roles_outlive_a_broker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """While the broker is away the scorer answers with what it has; afterwards `run` joins, learns and publishes again
    by itself, everything is counted once, and the log is a few lines longer.
    """
    world = World(broker.bootstrap, tmp_path_factory.mktemp("outage"))
    assert answer_of("topics", "ensure", "-c", world.file, "--partitions", "2").code == 0
    sent = world.produce(500)
    with started("run", "-c", world.file) as roles, Scorer(broker.bootstrap, world.model) as scorer:

        def alive() -> bool:
            return roles.process.poll() is None

        def examples() -> int:
            assert alive(), roles.err
            return int(scorer.description["metrics"]["examples"]) if scorer.ready else 0

        def warnings() -> int:
            assert alive(), roles.err
            return sum(event["level"] == "warning" for event in roles.events)

        wait_until(lambda: examples() == sent.impressions)
        warned = warnings()
        broker.nodes[0].kill()
        wait_until(lambda: warnings() > warned, "the roles say that the broker is away")
        before = scorer.version
        assert scorer.predict({"slot": 1}).version == before
        broker.nodes[0].start()
        broker.wait_ready()
        sent = world.produce(500)
        wait_until(lambda: examples() == sent.impressions and scorer.version > before and scorer.ready)
        ended = roles.stop()
    assert ended.code == 0
    assert {event["level"] for event in ended.events} <= {"info", "warning", "error"}
    assert len(ended.events) <= 150
    # That the control topic cannot be read is said once, and not taken back before it has been quiet for a while.
    said = [event["event"] for event in ended.events if event["event"].startswith("control_topic_")]
    assert said in ([], ["control_topic_not_read"], ["control_topic_not_read", "control_topic_read"])
