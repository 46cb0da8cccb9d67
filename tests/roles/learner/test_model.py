"""One model of a learner on a real state directory: each checkpoint that counts is logged and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.config.optimizers import CHOICE
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from stream_learner.roles.learner.model import LearnedModel
from tests.cli_e2e.scraped import values_of
from tests.core.model.example_records import Example, as_record
from tests.e2e.configuration import tree_of
from tests.scenarios import scenario

TICK = 7
NOBODY = "127.0.0.1:9"
LOG = TopicInfo("m.examples", bytes(range(16)), 1, 1)
POSITIONS = {0: LOG_BEGINNING}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A model that is not published: it asks no broker."""
    settings = scenario("plain", 1).settings
    return Config.model_validate(tree_of("m", NOBODY, settings, tmp_path / "state", {"learner": {"publish": False}}))


@pytest.fixture
def admin() -> Admin:
    """An administrator without brokers; a test that asks it waits in vain."""
    return Admin(KafkaSettings({"bootstrap.servers": NOBODY}))


@pytest.mark.parametrize("folded_since", [0, 1], ids=["nothing folded since", "a tick folded since"])
def test_a_checkpoint_under_way_at_the_stop_is_finished_and_logged(
    config: Config, admin: Admin, folded_since: int
) -> None:
    """Every checkpoint that counts is logged and counted; the last one is of the last tick, and loads later."""
    metrics = Metrics("m")
    model = LearnedModel(config, metrics, control_of(config), until_tick=TICK)
    with capture_logs() as logged:
        model.load(LOG, admin)
        model.fold([], TICK)
        assert model.checkpoint_when_due(POSITIONS), "it has begun, and is not whole"
        assert checkpoints(logged) == []
        if folded_since:
            model.fold([], TICK + folded_since)
        model.finish(POSITIONS)
        model.close()
    expected = [TICK, TICK + folded_since][: 1 + folded_since]
    assert checkpoints(logged) == expected
    assert values_of(metrics.text().decode())["learner_checkpoints_total", ""] == len(expected)
    later = LearnedModel(config, Metrics("m"), control_of(config))
    later.load(LOG, admin)
    assert later.tick == expected[-1]
    later.close()


def test_a_model_that_is_not_published_counts_its_weights_with_each_checkpoint(config: Config, admin: Admin) -> None:
    """If weights move without being touched, only a count finds those that are not 0: a standby's metric needs it."""
    fobos = CHOICE.of({"name": "fobos", "l1": 0.001})
    learner = config.learner.model_copy(update={"optimizer": fobos})
    changed = config.model_copy(update={"learner": learner})
    model = LearnedModel(changed, Metrics("m"), control_of(config), until_tick=TICK)
    model.load(LOG, admin)
    model.learner.fold(as_record([Example(((5, 1.0), (6, 2.0)), 1.0, 1.0)]), TICK)
    model.fold([], TICK)
    model.finish(POSITIONS)
    model.close()
    assert model.learner.nonzero == 2


def control_of(config: Config) -> ControlWatch:
    """A control topic that is not read yet."""
    return ControlWatch(KafkaSettings(config.kafka_options()), config.control_topic, get_logger("learner"))


def checkpoints(logged: list[Any]) -> list[int]:
    """The ticks of the checkpoints that were logged so far."""
    return [event["tick"] for event in logged if event["event"] == "checkpoint"]
