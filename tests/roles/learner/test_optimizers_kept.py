"""The state of every optimizer is kept in RocksDB, and its weights are published to a replica, to the bit.

The store is the real one; the topic is a list of records, compacted by key. What is compared is bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_learner.adapters.kafka import TopicInfo
from stream_learner.config import Config
from stream_learner.config.optimizers import CHOICE
from stream_learner.config.optimizers import Optimizer as Settings
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import prediction
from stream_learner.core.model.optimizers import OPTIMIZERS, make_optimizer, sample_optimizer
from stream_learner.core.model.optimizers.settings import hyper_parameters, sample
from stream_learner.core.snapshots.pages import PagePlanner, PagePolicy, Prefix, shard_prefix
from stream_learner.core.snapshots.records import Stamp, publication
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.rows import StateRows, WeightRows, rows_between
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from tests.core.model.example_records import Example, as_record, random_examples

STREAMING = [name for name in OPTIMIZERS if sample_optimizer(name).streaming]
TICKS = 8
SHARDS = 2
VALUES = {"l1": 0.001, "l2": 0.1, "radius": 0.7, "low": -0.6, "high": 0.5, "gamma": 2.0, "strength": 3.0, "every": 3}
VALUES |= {"theta": 0.02, "dimension": 60}
"""Hyper-parameters under which penalties, boxes and truncation all show in a hundred examples."""


def settings_of(name: str) -> dict[str, Any]:
    """The optimizer as a configuration has it."""
    return {"name": name, **{f.name: VALUES[f.name] for f in fields(OPTIMIZERS[name]) if f.name in VALUES}}


def config_of(folder: Path, optimizer: dict[str, Any], loss: str | None = None) -> Config:
    """A configuration with its state directory in `folder`."""
    learned = loss or (sample_optimizer(optimizer["name"]).losses or ("logistic",))[0]
    return Config.model_validate(
        {
            "model": "m",
            "kafka": {"bootstrap.servers": "nowhere:1"},
            "input": {"impressions": {"topic": "i"}, "clicks": {"topic": "c"}},
            "learner": {"state_dir": str(folder), "optimizer": optimizer, "loss": {"name": learned}},
            "snapshots": {"shards": SHARDS},
        }
    )


def learner_of(config: Config) -> Learner:
    return Learner(config.optimizer(), loss=config.loss(), slice_ms=60_000)


def parts(seed: int) -> Iterator[list[Example]]:
    """The examples of each tick, some of them hopeless; labels and values that no optimizer despairs of."""
    for tick in range(TICKS):
        yield [
            Example(
                tuple((key, round(x / (1.0 + abs(x) / 8.0), 3)) for key, x in e.features),
                float(e.label > 0.5),
                min(e.weight, 9.0),
            )
            for e in random_examples(25, seed + tick, keys=40, longest=6)
        ]


def weights_of(learner: Learner) -> dict[int, np.float32]:
    """Every row's weight as it is published."""
    found: dict[int, np.float32] = {}
    for rows in learner.table.items():
        found.update(zip(rows.keys.tolist(), learner.weights(rows.columns).astype(np.float32), strict=True))
    return found


def everything(learner: Learner) -> tuple[Any, ...]:
    """All state, to the bit."""
    rows = [(r.keys.tolist(), r.columns.tobytes(), r.touched.tolist()) for r in learner.table.items()]
    return rows, learner.state_scalars(), learner.digest_full(), learner.count_nonzero()


class Topic:
    """`<model>.snapshots` as lists, and the planners of its publisher."""

    def __init__(self, learner: Learner) -> None:
        policy = PagePolicy(page_bytes=96, ring=6, whole=learner.optimizer.moves)
        self.learner = learner
        self.planners: list[PagePlanner[WeightRows]] = [
            PagePlanner(shard_prefix(shard, SHARDS), policy) for shard in range(SHARDS)
        ]
        self.logs: list[list[tuple[int, bytes, bytes | None]]] = [[] for _ in range(SHARDS)]

    def publish(self, tick: int) -> None:
        """The records that `Publication.publish` puts into its transaction."""
        changed = self._weights(self.learner.table.take_changed_for_publication(tick))
        content = {"name": "m", "tick_ms": 1, "features": {}, "inputs": {}, "metrics": {}} | self.learner.kind()
        for shard, planner in enumerate(self.planners):
            plan = planner.plan(rows_between(changed, planner.root.bits, planner.root.last), self._rows_of)
            stamp = Stamp(shard, SHARDS, plan.sequence, tick, tick)
            for key, value in publication(plan, stamp, self.learner.digest(), content if shard == 0 else None):
                self.logs[shard].append((len(self.logs[shard]), key, value))
            planner.commit(plan)

    def _rows_of(self, prefix: Prefix) -> WeightRows:
        rows = self.learner.table.rows_with_prefix(prefix.number, prefix.nbits)
        return self._weights(rows)

    def _weights(self, rows: StateRows) -> WeightRows:
        return WeightRows(rows.keys, self.learner.weights(rows.columns).astype(np.float32))

    def feed(self, replica: Replica, positions: list[int]) -> None:
        """Give a replica the records that it has not read yet."""
        for shard, log in enumerate(self.logs):
            for offset, key, value in log[positions[shard] :]:
                replica.take(shard, offset, key, value)
            positions[shard] = len(log)

    def compacted(self) -> Replica:
        """A replica that begins now, with the last record of each key."""
        replica = Replica([len(log) for log in self.logs])
        for shard, log in enumerate(self.logs):
            last = {key: offset for offset, key, _ in log}
            for offset, key, value in log:
                if last[key] == offset and value is not None:
                    replica.take(shard, offset, key, value)
        return replica


def assert_serves(replica: Replica, learner: Learner, tick: int) -> None:
    """The replica has the learner's weights to the bit, and predicts with the link of its loss."""
    assert (replica.ready, replica.version, replica.digest) == (True, tick, learner.digest()), replica.why_not_ready
    weights = weights_of(learner)
    assert {key: np.float32(replica.weight(key)) for key in weights} == weights
    keys = np.array(list(weights)[:5], np.uint64)
    found, _, _ = replica.predict(keys, np.ones(len(keys)), np.arange(len(keys) + 1))
    assert found.tolist() == [prediction(learner.loss.code, float(weights[key])) for key in keys.tolist()]


@pytest.mark.parametrize("name", STREAMING)
def test_state_is_kept_and_weights_are_published_to_the_bit(name: str, tmp_path: Path) -> None:
    """Restored from one checkpoint after another, state and replica are at each version those of an undisturbed run."""
    config = config_of(tmp_path, settings_of(name))
    undisturbed, log = learner_of(config), TopicInfo(config.examples_topic, b"x" * 16, 1, 1)
    topic = Topic(undisturbed)
    follower, positions = Replica([0] * SHARDS), [0] * SHARDS
    for tick, examples in enumerate(parts(seed=5)):
        undisturbed.fold(as_record(examples), tick)
        topic.publish(tick)
        topic.feed(follower, positions)
        assert_serves(follower, undisturbed, tick)
        restarted = learner_of(config)
        checkpoints = Checkpoints(config, restarted, log)
        checkpoints.load()
        assert checkpoints.tick == tick - 1
        restarted.fold(as_record(examples, shuffle=tick), tick)
        assert everything(restarted) == everything(undisturbed)
        checkpoints.begin(tick, {0: LOG_BEGINNING})
        checkpoints.finish()
        checkpoints.close()
    assert undisturbed.examples > 100 and any(weights_of(undisturbed).values())
    assert_serves(topic.compacted(), undisturbed, TICKS - 1)


@pytest.mark.parametrize("loss", ["squared", "hinge", "poisson", "quantile"])
def test_a_replica_predicts_by_the_link_of_the_loss(loss: str, tmp_path: Path) -> None:
    """e^(w.x) for poisson, w.x for losses without a probability."""
    learner = learner_of(config_of(tmp_path, {"name": "ogd", "eta": 0.05}, loss))
    topic = Topic(learner)
    for tick, examples in enumerate(parts(seed=9)):
        learner.fold(as_record(examples), tick)
    topic.publish(tick)
    assert_serves(topic.compacted(), learner, tick)


def test_a_weight_that_came_back_to_zero_before_a_crash_is_zero_for_scorers_too(tmp_path: Path) -> None:
    """Its row is all zeros in the checkpoint, and the last publication still has the weight; the next must send 0."""
    config = config_of(tmp_path, {"name": "ogd", "low": 0.0, "eta": 1.0})
    learner, log = learner_of(config), TopicInfo(config.examples_topic, b"x" * 16, 1, 1)
    checkpoints = Checkpoints(config, learner, log)
    checkpoints.load()
    topic, replica, positions = Topic(learner), Replica([0] * SHARDS), [0] * SHARDS
    learner.fold(as_record([Example(((7, 1.0), (9, 1.0)), 1.0, 1.0)]), 0)
    topic.publish(0)
    topic.feed(replica, positions)
    assert replica.weight(7) > 0.0
    learner.fold(as_record([Example(((7, 1.0),), 0.0, 9.0)]), 1)
    assert weights_of(learner)[7] == 0.0
    checkpoints.begin(1, {0: LOG_BEGINNING})
    checkpoints.finish()
    checkpoints.close()
    again = learner_of(config)
    checkpoints = Checkpoints(config, again, log)
    checkpoints.load()
    checkpoints.close()
    again.table.restart_changes(1, 0)
    again.fold(as_record([Example(((9, 1.0),), 1.0, 1.0)]), 2)
    topic.learner = again
    topic.publish(2)
    topic.feed(replica, positions)
    assert_serves(replica, again, 2)
    assert replica.weight(7) == 0.0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_settings_are_those_of_the_optimizer(name: str) -> None:
    """`learner.optimizer` takes, by name, each hyper-parameter of that optimizer and no other, with its default."""
    own = hyper_parameters(OPTIMIZERS[name])
    needed = {one.name: sample(one) for one in own.values() if one.default is MISSING}
    settings = CHOICE.of({"name": name, **needed})
    assert set(type(settings).settings()) == {"name", *own}
    optimizer = make_optimizer({"name": name, **needed})
    assert make_optimizer(settings.given()) == optimizer
    others = {key: 1.0 for key in Settings.settings() if key not in own and key != "name"}
    for key, value in others.items():
        with pytest.raises(ValueError, match=f"{name} has no hyper-parameter '{key}'"):
            CHOICE.of({"name": name, **needed, key: value})


def test_a_name_of_a_setting_means_the_same_in_every_optimizer() -> None:
    """It has one type and one description; ranges may differ in whether they include their bound."""
    found: dict[str, set[Any]] = {}
    for kind in OPTIMIZERS.values():
        for one in hyper_parameters(kind).values():
            bound = one.setting.above if one.setting.at_least is None else one.setting.at_least
            found.setdefault(one.name, set()).add((one.type, one.setting.text, bound, one.setting.at_most))
    assert {name: len(meanings) for name, meanings in found.items() if len(meanings) > 1} == {}
    assert set(Settings.settings()) == {"name", *found}
