"""A model published by hand, so that a test knows the weights of every version.

Its transactions in the snapshot topic are those that a learner would write. It must never publish what a learner would
not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from stream_learner.adapters.kafka import Record, TopicPlan
from stream_learner.core.snapshots.pages import PagePlanner, PagePolicy, Prefix, shard_prefix
from stream_learner.core.snapshots.records import Stamp, publication
from stream_learner.core.snapshots.rows import WeightRows, rows_between
from tests.adapters.kafka.kafka_help import VisiblePublisher
from tests.cli_e2e.world import World

SHARDS = 2
Weights = dict[int, float]


class Published:
    """Publishes versions of the model of a `World`."""

    def __init__(self, world: World, features: Mapping[str, Any] | None = None) -> None:
        """Makes the snapshot topic. features: the published form of the specification, None for that configured."""
        self.world = world
        self.topic = world.config.snapshots_topic
        self.weights: Weights = {}
        world.admin.create([TopicPlan(self.topic, SHARDS, configs={"cleanup.policy": "compact"})])
        self._planners = [PagePlanner(shard_prefix(shard, SHARDS), PagePolicy(ring=8)) for shard in range(SHARDS)]
        self._publisher = VisiblePublisher(world.settings, f"{world.model}.publisher")
        self._publisher.init()
        impressions, _ = world.config.event_specs()
        self._content = {
            "name": world.model,
            "tick_ms": world.config.join.tick_ms,
            "features": world.config.feature_spec().to_dict() if features is None else dict(features),
            "optimizer": {},
            "inputs": {"ignored_fields": list(impressions.paths())},
            "metrics": {},
        }

    def publish(
        self, version: int, changes: Weights, *, damage: Callable[[bytes, bytes], bytes] = lambda key, value: value
    ) -> None:
        """One more version: the weights so far, with changes. damage: what becomes of a record's value on the way."""
        self.weights |= changes
        changed, whole = _rows(changes), _rows({k: w for k, w in self.weights.items() if w})
        records = []
        for shard, planner in enumerate(self._planners):
            root = planner.root
            plan = planner.plan(rows_between(changed, root.bits, root.last), partial(_below, whole))
            planner.commit(plan)
            stamp = Stamp(shard, SHARDS, plan.sequence, 1, version)
            content = self._content if shard == 0 else None
            records += [
                Record(self.topic, shard, key, value if value is None else damage(key, value))
                for key, value in publication(plan, stamp, version, content)
            ]
        self._publisher.publish(records)

    def close(self) -> None:
        """Give the producer back."""
        self._publisher.close()


def p_click(weights: Weights, keys: list[int]) -> float:
    """The prediction for features of value 1, in plain Python."""
    return 1.0 / (1.0 + math.exp(-math.fsum(weights.get(key, 0.0) for key in keys)))


def _rows(weights: Weights) -> WeightRows:
    keys = sorted(weights)
    return WeightRows(np.array(keys, np.uint64), np.array([weights[key] for key in keys], np.float32))


def _below(rows: WeightRows, prefix: Prefix) -> WeightRows:
    return rows_between(rows, prefix.bits, prefix.last)
