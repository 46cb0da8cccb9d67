"""Few clicks and one late among them: nothing punctual is forgotten before its impression is decided.

Worlds of 50 to 2,000 clicks a day in a partition, of which 0.3 to 10 % come an hour late, with and without a night.
`lateness` is ten minutes, so the row of a click takes longer than that in most of them. By log time everything is
there before it is joined; by the clock each record is read when it comes, and windows close two seconds later.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from stream_learner.core.join.state import JoinState, TickOutput
from tests.core.join.test_join_worlds import clicks_of, emitted, impressions_of, spec_of, wanted
from tests.oracles.events import Click, Impression, settings
from tests.oracles.join import Joined, Mark, in_span, replay

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
GRACE_MS = 2_000
SMALL = settings(window_ms=30 * MINUTE_MS, skew_ms=5_000, tick_ms=MINUTE_MS, dedupe_ms=HOUR_MS)
CLICKED = 0.3
"""The share of impressions that are clicked."""
LAST_ID = 10**9
"""The first id of events that let log time close the world."""


class SparseWorld(NamedTuple):
    """Records in the order in which they come, the moments at which they do, and the offsets of the late clicks."""

    impressions: list[Impression]
    clicks: list[Click]
    impressions_at_ms: list[int]
    clicks_at_ms: list[int]
    late: set[int]


def sparse_world(rng: random.Random, clicks: int, clicks_a_day: int, late_share: float, night: bool) -> SparseWorld:
    """So many clicks and what was shown for them, and a day later events that close all windows."""
    shown: list[tuple[float, float, int]] = []  # when it comes, its time, its id
    clicked: list[tuple[float, float, int]] = []
    late_ids: set[int] = set()
    rate = clicks_a_day / CLICKED / DAY_MS * (1.5 if night else 1)
    time = 40.0 * DAY_MS
    while len(clicked) < clicks:
        time += rng.expovariate(rate)
        if night and time % DAY_MS < 8 * HOUR_MS:
            continue
        number = len(shown) + 1
        shown.append((time + rng.expovariate(1 / 300), time, number))
        if rng.random() < CLICKED:
            at = time + rng.choice([rng.expovariate(1 / 20_000), rng.uniform(0, 28 * MINUTE_MS)])
            late_ids |= {number} if rng.random() < late_share else set()
            clicked.append((at + rng.expovariate(1 / 300) + (HOUR_MS if number in late_ids else 0), at, number))
    end = time + 2 * DAY_MS
    last = [(end, end, LAST_ID + n) for n in range(SMALL["agree"])]
    shown, clicked = sorted(shown) + last, sorted(clicked) + last
    return SparseWorld(
        [Impression(offset, int(time), number, 1.0, ()) for offset, (_, time, number) in enumerate(shown)],
        [Click(offset, int(time), number, 1.0) for offset, (_, time, number) in enumerate(clicked)],
        [int(at) + 1 for at, _, _ in shown],
        [int(at) + 1 for at, _, _ in clicked],
        {offset for offset, (_, _, number) in enumerate(clicked) if number in late_ids},
    )


def by_log_time(world: SparseWorld) -> list[TickOutput]:
    """All is read, then joined."""
    join, outputs = JoinState(spec_of(SMALL), impression_start=0, click_start=0), []
    join.add_impressions(*impressions_of(world.impressions))
    join.add_clicks(*clicks_of(world.clicks))
    while cut := join.next_cut(None, None):
        outputs.append(join.emit(cut))
    return outputs


def by_clock(world: SparseWorld) -> list[TickOutput]:
    """Both partitions are read to their ends at each moment at which a record comes or a window ends."""
    join, outputs = JoinState(spec_of(SMALL), impression_start=0, click_start=0), []
    window = SMALL["window_ms"]
    moments = {*world.impressions_at_ms, *world.clicks_at_ms}
    moments |= {imp.time_ms + window + MINUTE_MS + GRACE_MS for imp in world.impressions if imp.time_ms is not None}
    i = c = 0
    for now_ms in sorted(moments):
        upto_i, upto_c = bisect_right(world.impressions_at_ms, now_ms), bisect_right(world.clicks_at_ms, now_ms)
        if upto_i > i:
            join.add_impressions(*impressions_of(world.impressions[i:upto_i]))
        if upto_c > c:
            join.add_clicks(*clicks_of(world.clicks[c:upto_c]))
        i, c = upto_i, upto_c
        cut = join.next_cut(now_ms - GRACE_MS, now_ms - GRACE_MS, allow_empty=True, together=True)
        assert cut is not None
        outputs.append(join.emit(cut))
    return outputs


def marks_of(outputs: Sequence[TickOutput], rules: int = 4) -> list[Mark]:
    """The marks of these outputs, where the ticks of the log are those of stream time."""
    cuts = [output.cut for output in outputs]
    return [Mark(c.first_tick, c.last_tick, c.next_impression, c.click_cursor, rules=rules) for c in cuts]


def punctual(world: SparseWorld, joined: Sequence[Joined]) -> Counter[str]:
    """The outcomes of the punctual clicks in the span of an impression that is an example, and their wrong labels."""
    examples = {e.id_hash: e for j in joined for e in j.examples}
    outcomes = {offset: outcome for j in joined for offset, outcome in j.outcome_of_click.items()}
    found: Counter[str] = Counter()
    for click in world.clicks[: -SMALL["agree"]]:
        example = examples.get(click.id_hash)
        if example and click.offset not in world.late and in_span(click, world.impressions[example.offset], SMALL):
            found[outcomes.get(click.offset, "waiting")] += 1
            found["wrong labels"] += example.label == 0
    return found


@pytest.mark.parametrize("clock", [False, True], ids=["by log time", "by the clock"])
@pytest.mark.parametrize(
    ("clicks", "rates", "late_shares"),
    [
        (120, (50, 500), (0.1,)),
        pytest.param(600, (50, 200, 500, 2000), (0.003, 0.01, 0.03, 0.1), marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
def test_no_punctual_click_is_lost(
    clock: bool, clicks: int, rates: tuple[int, ...], late_shares: tuple[float, ...]
) -> None:
    """Each is matched, and its impression is a positive. By the rules of version 2 many were lost in these worlds."""
    before = Counter[str]()
    for n, (rate, share, night) in enumerate((r, s, night) for r in rates for s in late_shares for night in (0, 1)):
        world = sparse_world(random.Random(n), clicks, rate, share, bool(night))
        outputs = by_clock(world) if clock else by_log_time(world)
        joined = replay(world.impressions, world.clicks, marks_of(outputs), SMALL)
        made = [emitted(output, mark) for output, mark in zip(outputs, marks_of(outputs), strict=True)]
        assert made == [wanted(j) for j in joined]
        found = punctual(world, joined)
        assert found["matched"] > 0.8 * clicks
        assert +found == Counter(matched=found["matched"]), f"{rate} clicks a day, {share} late, night {night}"
        before += punctual(world, replay(world.impressions, world.clicks, marks_of(outputs, rules=2), SMALL))
    assert before["orphans"] > len(rates) * len(late_shares)
