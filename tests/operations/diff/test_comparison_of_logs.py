"""Two logs of the same impressions compared: against a slow oracle that pairs the examples of each id one by one."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

from stream_learner.core.log.marks import GENESIS, ImpressionCounts, Mark, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.operations.diff import run
from stream_learner.operations.diff.differences import ComparedModel, Differences
from stream_learner.operations.diff.log_walk import NO_END, LogWalk
from stream_learner.operations.diff.matching import Matching
from tests.core.model.example_records import Example, as_record
from tests.suite.share import cases

NAMES = ("live", "again")
FIELDS = {"duplicate": "duplicates", "late": "late", "sampled out": "sampled_out", "dead": "dead"}


@dataclass(frozen=True)
class Shown:
    """An impression of one log: the tick that emitted it, its id, and the example it became or the outcome it had."""

    tick: int
    id_hash: int
    example: Example | None
    outcome: str = ""


@dataclass
class Log:
    """One log: its impressions by offset, and the last tick that it has."""

    shown: list[Shown]
    last_tick: int
    swapped: set[int] = field(default_factory=set)
    """Ticks whose examples are written the other way round."""

    def ticks(self) -> list[AcceptedTick]:
        """As rule R gives them: one for each tick with an impression, and empty ones at both ends."""
        found, begin = [], 0
        by_tick: dict[int, list[Shown]] = defaultdict(list)
        for one in self.shown:
            by_tick[one.tick].append(one)
        for tick in sorted({0, *by_tick, self.last_tick}):
            of_tick = by_tick.get(tick, [])
            rows = self.rows(tick)
            counts = Counter(FIELDS[one.outcome] for one in of_tick if one.example is None)
            begin += len(of_tick)
            mark = Mark(0, 1, tick, tick, begin, 0, 0, 1, *GENESIS)
            mark = replace(mark, counts=TickCounts(ImpressionCounts(len(of_tick), len(rows), **counts)))
            record = as_record([e for _, e in rows])
            record.id_hash = np.array([n for n, _ in rows], np.uint64)
            found.append(AcceptedTick(mark, 0, [(0, record)] if rows else []))
        return found

    def rows(self, tick: int) -> list[tuple[int, Example]]:
        """The ids and examples of a tick in the order of the log."""
        rows = [(one.id_hash, one.example) for one in self.shown if one.tick == tick and one.example is not None]
        return rows[::-1] if tick in self.swapped else rows

    def emitted_by(self, tick: int) -> int:
        """How many impressions were emitted by this tick and those before it."""
        return sum(one.tick <= tick for one in self.shown)


def random_log(rng: random.Random, ids: list[int], *, moved: float) -> Log:
    """The impressions of these ids as one joiner emits them: some late, some left out, some with another label."""
    shown, tick, behind = [], 5, 0
    for offset, id_hash in enumerate(ids):
        if rng.random() < moved:
            behind = rng.choice([0, 3, 30])
        tick = max(tick, 5 + offset // 3 + behind)
        label, outcome = float(offset % 5 == 0), rng.choice([*FIELDS]) if rng.random() < 0.05 else ""
        example = Example(((id_hash, 1.0),), label, rng.choice([1.0] * 30 + [2.0]), 1_000 * tick)
        example = replace(example, label=1.0 - label) if rng.random() < 0.05 else example
        shown.append(Shown(tick, id_hash, None if outcome else example, outcome))
    end = rng.randrange(len(ids) // 2, len(ids) + 1)
    shown = [one for one in shown[:end] if one.tick <= tick]
    swapped = {one.tick for one in shown if rng.random() < 0.02}
    return Log(shown, max(one.tick for one in shown) + rng.choice([0, 40]), swapped)


@dataclass
class Found:
    """What the oracle, or the comparison, has found."""

    counts: Counter[str] = field(default_factory=Counter)
    other_ticks: int = 0
    not_yet: list[int] = field(default_factory=lambda: [0, 0])
    outcomes: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))


def oracle(logs: tuple[Log, Log], begin: int, until: int) -> Found:
    """The n-th example of an id with the n-th; a pair counts if one of them is compared, or both sides of what is."""
    end, found = min(logs[0].last_tick, logs[1].last_tick, until), Found()
    places: list[dict[int, list[tuple[int, int, Example]]]] = []
    for log in logs:
        of_id: dict[int, list[tuple[int, int, Example]]] = defaultdict(list)
        for tick in sorted({one.tick for one in log.shown}):
            for row, (id_hash, example) in enumerate(log.rows(tick)):
                of_id[id_hash].append((tick, row, example))
        places.append(of_id)
    rows_of_pairs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for id_hash in {*places[0], *places[1]}:
        both = places[0].get(id_hash, []), places[1].get(id_hash, [])
        for (tick, row, example), (other_tick, other_row, other) in zip(*both, strict=False):
            if max(tick, other_tick) < begin or min(tick, other_tick) > end:
                continue
            found.counts["label"] += example.label != other.label
            found.counts["weight"] += example.weight != other.weight
            found.other_ticks += tick != other_tick
            if tick == other_tick:
                rows_of_pairs[tick].append((row, other_row))
        for side in (0, 1):
            for tick, _, _ in both[side][len(both[1 - side]) :]:
                if begin <= tick <= end:
                    yet = logs[side].emitted_by(tick) <= len(logs[1 - side].shown)
                    found.counts[f"only_in {NAMES[side]}"] += yet
                    found.not_yet[1 - side] += not yet
    for pairs in rows_of_pairs.values():
        partners = [partner for _, partner in sorted(pairs)]
        found.counts["order"] += partners != sorted(partners)
    return found


def compared(logs: tuple[Log, Log], begin: int, until: int, limit: int = 10_000) -> Differences:
    models = [ComparedModel(name, name, 1_000, "impressions", "clicks") for name in NAMES]
    differences = Differences((models[0], models[1]), limit)
    walks = LogWalk(iter(logs[0].ticks())), LogWalk(iter(logs[1].ticks()))
    run._compare_partition(0, walks, differences, 0, begin, until)
    return differences


@pytest.mark.parametrize("block_bytes", [1, 3_000, 1 << 24])
@pytest.mark.parametrize("seed", cases(range(40), range(14)))
def test_what_differs_is_what_pairing_one_by_one_finds(
    seed: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With repeats of ids, impressions in ticks far apart, a part of the ticks compared, and however much is paired at
    a time."""
    monkeypatch.setattr(run, "Matching", partial(Matching, block_bytes=block_bytes))
    rng = random.Random(seed)
    ids = [rng.randrange(1, rng.choice([40, 10**9])) for _ in range(200)]
    moved = rng.choice([0.0, 0.05, 0.3])
    logs = random_log(rng, ids, moved=moved), random_log(rng, ids, moved=moved)
    begin, until = rng.choice([(5, NO_END), (5, 40), (20, 50), (60, NO_END)])
    found, expected = compared(logs, begin, until), oracle(logs, begin, until)
    assert +found.counts == +expected.counts
    assert (found.other_ticks, found.not_yet) == (expected.other_ticks, expected.not_yet)
    assert len(found.listed) >= found.counts["label"]


def test_impressions_in_other_ticks_hide_nothing() -> None:
    """Of 1,926 impressions, 1,900 lie in other ticks, 57 have other labels, and one log has left out three."""
    rng = random.Random(1)
    ids = [rng.getrandbits(60) for _ in range(1_926)]
    live = [Shown(100 + n // 4, i, Example(((i, 1.0),), 0.0, 1.0, 100 + n // 4)) for n, i in enumerate(ids)]
    again = [one if n < 26 else replace(one, tick=one.tick + 300) for n, one in enumerate(live)]
    again = [replace(o, example=replace(o.example, log_time_ms=o.tick)) for o in again if o.example is not None]
    for n in range(30, 1_926, 33)[:57]:
        again[n] = replace(again[n], example=replace(again[n].example, label=1.0))
    for n, outcome in ((500, "late"), (700, "late"), (900, "sampled out")):
        live[n] = replace(live[n], example=None, outcome=outcome)
    found = compared((Log(live, 2_000), Log(again, 2_000)), 0, NO_END)
    labels = sum(
        a.example.label != b.example.label for a, b in zip(live, again, strict=True) if a.example and b.example
    )
    assert +found.counts == {"label": labels, "only_in again": 3}
    assert found.other_ticks == 1_900 - 3
    assert found.outcomes == ({"late": 2, "sampled out": 1}, {})
    assert found.report()["total"] == labels + 3


def test_who_waits_beyond_the_bound_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first; what is left is paired as ever, and every example is told once."""
    monkeypatch.setattr(run, "Matching", partial(Matching, block_bytes=1, waiting_bytes=2_000))
    one = Example(((7, 1.0),), 0.0)
    early = [Shown(5 + n, n + 1, one) for n in range(100)]
    found = compared((Log(early, 500), Log([replace(o, tick=o.tick + 200) for o in early], 500)), 0, NO_END)
    only = [found.counts[f"only_in {name}"] for name in NAMES]
    assert only[0] == only[1] > 50
    assert found.outcomes == ({"not known": only[0]}, {"not known": 1, "waited for in vain": only[1] - 1})
    assert found.other_ticks == 100 - only[0] > 0
    assert {entry["id_hash"] for entry in found.listed} == {f"0x{n + 1:016x}" for n in range(only[0])}
