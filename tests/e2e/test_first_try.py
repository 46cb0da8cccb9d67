"""A first try that is corrected, on a real Kafka: as long as nothing was learned, every setting may change."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.errors import InputsChanged, StateOfAnotherModel
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.topics import ensure_topics
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.joiner.role import JoinerRole
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.site import failure_of, running, until_answered, wait_until
from tests.e2e.training_log import LogReader
from tests.kafka_broker.broker import delete_topics

EVENTS = 40
AGO_S = 1800.0
WRONG_ID = {"input": {"impressions": {"id": "no_such_field"}}}
NOT_LEARNED = {"join": {"max_bad_share": 1.0}, **WRONG_ID}


@dataclass
class Trial:
    """A model of a newcomer, with two partitions, and events of half an hour ago in its input topics."""

    bootstrap: str
    folder: Path
    name: str
    always: Mapping[str, Any]
    """What its configuration has besides."""

    def tree(self, **changes: Any) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "model": self.name,
            "kafka": {"bootstrap.servers": self.bootstrap, "session.timeout.ms": 3000},
            "input": {
                "impressions": {"topic": f"{self.name}-impressions", "id": "id", "time": "t"},
                "clicks": {"topic": f"{self.name}-clicks", "id": "id", "time": "t"},
            },
            "join": {"window": "1s", "tick": "500ms", "grace": "100ms", "skew": "100ms", "idle_after": "0"},
            "learner": {"state_dir": str(self.folder / "state"), "checkpoint_interval": "1s", "copy_interval": "0s"},
            "snapshots": {"shards": 2, "interval": "100ms", "first": {"examples": 0}},
            "topics": {"control": f"{self.name}.control"},
        }
        return merged(merged(tree, self.always), changes)

    def config(self, **changes: Any) -> Config:
        return Config.model_validate(self.tree(**changes))

    def file(self, **changes: Mapping[str, Any]) -> Path:
        """The configuration as a file."""
        path = self.folder / f"{uuid.uuid4().hex[:6]}.yaml"
        path.write_text(json.dumps(self.tree(**changes)), encoding="utf-8")
        return path

    def joiner(self, **changes: Mapping[str, Any]) -> JoinerRole:
        return JoinerRole(self.config(**changes), Metrics(self.name))

    def learner(self, **changes: Mapping[str, Any]) -> LearnerRole:
        return LearnerRole(self.config(**changes), Metrics(self.name))

    def produce(self) -> None:
        """Impressions, and a click for every fourth, of a moment that is longer ago than `join.lateness`."""
        from confluent_kafka import Producer

        producer, c = Producer({"bootstrap.servers": self.bootstrap}), self.config()
        for number in range(EVENTS):
            t = round((time.time() - AGO_S) * 1000) + number
            event = {"id": f"i{number}", "t": t, "site": f"s{number % 3}", "w": number}
            topics = [c.input.impressions.topic] + [c.input.clicks.topic] * (number % 4 == 0)
            for topic in topics:
                producer.produce(topic, json.dumps(event), partition=number % 2)
        assert producer.flush(30) == 0

    def logs(self) -> list[LogReader]:
        """The training log, read up to its end."""
        c = self.config()
        settings = KafkaSettings(c.kafka_options())
        places = [(c.examples_topic, partition) for partition in range(2)]
        admin = Admin(settings)
        ends = until_answered(lambda: admin.offsets.high_watermarks(places))
        readers = [LogReader(settings, *place).read(ends[place]) for place in places]
        for reader in readers:
            reader.close()
        return readers

    def examples(self) -> int:
        return sum(mark.counts.impressions.examples for log in self.logs() for mark in log.marks)


def merged(tree: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The tree with other entries, however deep."""
    found = dict(tree)
    for name, value in changes.items():
        found[name] = merged(found.get(name, {}), value) if isinstance(value, Mapping) else value
    return found


@contextmanager
def trial_of(bootstrap: str, folder: Path, **changes: Mapping[str, Any]) -> Iterator[Trial]:
    """A model whose topics are made, with events in its inputs; its topics are gone when the block ends."""
    trial = Trial(bootstrap, folder, f"m{uuid.uuid4().hex[:10]}", changes)
    ensure_topics(trial.config(), partitions=2)
    trial.produce()
    yield trial
    delete_topics(bootstrap, made(trial))


def made(trial: Trial) -> list[str]:
    """Those of its topics that are there."""
    c = trial.config()
    inputs = [c.input.impressions.topic, c.input.clicks.topic]
    own = [c.examples_topic, c.snapshots_topic, c.dead_letters_topic, c.checkpoints_topic, c.control_topic]
    return sorted(Admin(KafkaSettings(c.kafka_options())).describe([*inputs, *own]))


@pytest.fixture
def trial(kafka: str, tmp_path: Path) -> Iterator[Trial]:
    """A model whose topics are made, and that has never run."""
    with trial_of(kafka, tmp_path) as made:
        yield made


def tried(trial: Trial, **changes: Mapping[str, Any]) -> None:
    """Run joiner and learner until both have written: marks without an example, a checkpoint, a copy of it."""
    learner = trial.learner(**changes)
    with running(trial.joiner(**changes), learner):
        wait_until(lambda: all(len(log.marks) > 2 for log in trial.logs()), "marks in every partition")
        wait_until(lambda: learner.models[0].copies and learner.models[0].copies.tick >= 0, "a copy of a checkpoint")
    assert trial.examples() == 0


def published(config: Config) -> int:
    """How many examples the last version was learned from, -1 without a version."""
    settings = KafkaSettings(config.kafka_options())
    offsets, shards = Admin(settings).offsets, config.snapshots.shards
    last = read_last_publication(settings, offsets, config.snapshots_topic, shards)
    return int(last.model.content["metrics"]["examples"]) if last.model is not None and last.is_whole else -1


def learns(trial: Trial, **changes: Mapping[str, Any]) -> None:
    """All impressions become examples, and are learned."""
    learner = trial.learner(**changes)
    with running(trial.joiner(**changes), learner):
        wait_until(lambda: trial.examples() >= EVENTS, "all examples")
        wait_until(lambda: learner.learner.examples == EVENTS, "all learned")
        wait_until(lambda: published(trial.config(**changes)) == EVENTS, "a version of all is published")
    assert trial.examples() == EVENTS
    positives = sum(mark.counts.impressions.positives for log in trial.logs() for mark in log.marks)
    assert positives == EVENTS // 4


CORRECTIONS: dict[str, Mapping[str, Any]] = {
    "ids": {},
    "window": {"join": {"window": "2s"}},
    "exclude": {"features": {"exclude": ["w"]}},
    "alpha": {"learner": {"optimizer": {"alpha": 0.05}}},
    "a shorter tick": {"join": {"tick": "250ms", "grace": "50ms"}},
    "key rule": {"features": {"key_rule": 1}},
}


@pytest.mark.parametrize("correction", CORRECTIONS.values(), ids=CORRECTIONS.keys())
def test_a_first_try_is_corrected(correction: Mapping[str, Any], trial: Trial) -> None:
    """Joiner and learner begin again by themselves, say so once, and learn all that the inputs hold."""
    tried(trial, **NOT_LEARNED)
    with capture_logs() as logged:
        learns(trial, **correction)
    said = [event["event"] for event in logged]
    assert said.count("log_begins_again") == 1
    assert said.count("state_begins_again") == (correction in (CORRECTIONS["alpha"], CORRECTIONS["a shorter tick"]))
    found = audit(trial.config(**correction), AuditRequest())
    assert found["sound"], found["findings"]


def test_a_longer_tick_is_refused_with_the_command_that_lets_it_change(trial: Trial) -> None:
    """Ticks are numbered by their length, and numbers never go back: nothing is written, and the old length goes on."""
    tried(trial, **NOT_LEARNED)
    longer = {"join": {"tick": "1s"}}
    error = failure_of(trial.joiner(**longer), InputsChanged)
    assert "join.tick 1000 ms" in str(error)
    assert "stream-learner delete" in error.action
    assert not any(mark.begins_anew for log in trial.logs() for mark in log.marks)
    learns(trial)


@pytest.mark.parametrize("gone", [["examples"], ["examples", "checkpoints", "snapshots", "state"]])
def test_topics_that_were_deleted_by_hand_are_begun_again(gone: list[str], trial: Trial) -> None:
    """The state, or a group's offset, of a log that is gone does not stop a model that has learned nothing."""
    tried(trial, **NOT_LEARNED)
    c = trial.config()
    delete_topics(trial.bootstrap, [getattr(c, f"{kind}_topic") for kind in gone if kind != "state"])
    if "state" in gone:
        shutil.rmtree(c.state_dir)
    wait_until(lambda: len(made(trial)) == 7 - len(gone) + ("state" in gone), "the topics are gone")
    ensure_topics(c)
    with capture_logs() as logged:
        learns(trial)
    said = [event["event"] for event in logged]
    assert said.count("hint_ignored") == 2
    assert said.count("state_begins_again") == ("state" not in gone)


def test_what_was_learned_is_kept_and_the_error_says_what_has_changed(trial: Trial) -> None:
    """With examples in the log, both roles refuse, name the setting with both values, and the commands."""
    learns(trial)
    error = failure_of(trial.learner(learner={"optimizer": {"alpha": 0.05}}), StateOfAnotherModel)
    assert "learner.optimizer.alpha: there 0.1, here 0.05" in str(error)
    assert all(f"stream-learner {command}" in error.action for command in ("backfill --as", "delete"))
    for changes, setting in (
        (
            {"join": {"window": "2s", "skew": "200ms"}},
            "join.window: there 1s, here 2s; join.skew: there 100ms, here 200ms",
        ),
        ({"features": {"exclude": ["w"]}}, 'features.exclude: there [], here ["w"]'),
        ({"input": {"impressions": {"id": "site"}}}, "input.impressions.id: there id, here site"),
    ):
        error = failure_of(trial.joiner(**changes), InputsChanged)
        assert setting in str(error)
        assert all(f"stream-learner {command}" in error.action for command in ("begin-anew", "backfill", "delete"))
    assert trial.examples() == EVENTS


def test_one_partition_with_examples_of_other_settings_holds_all_back(trial: Trial) -> None:
    """A partition without an example does not begin again by itself beside one that has some."""
    c = trial.config()
    with running(trial.joiner()):
        wait_until(lambda: trial.examples() >= EVENTS, "all examples")
    other = failure_of(trial.joiner(join={"window": "2s"}), InputsChanged)
    assert c.examples_topic in str(other)
    assert not any(mark.begins_anew for log in trial.logs() for mark in log.marks)
