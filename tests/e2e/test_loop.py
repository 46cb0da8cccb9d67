"""The whole loop on a real Kafka: from impressions and clicks to a scorer's prediction, equal to the oracle."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests import oracle
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import scenario


def expected_model(site: Site) -> oracle.Fold:
    """The oracle's model of every example up to the last tick that all partitions have closed."""
    last = site.last_tick()
    joined = site.scenario.expected()
    examples = [(e.tick, p, i, e) for p, j in enumerate(joined) for i, e in enumerate(j.examples) if e.tick <= last]
    return oracle.fold([e for *_, e in sorted(examples, key=lambda x: x[:3])], site.scenario.settings)


def state_of(learner) -> dict[int, tuple[float, float]]:  # type: ignore[no-untyped-def]
    """z and n by key."""
    found = {}
    for rows in learner.table.items():
        for key, columns in zip(rows.keys.tolist(), rows.columns.tolist(), strict=True):
            found[key] = tuple(columns)
    return found


@pytest.mark.parametrize("name", ["plain", "everything", "rich"])
def test_model_and_predictions_equal_the_oracle(name: str, kafka: str, tmp_path: Path) -> None:
    """The learner's z and n equal the oracle's to the last bit, and a scorer's predictions to float32."""
    site = Site(kafka, scenario(name), tmp_path / "state")
    site.produce()
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: learner.tick == site.last_tick(), "every tick folded")
    model = expected_model(site)
    assert state_of(learner.learner) == model.state
    assert f"{learner.learner.digest():016x}" == model.digest
    with site.scorer() as scorer:
        scorer.wait_ready(30)
        assert scorer.version == learner.tick
        weights = oracle.published(model.state, site.scenario.settings)
        for message in itertools.islice(itertools.chain(*site.scenario.impressions), 300):
            read = oracle.read_impression(oracle.Record(0, message.timestamp_ms, message.value), site.scenario.settings)
            if read.time_ms is not None:
                assert np.float32(scorer.predict(message.value).p_click) == np.float32(oracle.predict(weights, read.features))
