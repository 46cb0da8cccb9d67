"""Verdicts are a function of the examples and marks, however they are cut, ordered, handed out or resumed."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from stream_learner.core.gate.gate import BOUNDS, Gate, GatePolicy, TickSums, Verdict
from stream_learner.core.gate.names import BOUNDS as NAMES
from tests.core.gate.log_ticks import Example, accepted, example, mark, predictions

TICK_MS = 60_000
SLICES = (("a", 7), ("b", 12), ("absent", 1_000))


def gate(**settings: object) -> Gate:
    return Gate(GatePolicy(**settings), tick_ms=TICK_MS, slices=SLICES)  # type: ignore[arg-type]


def traffic(seed: int, ticks: int, bad_from: int, share: float = 0.2) -> dict[int, list[list[Example]]]:
    """Examples of two partitions by tick; some ticks have none; from one tick on nobody clicks."""
    rng = random.Random(seed)
    out = {}
    for tick in range(ticks):
        if rng.random() < 0.8:
            now = share if tick < bad_from else 0.0
            out[tick] = [[example(rng, now) for _ in range(rng.randrange(1, 12))] for _ in range(2)]
    return out


def verdicts(mine: Gate, ticks: dict[int, list[list[Example]]], records: int = 1, restart: int = 0) -> list[object]:
    """Every verdict, with the state after it; what is out of bounds is skipped."""
    out: list[object] = []
    for number, (tick, examples) in enumerate(ticks.items()):
        if restart and number % restart == 0:
            other = gate()
            other.restore(json.loads(json.dumps(mine.state())))
            mine = other
        verdict = mine.judge(tick, accepted(tick, examples, records), predictions)
        (mine.take if verdict is None else mine.skip)()
        out.append((verdict, json.dumps(mine.state(), sort_keys=True)))
    return out


def test_the_same_examples_give_the_same_verdicts_however_they_are_cut_and_ordered() -> None:
    """Sums are exact, and the sample goes by ids."""
    ticks = traffic(1, 260, 200)
    rng = random.Random(5)
    mixed = {tick: [rng.sample(part, len(part)) for part in parts] for tick, parts in ticks.items()}
    expected = verdicts(gate(), ticks)
    assert verdicts(gate(), ticks, records=3) == expected
    assert verdicts(gate(), mixed, records=2) == expected
    assert any(verdict for verdict, _ in expected)  # type: ignore[misc]


@pytest.mark.parametrize("every", [1, 7, 50])
def test_a_gate_that_goes_on_from_its_state_says_the_same(every: int) -> None:
    """The state is exact, and JSON keeps it."""
    ticks = traffic(2, 260, 200)
    assert verdicts(gate(), ticks, restart=every) == verdicts(gate(), ticks)


def test_marks_without_examples_count_with_the_next_tick_however_they_are_handed_out() -> None:
    """Which of them are handed out together depends on when they were read."""
    alone, together = gate(), gate()
    tick = accepted(9, [[example(random.Random(1), 0.5) for _ in range(20)]])
    empty = [mark(1, 3, orphans=2), mark(2, 4, first=2, late=1), mark(1, 8, dead=4)]
    for one in empty:
        alone.count(one)
    for one in empty[:2]:
        together.count(one)
    alone.judge(9, tick)
    last = type(tick[0])(empty[2], 0, [])
    together.judge(9, [*tick, last])
    alone.take()
    together.take()
    assert alone.state() == together.state()


def test_a_tick_that_is_held_is_no_part_of_the_state() -> None:
    """A checkpoint that is written while the learner holds has the positions before the tick, and so has the gate."""
    mine = gate()
    for tick, examples in traffic(3, 300, 200).items():
        mine.count(mark(3, tick - 1, orphans=1))
        before = mine.state()
        verdict = mine.judge(tick, accepted(tick, examples), predictions)
        if verdict is not None:
            break
        mine.take()
    assert verdict is not None and verdict.bound == "positives" and verdict.found < verdict.low < verdict.expected
    assert mine.state() == before
    again = gate()
    again.restore(before)
    assert again.judge(tick, accepted(tick, examples), predictions) == verdict


def test_a_span_left_out_leaves_the_estimates_as_they_were() -> None:
    """Ticks that are skipped one after the other change nothing but the tick that was passed."""
    mine = gate()
    estimates: list[object] = []
    for tick, examples in traffic(4, 400, 200).items():
        verdict = mine.judge(tick, accepted(tick, examples), predictions)
        if verdict is None and not estimates:
            mine.take()
            continue
        mine.skip()
        estimates.append({name: series["estimates"] for name, series in mine.state()["series"].items()})
    assert len(estimates) > 100
    assert all(after == estimates[0] for after in estimates)


def test_a_verdict_says_in_words_what_is_wrong() -> None:
    """What was found, what is usual, and since when."""
    low = Verdict("positives", "site=news", 3.0, 40.0, 12.5, float("inf"), 77)
    assert low.message == ("too few examples with a click of site=news since tick 77: 3, usual are 40, at least 12.5")
    high = Verdict("volume", "", 3e6, 1e5, 0.0, 1.5e6, 5)
    assert high.message == "too many examples for the time since tick 5: 3e+06, usual are 100000, at most 1.5e+06"


def test_bounds_that_are_ignored_are_not_judged() -> None:
    """Without any bound nothing is out of bounds."""
    assert tuple(bound.name for bound in BOUNDS) == NAMES
    mine = gate(ignore=frozenset(NAMES))
    found = Counter(
        mine.judge(tick, accepted(tick, examples)) is None and mine.take() is None
        for tick, examples in traffic(3, 300, 200).items()
    )
    assert set(found) == {True}


def test_to_take_without_having_judged_is_refused() -> None:
    """Nothing could be taken."""
    mine = gate()
    for end in (mine.take, mine.accept, mine.skip):
        with pytest.raises(ValueError, match="`judge` comes first"):
            end()


def test_sums_of_strange_numbers_stay_whole() -> None:
    """Weights and predictions that are no numbers are left out; examples like that are not learned either."""
    odd = [(1, 1.0, float("inf"), (3,)), (2, 0.0, float("nan"), (4,)), (3, 1.0, 1e300, (5,)), (4, 0.0, 1.0, (6,))]
    mine = gate()
    mine.judge(0, accepted(0, [odd]), lambda part: predictions(part) * float("nan"))
    mine.take()
    for series in mine.state()["series"].values():
        assert all("nan" not in text for part in series["estimates"] for text in part)


def test_negatives_that_were_sampled_out_are_examples_too() -> None:
    """So another `keep_negatives` does not look like another share of clicks."""
    one = mark(0, 1, [example(random.Random(1), 0.5) for _ in range(10)])
    counts = one.counts._replace(impressions=one.counts.impressions._replace(read=60, sampled_out=50))
    sums = TickSums.of_marks([replace(one, counts=counts), one])
    assert (sums.shown, sums.positives, sums.read) == (70, 2 * one.counts.impressions.positives, 70)


def _fed(gate: Gate, rng: random.Random, ticks: range, share: float = 0.2) -> None:
    """Ten examples a tick in each of two partitions, whose stream time keeps up."""
    for tick in ticks:
        assert gate.judge(tick, accepted(tick, [[example(rng, share) for _ in range(10)] for _ in range(2)])) is None
        gate.take()


@pytest.mark.parametrize("waits", [(0, 1), (1,)], ids=["all", "one of two"])
def test_windows_that_waited_and_close_with_one_tick_are_no_flood(waits: tuple[int, ...]) -> None:
    """Five minutes of windows close at once after a silence. Had no stream time been told, it would be a flood."""
    verdicts = []
    for told in (True, False):
        rng, gate = random.Random(5), Gate(GatePolicy(warm_up_ms=300_000), tick_ms=1_000)
        _fed(gate, rng, range(103_000, 104_000))
        last = 104_000 + 299
        for tick in range(104_000, last):
            for partition in waits:
                gate.count(replace(mark(partition, tick), stream_tick=103_999 if told else tick))
            others = [[] if p in waits else [example(rng, 0.2) for _ in range(10)] for p in range(2)]
            going = [one for one in accepted(tick, others) if one.mark.partition not in waits]
            if going:
                assert gate.judge(tick, going) is None
                gate.take()
        waited = [[example(rng, 0.2) for _ in range(3_000 if p in waits else 10)] for p in range(2)]
        verdicts.append(gate.judge(last, accepted(last, waited)))
    assert verdicts[0] is None
    if len(waits) == 1:
        assert verdicts[1] is not None and verdicts[1].bound == "volume"


@pytest.mark.parametrize("told", [True, False])
def test_a_mark_that_closes_the_windows_of_hours_is_no_flood(told: bool) -> None:
    """As where a joiner begins with days that are there already. The same examples in a second would be a flood."""
    rng, gate = random.Random(5), Gate(GatePolicy(warm_up_ms=300_000), tick_ms=1_000)
    for tick in range(103_000, 104_000):
        assert gate.judge(tick, accepted(tick, [[example(rng, 0.2)] for _ in range(2)])) is None
        gate.take()
    last = 104_000 + 7_999
    parts = accepted(last, [[example(rng, 0.2) for _ in range(8_000)] for _ in range(2)])
    first = 104_000 if told else last
    found = gate.judge(last, [replace(part, mark=replace(part.mark, first_tick=first)) for part in parts])
    assert (found is None) == told
    assert told or (found is not None and found.bound == "volume")
