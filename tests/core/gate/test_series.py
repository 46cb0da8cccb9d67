"""One bound against the oracle, and what `take`, `accept` and `skip` mean."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from stream_learner.core.gate.bounds import Alternative, Bound, Excess
from stream_learner.core.gate.series import Series
from stream_learner.core.gate.steps import dispersion
from tests.oracles.gate import Count, PlainBound, evidence, totals

MINUTE_MS = 60_000


def series(test: Alternative, **settings: float) -> Series:
    return Series(
        [Bound("x", (test,))],
        tick_ms=10_000,
        false_alarms=settings.get("false_alarms", 0.01),
        warm_up_ms=int(settings.get("warm_up_ms", 600_000)),
    )


def judge(mine: Series, number: int, at_ms: int, found: float, exposure: float, ms: float = 10_000.0) -> Excess | None:
    """Judge a tick of the one bound there is."""
    out = mine.judge(number, at_ms, [(found, exposure)], float(ms), False)
    assert out is None or out[0] == 0
    return None if out is None else out[1]


def row(mine: Series) -> Any:
    """What the one bound has learned."""
    return mine._rows[0]


def share(mine: Series) -> float:
    """What is usual."""
    return float(row(mine).fast_found / row(mine).fast_exposure)


def counts(seed: int, share: float, until: int, then: float) -> list[Count]:
    """Ticks of ten seconds, some left out, whose share of found events changes at one of them."""
    rng, at_ms, out = random.Random(seed), 0, []
    for number in range(until + 150):
        ms = 10_000 * rng.choice([1, 1, 1, 2, 5])
        at_ms += ms
        exposure = rng.randrange(1, 60)
        now = share if number < until else then
        out.append(Count(at_ms, sum(rng.random() < now for _ in range(exposure)), exposure, ms))
    return out


DEAD, HALF, MANY = Alternative(0.6, 0.05), Alternative(0.9, 0.4), Alternative(2.0, 4.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("test", "then"), [(DEAD, 0.0), (HALF, 0.06), (MANY, 0.9), (MANY, 0.2)])
def test_a_bound_judges_every_tick_as_the_oracle_does(test: Alternative, then: float, seed: int) -> None:
    """Estimates, evidence, dispersion and limit, from the whole list of ticks at every tick."""
    mine, oracle = series(test), PlainBound(test.usual, test.wrong, 0.01, 600_000)
    held = 0
    for number, count in enumerate(counts(seed, 0.2, 90, then)):
        out = judge(mine, number, count.at_ms, count.found, count.exposure, count.ms) is not None
        expected, value = oracle.step(count)
        assert out == expected, (number, value)
        (mine.skip if out else mine.take)()
        held += out
        if not out:
            assert mine._scores[0, 0].value == pytest.approx(value, rel=1e-9, abs=1e-9)
            found, exposure, ms = totals(oracle.merges, oracle.keeps)
            if not held:
                assert (row(mine).fast_found, row(mine).fast_exposure, row(mine).fast_ms) == pytest.approx(
                    (found, exposure, ms)
                )
            assert held or dispersion(mine._bounds[0], row(mine)) == pytest.approx(oracle.dispersion())
        if held:
            break
    assert bool(held) == (then != 0.2)


def test_evidence_is_the_largest_sum_of_the_last_ticks() -> None:
    """What came before the change does not count against it."""
    assert evidence([(5, 1.0)] * 10 + [(0, 1.0)] * 10, 0.6, 0.05) == pytest.approx(5.5)
    assert evidence([(1, 1.0)] * 10, 0.6, 0.05) == 0.0


def held(mine: Series) -> int:
    """Take ticks with a click each, then ticks without, up to the first that is out of bounds; its number."""
    for number in range(2_000):
        found = float(number < 400)
        if judge(mine, number, number * 10_000, found, 10.0) is not None:
            return number
        mine.take()
    raise AssertionError("never out of bounds")


def test_to_judge_changes_nothing() -> None:
    """A learner that is started anew while it holds judges the tick again."""
    mine = series(Alternative(0.6, 0.05))
    number = held(mine)
    before = mine.state(0)
    first = judge(mine, number, number * 10_000, 0.0, 10.0)
    assert judge(mine, number, number * 10_000, 0.0, 10.0) == first is not None
    assert mine.state(0) == before


def test_a_tick_that_is_skipped_enters_no_estimate() -> None:
    """And what was learned on suspicion before it is dropped with it, with half of the evidence."""
    mine = series(Alternative(0.6, 0.05))
    held(mine)
    before = share(mine), mine._scores[0, 0].value / 2.0
    mine.skip()
    assert (share(mine), mine._scores[0, 0].value) == before
    assert row(mine).waiting_exposure == 0


def test_behind_a_span_left_out_what_is_sound_is_learned_and_what_is_still_wrong_is_held_sooner() -> None:
    """A sound tick that is a little low by chance; ticks without a click, half as many as at first."""
    mine = series(Alternative(0.6, 0.05))
    first = held(mine)
    mine.skip()
    assert judge(mine, first + 1, (first + 1) * 10_000, 0.8, 10.0) is None
    later = first + 1
    while judge(mine, later, later * 10_000, 0.0, 10.0) is None:
        mine.take()
        later += 1
    assert later - first < (first - 400) * 0.75


def test_a_tick_that_is_accepted_is_what_is_usual_from_then_on() -> None:
    """The bound is learned anew, and does not hold while it is."""
    mine = series(Alternative(0.6, 0.05))
    number = held(mine)
    mine.accept()
    for later in range(number + 1, number + 500):
        assert judge(mine, later, later * 10_000, 0.0, 10.0) is None
        mine.accept()
    assert row(mine).fast_found == 0


def test_suspicion_that_lasts_too_long_becomes_what_is_usual() -> None:
    """Where ticks out of bounds are learned all the same, as with `warn`, the bound is quiet again after hours."""
    mine = series(Alternative(0.6, 0.05))
    number = held(mine)
    verdicts = []
    for later in range(number, number + 4_000):
        verdicts.append(judge(mine, later, later * 10_000, 0.1, 10.0) is not None)
        mine.take()
    assert any(verdicts[:100]) and not any(verdicts[-500:])


@pytest.mark.parametrize("at", [0, 1, 57, 250, 700, 1_500])
def test_a_state_goes_on_to_the_same_bits(at: int) -> None:
    """Through JSON, with days that end, gaps, and ticks without exposure."""
    bound = Bound(
        "x",
        (Alternative(0.6, 0.05, lenient=True), Alternative(0.9, 0.4, fine=True)),
        day=Alternative(0.85, 0.4),
        capped=True,
    )
    settings = {"tick_ms": 600_000, "false_alarms": 0.01, "warm_up_ms": 3_600_000}
    mine, other = (Series([bound], **settings) for _ in range(2))
    rng = random.Random(3)
    for number in range(2_000):
        if number == at:
            other.restore(0, json.loads(json.dumps(mine.state(0))))
        exposure = float(rng.choice([0, 40, 60]))
        found = float(sum(rng.random() < (0.2 if number < 1_200 else 0.13) for _ in range(int(exposure))))
        given = number, number * 600_000, [(found, exposure)], 600_000.0, number % 97 == 0
        verdicts = [each.judge(*given) for each in ((mine, other) if number >= at else (mine,))]
        assert len(set(verdicts)) == 1
        for each in (mine, other) if number >= at else (mine,):
            each.take()
    assert mine.state(0) == other.state(0)
