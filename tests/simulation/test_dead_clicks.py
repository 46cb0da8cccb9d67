"""Clicks die while impressions go on: how far a prediction moves before windows wait for the next click.

The joiner runs through worlds of the simulation with windows of a minute; a fifth of the impressions is clicked, 20 s
later on average, until no click comes any more. The oracle's learner folds the labels that were learned, and those that
the same impressions deserve; the model is a bias alone, so its prediction is the rate of clicks.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from proofs.simulation.kafka import Log
from proofs.simulation.stream_process import LOG, RunSettings
from proofs.simulation.stream_run import StreamRun
from proofs.simulation.stream_worlds import CLICKED, MINUTE, StreamWorld, clicks_dead
from stream_learner.core.log.examples import ExampleRecord, decode
from stream_learner.core.machine.hashing import hash_texts
from tests.oracles.events import BIAS_KEY, DEFAULTS
from tests.oracles.fold import fold, predict, published
from tests.oracles.join import Example

CTR = 0.2
PARTITIONS = 2
KNOWN = 50
"""So many clicks are enough to know that the impressions after them without one are none."""
MOVES = 0.1
SETTINGS = RunSettings(idle_after_ms=10 * MINUTE)


class Cell(NamedTuple):
    """per_s: impressions a second, all partitions. dead_min: how long they go on after the last click."""

    per_s: float
    healthy_min: int
    dead_min: int

    @property
    def clicks(self) -> float:
        """How many clicks are known when they die, about."""
        return self.per_s * 60 * self.healthy_min * CTR


CELLS = tuple(
    Cell(per_s, healthy_min, dead_min)
    for per_s, dead_min in ((0.1, 120), (10, 10), (200, 3))
    for healthy_min in (2, 20, 200)
)


class Moved(NamedTuple):
    """examples: all that were learned. wrong: positives among them that were learned as negatives, because their click
    never came. left: impressions whose windows wait. right, now: the prediction by the labels that they deserve, and by
    those that were learned.
    """

    cell: Cell
    examples: int
    wrong: int
    left: int
    right: float
    now: float

    @property
    def by(self) -> float:
        """How far the prediction moved, as a share of the right one."""
        return abs(self.now / self.right - 1)


def moved(cell: Cell) -> Moved:
    """Run a cell."""
    hours = (cell.healthy_min + cell.dead_min) / 60
    dead = clicks_dead(cell.healthy_min / 60)
    world = StreamWorld(hours=hours, partitions=PARTITIONS, per_s=cell.per_s / PARTITIONS, ctr=CTR, way=dead)
    run = StreamRun(world, SETTINGS)
    left = run.run().left
    learned = [label for p in range(PARTITIONS) for label in _labels(run, p)]
    learned.sort(key=lambda one: one[0])
    deserved, found = [one[1] for one in learned], [one[2] for one in learned]
    wrong = sum(right != label for right, label in zip(deserved, found, strict=True))
    return Moved(cell, len(found), wrong, left, _prediction(deserved), _prediction(found))


def _labels(run: StreamRun, partition: int) -> list[tuple[int, float, float]]:
    """For each example its place among all, the label that it deserves, and the one that was learned."""
    judge, log = run.judges[partition], run.logs[LOG, partition]
    shown = judge.shown
    keys = hash_texts([b"%d" % one.number for one in shown])
    deserved = dict(zip(keys, judge.is_positive, strict=True))
    return [
        (order, float(deserved[key]), label)
        for order, record in _records(log)
        for key, label in zip(record.id_hash.tolist(), record.label.tolist(), strict=True)
    ]


def _records(log: Log) -> list[tuple[int, ExampleRecord]]:
    records = [(entry.order, decode(entry.value)) for entry in log.entries if entry.value is not None]
    return [(order, record) for order, record in records if isinstance(record, ExampleRecord)]


def _prediction(labels: list[float]) -> float:
    bias = ((BIAS_KEY, 1.0),)
    examples = [Example(0, 0, i, 0, 0, label, 1.0, bias) for i, label in enumerate(labels)]
    return predict(published(fold(examples, DEFAULTS).state, DEFAULTS), bias)


def _is_nightly(cell: Cell) -> bool:
    return (cell.per_s, cell.healthy_min) != (10, 2)  # that one takes a second


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            cell,
            marks=[pytest.mark.nightly] * _is_nightly(cell),
            id=f"{cell.per_s:g} a second, {cell.healthy_min} min",
        )
        for cell in CELLS
        if cell.clicks >= KNOWN
    ],
)
def test_what_is_known_is_not_unlearned(cell: Cell) -> None:
    """With 50 clicks known, the prediction moves by less than a tenth, and then windows wait."""
    found = moved(cell)
    assert found.by < MOVES
    assert found.left > 0


@pytest.mark.thorough
def test_windows_wait_even_where_little_is_known() -> None:
    """After two clicks, or 24, a prediction moves by less than a tenth."""
    few = [moved(cell) for cell in CELLS if cell.clicks < KNOWN]
    assert [(one.cell.per_s, one.cell.healthy_min) for one in few] == [(0.1, 2), (0.1, 20)]
    assert all(one.by < MOVES for one in few)
    assert all(one.left > one.examples / 2 for one in few)


def test_the_oracle_of_dead_clicks_knows_a_label() -> None:
    """Where all clicks come, what is learned is what is deserved."""
    world = StreamWorld(hours=0.1, partitions=PARTITIONS, per_s=1, ctr=CTR)
    run = StreamRun(world, SETTINGS)
    assert run.run().left == 0
    labels = [label for p in range(PARTITIONS) for label in _labels(run, p)]
    assert {right == learned for _, right, learned in labels} == {True}
    clicks = sum(map(len, world.arrivals()[CLICKED]))
    assert 0.9 * clicks < sum(right for _, right, _ in labels) < clicks  # one in twenty comes after its window
