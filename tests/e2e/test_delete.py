"""`stream-learner delete` on a real Kafka: shows all there is of a model, removes it, and its name is free."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings, TransactionalPublisher
from stream_learner.adapters.kafka.ends import group_exists
from stream_learner.core.control.gate_state import GateState
from stream_learner.core.control.records import PROMOTE, Alias, Change, LogDecision, Pin, Publication
from stream_learner.core.gate.decisions import Decision
from stream_learner.errors import ConfigError, ModelInUse
from stream_learner.operations import delete as deletion
from stream_learner.operations.delete import LEFT, REMOVED, THERE, DeleteRequest, delete
from stream_learner.operations.topics import ensure_topics
from stream_learner.roles.control.topic import ControlTopic
from tests.cli_e2e.commands import answer_of
from tests.e2e.site import running, wait_until
from tests.e2e.test_first_try import EVENTS, Trial, learns, made, trial_of

DECISION = Decision.make("skip", 1, 2, who="test", when_ms=1, why="no example is of that time")
WRITE = DeleteRequest(write=True, who="test")
OTHER: Mapping[str, Mapping[str, Any]] = {
    "join": {"tick": "1s", "window": "2s"},
    "features": {"exclude": ["w"]},
    "learner": {"optimizer": {"alpha": 0.05}},
    "snapshots": {"shards": 4, "first": {"examples": 0}},
}
"""Settings that no log with examples allows to change, a longer tick and another number of shards among them."""


@pytest.fixture
def learned(kafka: str, tmp_path: Path) -> Iterator[Trial]:
    """A model that has learned, published and copied its state."""
    with trial_of(kafka, tmp_path) as trial:
        learns(trial)
        control = ControlTopic(KafkaSettings(trial.config().kafka_options()), trial.config().control_topic)
        now_ms, log = round(time.time() * 1000), trial.config().examples_topic
        control.write(Publication(trial.name, False, "test", now_ms))
        control.write(Pin(trial.name, trial.name, False, None, "test", now_ms))
        control.write(LogDecision(log, DECISION))
        wait_until(lambda: not in_use(trial), "the group knows that they have left")
        yield trial


def in_use(trial: Trial) -> list[str]:
    found: list[str] = delete(trial.config(), DeleteRequest())["in_use"]
    return found


def found_of(report: dict[str, Any], kind: str) -> dict[str, str]:
    """The states of the things of a kind, by name."""
    return {row["name"]: row["state"] for row in report["found"] if row["kind"] == kind}


def ends_of_inputs(trial: Trial) -> dict[tuple[str, int], int]:
    c = trial.config()
    places = [(topic, p) for topic in (c.input.impressions.topic, c.input.clicks.topic) for p in range(2)]
    return dict(Admin(KafkaSettings(c.kafka_options())).offsets.high_watermarks(places))


def test_all_there_is_is_shown_and_removed_and_the_name_is_used_again_at_once(learned: Trial) -> None:
    """Without --write nothing changes. Afterwards nothing is left but the inputs, and other settings are learned with:
    all of the inputs, as by a model that is new."""
    c, path = learned.config(), str(learned.file())
    inputs = ends_of_inputs(learned)
    shown = answer_of("delete", "-c", path, "--json").json
    topics = [c.checkpoints_topic, c.snapshots_topic, c.dead_letters_topic, c.examples_topic]
    assert found_of(shown, "topic") == dict.fromkeys(topics, THERE)
    assert found_of(shown, "consumer group") == {c.group: THERE, c.lease_group: THERE}
    offsets = next(row["offsets"] for row in shown["found"] if row["name"] == c.group)
    assert sum(row["offset"] for row in offsets) == EVENTS + EVENTS // 4
    assert found_of(shown, "transactional id") == {c.publisher_id: LEFT, c.copier_id: LEFT}
    assert found_of(shown, "state directory") == {str(c.state_dir): THERE}
    of_control = set(found_of(shown, "control record"))
    assert of_control == {
        f"decision/{c.examples_topic}/{DECISION.id}",
        f"pin/{learned.name}",
        f"publication/{learned.name}",
    }
    assert (shown["written"], shown["in_use"]) == (False, [])
    said = answer_of("delete", "-c", path)
    assert (said.code, said.out.splitlines()[-1]) == (0, "nothing was removed; --write does it")
    assert learned.examples() == EVENTS
    done = answer_of("delete", "-c", path, "--write", "--json").json
    assert {row["state"] for row in done["found"] if row["kind"] != "transactional id"} == {REMOVED}
    assert done["written"] is True
    left = delete(c, DeleteRequest())
    assert {row["kind"] for row in left["found"]} == {"transactional id"}
    assert not c.state_dir.exists()
    assert ends_of_inputs(learned) == inputs
    ensure_topics(learned.config(**OTHER))
    learns(learned, **OTHER)


def test_a_deletion_that_was_interrupted_is_finished_by_the_same_command(
    learned: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was interrupted: here before the groups, before the third topic, and before the control records."""
    c, steps = learned.config(), []

    class Interrupted(Exception):
        """The process was killed."""

    def until(name: str) -> None:
        right = getattr(deletion, name)

        def kill(*arguments: object) -> None:
            steps.append(name)
            if steps.count(name) == {"delete_group": 1, "delete_topic": 3}[name]:
                raise Interrupted
            right(*arguments)

        with monkeypatch.context() as patched, pytest.raises(Interrupted):
            patched.setattr(deletion, name, kill)
            delete(c, WRITE)

    until("delete_group")
    assert not c.state_dir.exists()
    assert learned.examples() == EVENTS
    until("delete_topic")
    assert learned.examples() == EVENTS
    assert set(found_of(delete(c, DeleteRequest()), "topic")) == {c.dead_letters_topic, c.examples_topic}
    delete(c, WRITE)
    assert {row["kind"] for row in delete(c, DeleteRequest())["found"]} == {"transactional id"}
    assert delete(c, WRITE)["written"]
    assert not group_exists(KafkaSettings(c.kafka_options(), group=c.group))


def test_nothing_is_removed_while_something_uses_the_model(learned: Trial) -> None:
    """A joiner, a learner, an open transaction, an alias; the message says which. An alias is let go if told so."""
    c = learned.config()
    learner = learned.learner()
    with running(learned.joiner(), learner):
        wait_until(lambda: learner.is_loaded and learner.models[0].leads, "the learner leads")
        wait_until(lambda: len(in_use(learned)) == 3, "joiner, learner and state are seen")
        refused = answer_of("delete", "-c", str(learned.file()), "--write", "--force")
        assert refused.code == ModelInUse.exit_code
        assert c.group in refused.err and c.lease_group in refused.err and str(c.state_dir) in refused.err
    wait_until(lambda: not in_use(learned), "they are gone")
    settings = KafkaSettings(c.kafka_options())
    publisher = TransactionalPublisher(settings, c.publisher_id)
    publisher.init()
    publisher._producer.begin_transaction()
    publisher._producer.produce(c.snapshots_topic, b"", b"", 0)
    publisher._producer.flush()
    wait_until(lambda: in_use(learned) == [f"a transaction to {c.snapshots_topic} is open"], "the transaction is seen")
    publisher._producer.abort_transaction()
    publisher.close()
    control = ControlTopic(settings, c.control_topic)
    change = Change("1" * 16, PROMOTE, "test", round(time.time() * 1000), None, learned.name)
    control.write(Alias("live", (change,)))
    log = c.examples_topic
    control.write(GateState("another", log, "hold", None, (), "test", 1))
    wait_until(lambda: len(in_use(learned)) == 2, "only these two are left")
    with pytest.raises(ModelInUse, match=f"the alias live points at it .*; another learns from its training log {log}"):
        delete(c, WRITE)
    assert learned.examples() == EVENTS
    delete(c, DeleteRequest(write=True, force=True, who="test"))
    control.read()
    assert control.state.aliases["live"].model is None


def test_what_is_not_the_models_own_is_left(kafka: str, tmp_path: Path) -> None:
    """A topic with another name, unless that is said; the files of others in its state directory; a state of another
    model, which is refused."""
    with trial_of(kafka, tmp_path, topics={"examples": f"log-{tmp_path.name}"[:60]}) as trial:
        c = trial.config()
        c.state_dir.mkdir()
        (c.state_dir / "mine.txt").write_text("kept")
        learner = trial.learner()
        with running(learner):
            wait_until(lambda: learner.is_loaded, "it has a state")
        wait_until(lambda: not in_use(trial), "it is gone")
        other = trial.config(model=f"{trial.name}x")
        with pytest.raises(ConfigError, match=f"holds the state of {trial.name}"):
            delete(other, DeleteRequest())
        done = delete(c, WRITE)
        assert found_of(done, "topic")[c.examples_topic] == LEFT
        assert [entry.name for entry in c.state_dir.iterdir()] == ["mine.txt"]
        assert set(found_of(delete(c, DeleteRequest(write=True, all_topics=True)), "topic")) == {c.examples_topic}
        assert made(trial) == sorted([c.input.impressions.topic, c.input.clicks.topic, c.control_topic])
