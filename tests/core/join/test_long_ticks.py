"""Ticks as long as `lateness`, or longer: they are made by the same rules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.core.join.join_histories import closed_by_log, random_history
from tests.core.join.plain_join import PlainJoin, plain
from tests.core.join.test_join import run_in_random_batches, single_ticks


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_ticks_as_long_as_lateness_are_made_by_the_same_rules(share: float) -> None:
    """Late is counted from the beginning of a tick, clicks are forgotten at its end: an impression has `lateness` at
    least, and up to a tick more, however long the tick is."""
    counts: Counter[str] = Counter()
    for seed in range(120):
        rng = random.Random(seed)
        history = random_history(rng)
        tick_ms = rng.choice([5, 10, 30])
        spec = replace(history.spec, tick_ms=tick_ms, lateness_ms=int(share * tick_ms))
        history = closed_by_log(replace(history, spec=spec), rng)
        oracle = PlainJoin(history.spec, history.impressions, history.clicks)
        _, outputs = run_in_random_batches(history, rng)
        for output in outputs:
            made = plain(output)
            assert made == single_ticks(oracle, output.cut), seed
            counts.update(made.counts)
    assert counts["late"] > 0 and counts["examples"] > 0
