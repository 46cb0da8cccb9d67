"""The whole loop on a real Kafka: from impressions and clicks to a scorer's prediction, equal to the oracle."""

from __future__ import annotations

import pytest

from tests.e2e.checks import (
    assert_balance,
    assert_log_equals,
    assert_model_equals,
    assert_model_is_near,
    assert_predictions_equal,
    expected_fold,
)
from tests.e2e.conftest import MakeSite
from tests.e2e.site import running, wait_until
from tests.scenarios import NAMES, scenario
from tests.waiting import patience


@pytest.mark.parametrize("name", NAMES)
def test_log_model_and_predictions_equal_the_oracle(name: str, make_site: MakeSite) -> None:
    """For every scenario: examples and counts to the last one, z and n to the last bit, predictions to float32."""
    site = make_site(scenario(name), snapshots={"shards": 4})
    site.produce()
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(lambda: site.folded(learner), "every tick closed and folded")
    joined = site.scenario.expected()
    assert_log_equals(site, joined)
    assert_balance(site)
    model = expected_fold(joined, site.scenario.settings)
    assert_model_equals(learner.learner, model)
    assert_model_is_near(model, expected_fold(joined, site.scenario.settings, libm=True))
    with site.scorer() as scorer:
        scorer.wait_ready(patience())
        assert (scorer.version, scorer.description["digest"]) == (learner.tick, model.digest)
        assert_predictions_equal(scorer, site, model)


def test_negatives_that_are_sampled_out_are_the_oracles(make_site: MakeSite) -> None:
    """With `keep_negatives` 0.3 the same negatives are left out, by their ids, and the others weigh 1/0.3 as much."""
    site = make_site(scenario("everything").with_settings(keep_negatives=0.3))
    site.produce()
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(lambda: site.folded(learner), "every tick closed and folded")
    joined = site.scenario.expected()
    counts = [j.impressions for j in joined]
    negatives = sum(c["examples"] - c["positives"] for c in counts)
    assert 0.2 < negatives / (negatives + sum(c["sampled_out"] for c in counts)) < 0.4
    assert_log_equals(site, joined)
    assert_balance(site)
    assert_model_equals(learner.learner, expected_fold(joined, site.scenario.settings))
