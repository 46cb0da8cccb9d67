"""What a scorer holds on to, and what it goes on with when something breaks."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_learner import Scorer
from stream_learner.adapters.kafka import TopicPlan
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.control.records import Pin, Publication
from stream_learner.core.control.state import ControlState
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.roles.control import watch as control_watch
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.scorer.replica import ModelReplica
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.waiting import patience, wait_until


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off, so that no cycle is freed meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def ready_replica(published: Published) -> ModelReplica:
    """A model that is followed and complete."""
    settings, model, log = published.world.settings, published.world.model, get_logger("test")
    replica = ModelReplica(settings, model, published.topic, log, stale_after_ms=None, metrics=Metrics(model)).start()
    wait_until(lambda: not replica.why_not_ready)
    return replica


def test_a_model_that_is_left_gives_its_memory_back_at_once(published: Published) -> None:
    """Its weights, its clients and their threads, without waiting for Python's collector: models are large."""
    with without_collector():
        replica = ready_replica(published)
        held = [weakref.ref(replica), weakref.ref(replica.replica), weakref.ref(replica.replica._table)]
        threads = len(list(Path("/proc/self/task").iterdir()))
        replica.stop()
        del replica
        assert [one() for one in held] == [None, None, None]
        wait_until(lambda: len(list(Path("/proc/self/task").iterdir())) < threads - 2)


def test_a_weight_is_one_of_a_version_that_is_served(published: Published) -> None:
    """What has been read and is not served yet, here because of a pin, does not show."""
    world = published.world
    with Scorer(world.settings.bootstrap, world.model, stale_after_ms=None) as scorer:
        scorer.pin(1)
        wait_until(lambda: "no longer in the topic" in scorer.why_not_ready or scorer.ready)
        assert scorer.version in (-1, 1000)
        assert scorer.weight(BIAS_KEY) == (0.0 if scorer.version < 0 else -1.0)


def test_a_bug_in_reading_the_control_topic_ends_nothing(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and the topic is read anew from its beginning; what came meanwhile is obeyed."""
    world = make_world()
    topic = world.config.control_topic
    world.admin.create([TopicPlan(topic, 1, configs={"cleanup.policy": "compact"})])
    monkeypatch.setattr(control_watch, "AGAIN_S", 0.1)
    as_it_is, broken = ControlState.take, threading.Event()

    def breaks_once(self: ControlState, *record: object) -> object:
        if threading.current_thread().name == "control-watch" and not broken.is_set():
            broken.set()
            raise ZeroDivisionError
        return as_it_is(self, *record)  # type: ignore[arg-type]

    monkeypatch.setattr(ControlState, "take", breaks_once)
    watch = ControlWatch(world.settings, topic, get_logger("test")).start()
    try:
        assert watch.wait_settled(patience())
        control = ControlTopic(world.settings, topic)
        control.write(Publication(world.model, True, "test", 1))
        control.write(Pin(world.model, world.model, True, 3, "test", 1))
        wait_until(lambda: watch.paused(world.model) and watch.state.pin(world.model) is not None)
        assert broken.is_set()
    finally:
        watch.stop()
