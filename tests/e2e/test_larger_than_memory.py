"""A learner whose model does not fit in `learner.memory`: the same bits as one whose model does, kills included."""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.table.bounded import BoundedWeightTable
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import Site, running, wait_until
from tests.e2e.variants import role, run_until_done, variant
from tests.scenarios import Message, Scenario, scenario
from tests.waiting import patience

MEMORY = "17MiB"
"""The least that FTRL-Proximal can work with; the table holds about 196,000 rows."""


def with_many_features() -> Scenario:
    """Ordinary traffic, each impression with 700 of 4 million tags, some of them much more often than others."""
    plain, rng = scenario("plain", 2), random.Random(5)

    def widened(message: Message) -> Message:
        assert message.value is not None
        tags = [rng.randrange(20_000 if rng.random() < 0.2 else 4_000_000) for _ in range(700)]
        event = {**json.loads(message.value), "tag": [f"t{tag}" for tag in tags]}
        return message._replace(value=json.dumps(event).encode())

    impressions = [[*map(widened, plain.before_sentinels(p)), *plain.sentinels(p)] for p in plain.impressions]
    return replace(plain, impressions=impressions)


def assert_scorer_has_the_weights(site: Site, learner: Learner) -> None:
    """A new scorer's replica holds every weight of the learner that is not 0, to float32, and no other."""
    weights: dict[int, float] = {}
    for rows in learner.table.items():
        published = learner.weights(rows.columns).astype(np.float32).tolist()
        weights.update(zip(rows.keys.tolist(), published, strict=True))
    with site.scorer() as scorer:
        scorer.wait_ready(patience())
        assert scorer.description["digest"] == f"{learner.digest():016x}"
        keys, found = scorer.largest_weights(scorer.weights)
    assert dict(zip(keys.tolist(), found.tolist(), strict=True)) == {k: w for k, w in weights.items() if w}


def tick_of_last_impression(site_scenario: Scenario) -> int:
    """Examples of the last impressions come later: more rows than may change before the next checkpoint."""
    parts = map(site_scenario.before_sentinels, site_scenario.impressions)
    last_ms = max(message.timestamp_ms for part in parts for message in part)
    return int(last_ms // site_scenario.settings["tick_ms"])


def fold_with_little_memory(site: Site, until_tick: int) -> None:
    """A run up to a tick, and in order to an end: rows leave memory, and some come back."""
    table = run_until_done(role(site.config, until_tick=until_tick)).learner.table
    assert isinstance(table, BoundedWeightTable)
    assert table.count > table.resident and table.evicted > 0 and table.fetched > 0


@pytest.mark.nightly
def test_a_learner_with_little_memory_ends_with_the_same_bits(make_site: MakeSite) -> None:
    """Stopped, killed after a checkpoint and started again, it ends with the digest of a learner without a bound, rows
    having left its memory and come back; a start reads no row; the scorer has its weights."""
    site = make_site(with_many_features(), learner={"memory": MEMORY}, snapshots={"shards": 2, "interval": "1s"})
    site.produce()
    with running(site.joiner()):
        fold_with_little_memory(site, tick_of_last_impression(site.scenario))
        with process_of(site, "learn") as process:
            process.wait_for('"checkpoint"')
            process.kill()
        wait_until(site.closed, "every tick closed")
    bounded = run_until_done(role(site.config, until_tick=site.end_tick)).learner
    whole = run_until_done(role(variant(site, "whole", learner={"memory": None}), until_tick=site.end_tick)).learner
    assert bounded.state_scalars() == whole.state_scalars()
    assert bounded.table.count == whole.table.count
    again = role(site.config, until_tick=site.end_tick)
    with closing(again.open()):
        assert isinstance(again.learner.table, BoundedWeightTable) and again.learner.table.resident == 0
        assert again.learner.digest_full() == whole.digest()
    assert_scorer_has_the_weights(site, whole)
