"""A model of fewer features, folded from the log of one with more: the model that joining again would have given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_learner.config import Config
from stream_learner.core.log.subset import FeatureSubset
from stream_learner.errors import ConfigError, LogTrimmed, NotFound, StateOfAnotherModel
from stream_learner.operations.backfill.feature_subset import subset_for
from tests.e2e.checks import assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.e2e.variants import delete_before, joined_site, role, run_until_done, variant
from tests.scenarios import scenario

FEWER: dict[str, Any] = {"exclude": ["debug", "site", "user.level"], "crosses": [["slot", "tags", "mobile"]]}


@pytest.fixture
def published(make_site: MakeSite) -> Site:
    """A site whose log is complete, and whose model is published."""
    site = joined_site(make_site, "rich")
    run_until_done(role(site.config, until_tick=site.end_tick))
    return site


def smaller(site: Site, name: str = "smaller", **features: Any) -> Config:
    """A model of the site's log with other settings of the features."""
    left = {**FEWER, **features}
    categorical = [field for field in site.tree["features"]["categorical"] if field not in left["exclude"]]
    return variant(site, name, features={**left, "categorical": categorical})


def test_fewer_features_of_a_log_give_the_model_that_joining_again_gives(published: Site) -> None:
    """Fields and crosses left out: z, n and digest are those of the oracle under the smaller specification."""
    site, config = published, smaller(published)
    seen: list[tuple[int, int]] = []
    subset = subset_for(config, site.config, site.end_tick, lambda read, of: seen.append((read, of)))
    assert subset is not None
    assert len(subset.dropped)
    read = sum(len(site.scenario.before_sentinels(part)) for part in site.scenario.impressions)
    assert seen[-1][0] == seen[-1][1] == read
    learner = run_until_done(role(config, site.config, until_tick=site.end_tick, keep={config.model: subset}))
    wanted = site.scenario.with_settings(
        exclude=tuple(config.features.exclude),
        crosses=tuple(map(tuple, config.features.crosses)),
        categorical=tuple(config.features.categorical),
    )
    assert_model_equals(learner.models[0].learner, expected_fold(wanted.expected(), wanted.settings))
    assert_model_equals(learner.models[1].learner, expected_fold(site.scenario.expected(), site.scenario.settings))
    assert subset_for(site.config, site.config, site.end_tick) is None


@pytest.mark.thorough
def test_a_model_of_fewer_features_goes_on_only_as_such(published: Site) -> None:
    """Its state is refused where all features would be folded, or those of another subset."""
    site, config = published, smaller(published)
    subset = subset_for(config, site.config, site.end_tick)
    assert subset is not None
    run_until_done(role(config, until_tick=site.end_tick, keep={config.model: subset}))
    assert run_until_done(role(config, until_tick=site.end_tick, keep={config.model: subset})).done
    for keep in ({}, {config.model: subset}):
        again = role(smaller(site, crosses=[]) if keep else config, keep=keep)
        with pytest.raises(StateOfAnotherModel, match="other features"):
            again.open()


def test_features_that_the_log_does_not_hold_are_refused_by_name(published: Site) -> None:
    """A number for a category, the same key with another value, other buckets, a cross, an indicator, a lower limit."""
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("they make slot,", {"categorical": ["user.level"]}, {}),
        ("they make price,", {}, {"price": {"kind": "number", "missing": "indicator"}}),
        ("they make hour,", {}, {"hour": {"kind": "bucket", "edges": [12, 18]}}),
        ("they make slot x mobile,", {"crosses": [["slot", "mobile"]]}, {}),
        ("they make text,", {}, {"text": {"missing": "indicator"}}),
        ("they cannot use it", {"max_features": 3}, {}),
    ]
    for message, features, fields in cases:
        merged = {**published.tree["features"]["fields"], **fields}
        config = variant(published, "other", features={**features, "fields": merged})
        with pytest.raises(ConfigError, match=f"not a subset.* {message}"):
            subset_for(config, published.config, published.end_tick)


def test_a_subset_is_refused_where_it_cannot_be_known(published: Site, make_site: MakeSite) -> None:
    """A log that has not come so far, a source that has published nothing, impressions that are gone."""
    site, config = published, smaller(published)
    with pytest.raises(NotFound, match=f"not to {site.end_tick + 10**6}"):
        subset_for(config, site.config, site.end_tick + 10**6)
    with pytest.raises(NotFound, match="published nothing"):
        subset_for(config, make_site(scenario("rich")).config, site.end_tick)
    delete_before(site, site.impressions, 1, 5)
    with pytest.raises(LogTrimmed, match=f"{site.impressions} partition 1 holds"):
        subset_for(config, site.config, site.end_tick)


def test_an_event_that_only_fewer_features_could_use_is_not_in_the_log(make_site: MakeSite) -> None:
    """A text too long in a field that is left out: the log has no example of it, and the subset is the others'."""
    made = scenario("rich")
    first = made.impressions[0][0]
    event = {**json.loads(first.value or b""), "site": "x" * 5_000}
    made.impressions[0][0] = first._replace(value=json.dumps(event).encode())
    site = make_site(made)
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every tick closed")
    run_until_done(role(site.config, until_tick=site.end_tick))
    config = smaller(site)
    subset = subset_for(config, site.config, site.end_tick)
    assert isinstance(subset, FeatureSubset)
    learner = run_until_done(role(config, until_tick=site.end_tick, keep={config.model: subset}))
    assert learner.learner.examples == sum(j.impressions["examples"] for j in made.expected()) - 1
