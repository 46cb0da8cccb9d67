"""A training log whose clicks die at some tick, written straight into its topic, and the models that learn from it."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stream_learner.adapters.kafka import Appender, TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode, encode_examples
from stream_learner.core.log.marks import GENESIS, ClickCounts, ImpressionCounts, MarkId, TickCounts
from stream_learner.core.log.rule_w import Attempt
from stream_learner.core.model.fold import Learner
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.conftest import MakeSite
from tests.e2e.site import COMPACTED, Site, wait_until
from tests.e2e.variants import make_topics
from tests.scenarios import scenario
from tests.waiting import patience

TICK_MS = 60_000
FIRST = 28_000_000
"""The first tick with examples: in March 2023."""
PARTITIONS = 2
EXAMPLES = 40
"""In a tick of a partition."""
SHARE = 0.25
"""Of positives, while there are clicks."""
KEYS = np.arange(1, 33, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Ticks:
    """Ticks of a log, both ends included, counted from FIRST."""

    first: int
    last: int


@dataclass
class Gated:
    """A site whose training log the test writes, tick by tick, and its control topic."""

    site: Site
    written: int = 0
    """How many ticks with examples are written."""
    _last: list[MarkId] = field(default_factory=lambda: [GENESIS] * PARTITIONS)

    def write(self, ticks: int, *, dead: Collection[int] = (), empty: Collection[int] = ()) -> None:
        """Write more ticks. dead: those without a positive; empty: those whose examples are missing."""
        appender = Appender(self.site.settings)
        for tick in range(self.written, self.written + ticks):
            for partition in range(PARTITIONS):
                self._write(appender, partition, tick, dead=tick in dead, empty=tick in empty)
        appender.flush(patience())
        assert appender.waiting == 0
        appender.close()
        self.written += ticks

    def _write(self, appender: Appender, partition: int, tick: int, *, dead: bool, empty: bool) -> None:
        after = self._last[partition]
        batch = ExampleBatch.empty() if empty else examples_of(partition, tick, dead=dead)
        positives = int((batch.label > 0).sum())
        features = self.site.config.feature_spec().fingerprint
        attempt = Attempt(partition, 1 + tick, after, 0, features=features)
        values = attempt.stamp(
            batch,
            first_tick=after.last_tick + 1,
            last_tick=FIRST + tick,
            next_impression=0,
            first_click=0,
            click_cursor=0,
            counts=TickCounts(
                ImpressionCounts(read=len(batch), examples=len(batch), positives=positives),
                ClickCounts(read=positives, matched=positives),
            ),
        )
        for value in values:
            appender.append(self.site.config.examples_topic, partition, value)
        self._last[partition] = MarkId(attempt.id, FIRST + tick)

    @property
    def end(self) -> int:
        """The last tick that is written."""
        return FIRST + self.written - 1

    def config(self, state: str = "first", **learner: Any) -> Config:
        """The site's own model, with a state directory of this name."""
        return self.site.changed(learner={"state_dir": str(self.site.folder / state), "copy_interval": "0", **learner})

    def other(self, name: str, **learner: Any) -> Config:
        """Another model of the log."""
        topics = {**self.site.tree["topics"], "examples": self.site.config.examples_topic}
        changed = {"state_dir": str(self.site.folder / name), "copy_interval": "0", **learner}
        config = self.site.changed(model=f"{self.site.model}-{name}", topics=topics, learner=changed)
        if config.snapshots_topic not in self.site.topics:
            own = (config.snapshots_topic, config.checkpoints_topic)
            make_topics(self.site, *(TopicPlan(topic, config.snapshots.shards, configs=COMPACTED) for topic in own))
        return config

    def name(self, label: str) -> str:
        """The name of another model, whose topics are deleted with the site's."""
        name = f"{self.site.model}-{label}"
        self.site.topics += [f"{name}.{what}" for what in ("snapshots", "checkpoints")]
        return name

    def learner(self, *configs: Config, **options: Any) -> LearnerRole:
        """A learner of models, by default of the site's own."""
        models = configs or (self.config(),)
        return LearnerRole(models, [Metrics(config.model) for config in models], **options)


def make_gated(make_site: MakeSite, **changes: Any) -> Gated:
    """A site with a control topic of its own, and nothing in its log."""
    control = f"control-{uuid.uuid4().hex[:8]}"
    changes = {"topics": {"control": control}, "join": {"tick": f"{TICK_MS}ms", "window": "10m"}, **changes}
    site = make_site(scenario("plain", PARTITIONS), **changes)
    make_topics(site, TopicPlan(control, 1, configs={"cleanup.policy": "compact"}))
    return Gated(site)


def examples_of(partition: int, tick: int, *, dead: bool = False) -> ExampleBatch:
    """The examples of a tick of a partition: the same at every call."""
    rng = np.random.default_rng((partition, tick))
    features = 4
    chosen = np.concatenate([rng.choice(KEYS, features, replace=False) for _ in range(EXAMPLES)])
    label = np.zeros(EXAMPLES) if dead else (rng.random(EXAMPLES) < SHARE).astype(np.float64)
    times = (FIRST + tick) * TICK_MS + np.sort(rng.integers(0, TICK_MS, EXAMPLES))
    return ExampleBatch(
        times.astype(np.int64),
        rng.integers(1, 1 << 63, EXAMPLES).astype(np.uint64),
        label,
        np.ones(EXAMPLES),
        np.arange(0, features * EXAMPLES + 1, features, dtype=np.int64),
        chosen,
        np.ones(features * EXAMPLES),
    )


def folded(config: Config, ticks: int, *, dead: Collection[int] = (), without: Collection[int] = ()) -> Learner:
    """The model of so many ticks, folded here, without the examples of some."""
    learner = Learner(config.optimizer(), loss=config.loss())
    for tick in (tick for tick in range(ticks) if tick not in without):
        for partition in range(PARTITIONS):
            for value in encode_examples(partition, FIRST + tick, 1, examples_of(partition, tick, dead=tick in dead)):
                record = decode(value)
                assert isinstance(record, ExampleRecord)
                learner.fold(record, FIRST + tick)
    return learner


def held_at(role: LearnerRole) -> int | None:
    """The tick that a learner's first model holds at."""
    holding = role.models[0].gate.holding
    return None if holding is None else holding.tick


def wait_held(*roles: LearnerRole) -> int:
    """Wait until all of them hold; returns the tick, which is the same for all."""
    wait_until(lambda: all(held_at(role) is not None for role in roles), "all hold")
    ticks = {held_at(role) for role in roles}
    assert len(ticks) == 1, ticks
    return ticks.pop() or 0


def wait_folded(tick: int, *roles: LearnerRole) -> None:
    """Wait until all of them have folded a tick."""
    wait_until(lambda: all(role.tick >= tick for role in roles), f"all have folded tick {tick}")
