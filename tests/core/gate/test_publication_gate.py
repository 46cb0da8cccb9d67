"""What may be published: all that ordinary days bring, and no model that has learned what cannot be."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import orjson
import pytest

from stream_learner.core.gate import publication
from stream_learner.core.gate.publication import (
    CALIBRATION,
    ENTROPY,
    LOSS,
    RESERVOIR,
    Limits,
    PublicationGate,
    Sums,
    Usual,
)
from stream_learner.core.model.optimizers import FtrlProximal
from tests.core.gate.published_world import EVERY, HOUR, POISONS, TICK_MS, World
from tests.suite.share import cases

MINUTE = 60_000 // TICK_MS


def stored(gate: PublicationGate) -> Any:
    """The state as a checkpoint gives it back."""
    return orjson.loads(orjson.dumps(gate.state()))


@pytest.fixture(scope="module")
def warm() -> World:
    """A world after two hours, in which nothing was held."""
    world = World(seed=3).run(2 * HOUR)
    assert world.verdicts == []
    return world


@pytest.mark.thorough
@pytest.mark.parametrize("per_tick", cases([0.5, 3.0, 20.0], [20.0], "nightly"))
def test_a_day_holds_nothing(per_tick: float) -> None:
    """A click rate that doubles and halves within a day, from the first example of the model on; a small site too."""
    assert World(seed=1, per_tick=per_tick, season=0.7).run(24 * HOUR).verdicts == []


@pytest.mark.parametrize("poison", POISONS)
def test_poison_is_held_within_minutes_and_stays_held(poison: str) -> None:
    """Nothing is published from then on while it lasts."""
    world = World(seed=10).run(2 * HOUR)
    assert world.verdicts == []
    began = world.tick
    world.run(HOUR // 2, poison)
    first = world.verdicts[0][0]
    assert first - began <= 3 * MINUTE, world.verdicts[0]
    assert len(world.verdicts) == (world.tick - first) // MINUTE + 1
    assert world.gate.since_tick == first


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("published", [0, 3])
def test_poison_is_held_after_a_backlog_that_was_folded_in_seconds(poison: str, published: int) -> None:
    """What is usual is learned by log time, however often a model was published meanwhile."""
    world = World(seed=10, every=HOUR if published else 10**9)
    world.run(3 * HOUR)
    assert world.verdicts == []
    world.every, began = EVERY, world.tick
    world.run(HOUR // 2, poison)
    assert world.verdicts and world.verdicts[0][0] - began <= 10 * MINUTE


def test_poison_at_the_end_of_a_backlog_is_held() -> None:
    """It is not what is usual, though nothing was published before it."""
    world = World(seed=10, every=10**9)
    world.run(2 * HOUR)
    world.run(HOUR // 4, "flipped labels")
    world.publish()
    assert [held.bound for _, held in world.verdicts] == ["normalized_entropy"]


def test_a_step_that_is_far_too_large_is_held_at_once() -> None:
    """The learning rate of an optimizer is a thousand times what it was."""
    world = World(seed=4).run(2 * HOUR)
    began = world.tick
    world.relearn(FtrlProximal(alpha=50.0, beta=0.0))
    world.run(5 * MINUTE)
    assert world.verdicts[0][0] - began <= MINUTE


def test_a_model_that_is_as_it_was_published_is_let_through() -> None:
    """Poison of a few minutes, and hours of good examples after it: nobody has to say anything."""
    world = World(seed=5).run(2 * HOUR)
    world.run(5 * MINUTE, "flipped labels")
    assert world.gate.held is not None
    world.run(8 * HOUR)
    assert world.gate.held is None


def test_what_was_accepted_is_published_and_everything_begins_anew() -> None:
    """No clicks come any more, and a person says that it is right."""
    world = World(seed=6).run(2 * HOUR)
    world.run(HOUR // 2, "dead clicks")
    assert world.gate.held is not None
    world.gate.accept(world.tick, world.predictions())
    world.verdicts.clear()
    world.run(4 * HOUR, "dead clicks")
    assert world.verdicts == []


def test_a_gate_that_was_stored_goes_on_as_it_was() -> None:
    """Every few minutes, and in the middle of poison: the same verdicts, and the hold itself is remembered."""
    world, again = (World(seed=8).run(2 * HOUR) for _ in range(2))
    for poison in ["", "", "", "dead clicks", "dead clicks", "dead clicks"]:
        state = stored(again.gate)
        again.gate = PublicationGate(tick_ms=TICK_MS)
        again.gate.restore(state)
        assert stored(again.gate) == state
        assert again.gate.held == world.gate.held
        for one in (world, again):
            one.run(4 * MINUTE, poison)
    assert world.verdicts == again.verdicts != []


def test_the_reservoir_is_bounded_and_small_on_disk(warm: World) -> None:
    """So that a checkpoint does not grow by it."""
    assert 64 <= sum(map(len, warm.gate.reservoir)) <= RESERVOIR
    assert len(orjson.dumps(warm.gate.state())) < 100_000


@pytest.mark.parametrize("damage", [{}, {"usual": 3}, {"reservoir": [[1, [1, 2], "!"]]}, {"marks": [["x"]]}])
def test_a_state_that_is_none_is_refused(warm: World, damage: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        PublicationGate(tick_ms=TICK_MS).restore({**stored(warm.gate), **damage} if damage else {})


def test_numbers_that_are_not_finite_neither_hold_nor_spoil_the_means() -> None:
    """Sums and predictions that overflowed: what cannot be stored as JSON never enters."""
    world = World(seed=9).run(2 * HOUR)
    before = world.predictions()
    for wrong in (math.nan, math.inf, -math.inf):
        sums, predictions = Sums(wrong, wrong, wrong, wrong), [np.full(len(one), wrong) for one in before]
        world.gate.judge(world.tick, sums, predictions)
        world.gate.passed(world.tick + 100 * MINUTE, sums, predictions)
        assert stored(world.gate) == world.gate.state()


def test_the_running_mean_is_that_of_the_last_windows() -> None:
    """The first ones by their plain mean, then each weighs as one of `MEMORY`."""
    rng = random.Random(2)
    usual, values = Usual(), [rng.random() for _ in range(publication.MEMORY)]
    for value in values:
        usual.learn(value)
    mean = sum(values) / len(values)
    assert usual.mean == pytest.approx(mean)
    usual.learn(math.nan)
    assert usual.count == publication.MEMORY
    usual.learn(1.0 + usual.mean)
    assert usual.mean == pytest.approx(mean + 1.0 / publication.MEMORY)


def test_a_limit_is_the_widest_of_its_parts_and_never_beyond_the_most() -> None:
    usual = Usual(1.0, 0.1, 9)
    assert usual.limit(Limits(1.1, 0.0)) == pytest.approx(1.8)
    assert usual.limit(Limits(3.0, 0.0)) == 3.0
    assert usual.limit(Limits(1.1, 1.5)) == 2.5
    assert usual.limit(Limits(3.0, 0.0), scale=2.0) == 6.0
    assert usual.limit(Limits(3.0, 0.0, most=4.0), scale=2.0) == 4.0


@pytest.mark.parametrize(
    ("found", "of", "predicted", "held"),
    [
        (65, 77, 58.0, False),
        (95, 97, 80.0, False),
        (17, 211, 51.0, False),
        (65, 130, 60.0, True),
        (150, 200, 140.0, True),
    ],
)
def test_entropy_is_held_only_where_both_labels_were_found(
    found: float, of: float, predicted: float, held: bool
) -> None:
    """Ten minutes of one user who likes everything, or nothing: by what they end with, the best constant is better than
    any model. Their loss is what is usual; only the entropy that it is divided by is not. With as many of both labels
    as make a figure, the same entropy is held.
    """
    gate, rate = PublicationGate(tick_ms=TICK_MS), found / of
    usual = {ENTROPY: [1.008, 0.01, 10], LOSS: [0.6, 0.01, 10], CALIBRATION: [0.0, 0.0, 10]}
    gate.restore({**stored(gate), "usual": usual})
    loss = -1.498 * (rate * math.log(rate) + (1.0 - rate) * math.log(1.0 - rate)) * of
    before = Sums(1e4, 5e3, 5e3, 6e3)
    gate.judge(1, before, [])
    verdict = gate.judge(
        1 + 10 * MINUTE, Sums(*(a + b for a, b in zip(before, (of, found, predicted, loss), strict=True))), []
    )
    assert (verdict is not None and verdict.bound == ENTROPY) == held
    assert verdict is None or verdict.limit == pytest.approx(1.26)


@pytest.mark.parametrize("predicted", [5.0, 15.0, 25.0, 60.0])
def test_calibration_is_held_only_where_it_cannot_be_chance(predicted: float) -> None:
    """Minutes without a single click: held once so many were predicted that chance is out of the question."""
    gate = PublicationGate(tick_ms=TICK_MS)
    gate.restore({**stored(gate), "usual": {CALIBRATION: [0.0, 0.0, 10]}})
    gate.judge(1, Sums(1e4, 1e3, 1e3, 1.0), [])
    held = gate.judge(1 + 5 * MINUTE, Sums(2e4, 1e3, 1e3 + predicted, 2.0), [])
    assert (held is not None) == (2.0 * predicted > publication.DEVIANCE)
