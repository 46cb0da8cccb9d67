"""A learner of generated impressions whose publications are judged, tick by tick, in a world that may go wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.gate.publication import SAMPLE, Held, PublicationGate, Sums
from stream_learner.core.gate.sample import cut_rows, sampled
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal, Optimizer

TICK_MS = 10_000
HOUR = 3_600_000 // TICK_MS
EVERY = 60_000 // TICK_MS
FIELDS, VALUES = 6, 40

Poison = Callable[[NDArray[np.bool_], np.random.Generator], NDArray[np.bool_]]
POISONS: dict[str, Poison] = {
    "dead clicks": lambda y, rng: np.zeros_like(y),
    "flipped labels": lambda y, rng: ~y,
    "random labels": lambda y, rng: rng.random(len(y)) < 0.5,
}


@dataclass
class World:
    """Impressions at a mean number a tick, of a click rate of about a tenth that swings by `season` in a day.

    `verdicts` has the ticks that were held, each with why; `learner` and `gate` are as of the last tick.
    """

    seed: int = 0
    per_tick: float = 100.0
    season: float = 0.0
    optimizer: Optimizer = field(default_factory=FtrlProximal)
    every: int = EVERY

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.weights = self.rng.normal(0.0, 0.5, (FIELDS, VALUES))
        self.learner = Learner(self.optimizer, slice_ms=300_000)
        self.gate = PublicationGate(tick_ms=TICK_MS)
        self.tick = 100_000
        self.verdicts: list[tuple[int, Held]] = []

    def run(self, ticks: int, poison: str = "") -> World:
        """So many ticks more; after each `every` of them the model is judged, and published where it may be."""
        for _ in range(ticks):
            self.tick += 1
            record = self.record(POISONS.get(poison))
            if record is not None:
                self.fold(record)
            if self.tick % self.every == 0:
                self.publish()
        return self

    def record(self, poison: Poison | None = None) -> ExampleRecord | None:
        """The examples of a tick, None for none."""
        rng, n = self.rng, int(self.rng.poisson(self.per_tick))
        if not n:
            return None
        x = rng.integers(0, VALUES, (n, FIELDS))
        daytime = self.season * math.sin(2.0 * math.pi * self.tick / (24 * HOUR))
        logits = daytime - 2.5 + self.weights[np.arange(FIELDS), x].sum(1)
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-logits))
        if poison is not None:
            y = poison(y, rng)
        keys, indices = np.unique((x + VALUES * np.arange(FIELDS)).ravel() + 1, return_inverse=True)
        return ExampleRecord(
            partition=0,
            tick=self.tick,
            attempt=1,
            sequence=0,
            log_time_ms=np.full(n, self.tick * TICK_MS, np.int64),
            id_hash=rng.integers(1, 2**63, n).astype(np.uint64),
            label=y.astype(np.float64),
            weight=np.ones(n),
            keys=keys.astype(np.uint64),
            indices=indices.astype(np.uint16),
            row_len=np.full(n, FIELDS, np.uint16),
            positions=np.zeros(0, np.uint32),
            values=np.zeros(0),
        )

    def fold(self, record: ExampleRecord) -> None:
        """Note what is wanted of the model, admit what is wanted of the record, then learn from it."""
        if self.gate.wants_sums(self.tick - 1):
            self.gate.learn(self.tick - 1, Sums.of(self.learner.progress.summary()))
        if self.gate.wants(self.tick):
            parts = [cut_rows(one, rows) for one, rows in sampled([record], SAMPLE)]
            self.gate.admit(self.tick, [(part, self.learner.predict(part)) for part in parts])
        self.learner.fold(record, self.tick)

    def publish(self) -> None:
        """Judge, and publish where it may be."""
        sums, predictions = Sums.of(self.learner.progress.summary()), self.predictions()
        held = self.gate.judge(self.tick, sums, predictions)
        if held is None:
            self.gate.passed(self.tick, sums, predictions)
        else:
            self.verdicts.append((self.tick, held))

    def predictions(self) -> list[NDArray[np.float64]]:
        """The present predictions of the reservoir."""
        return [self.learner.predict(record) for record in self.gate.reservoir]

    def relearn(self, optimizer: Optimizer) -> None:
        """Go on with another optimizer of the same columns."""
        before = self.learner
        self.learner = Learner(optimizer, slice_ms=300_000)
        for rows in before.table.items():
            self.learner.table.load(rows)
        self.learner.progress, self.learner.examples = before.progress, before.examples
