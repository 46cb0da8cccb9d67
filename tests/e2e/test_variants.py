"""Several models folded in one pass over a training log, and folds that end at a tick."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stream_learner.config import Config
from stream_learner.core.log.subset import FeatureSubset
from stream_learner.errors import ConfigError
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.checks import assert_model_equals
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, wait_published
from tests.e2e.variants import joined_site, role, run_until_done, variant
from tests.oracles import loop
from tests.scenarios import scenario

ALPHAS = (0.02, 0.1, 0.5)


def variants(site: Site) -> list[Config]:
    """A model for each of `ALPHAS`."""
    optimizer, shards = site.tree["learner"]["optimizer"], {"shards": 1}
    return [
        variant(site, f"v{i}", learner={"optimizer": {**optimizer, "alpha": alpha}}, snapshots=shards)
        for i, alpha in enumerate(ALPHAS)
    ]


def crash(learner: LearnerRole) -> None:
    """Stop without `finish`, as a kill would, in the turn that folds the last tick: it has published that version
    and begun its checkpoint."""
    with closing(learner.open()) as opened:
        while not all(fold.at_end for fold in learner.models):
            opened.turn()
        assert not learner.done


def fold_up_to(joined: list[loop.Joined], tick: int, s: loop.Settings) -> loop.Fold:
    """The oracle's model of the examples up to a tick."""
    return loop.fold([e for part in joined for e in part.examples if e.tick <= tick], s)


def test_three_models_in_one_pass_are_those_of_three_learners(make_site: MakeSite) -> None:
    """With states of different ages, after stops and crashes: each has the bits of the oracle, and so of a learner
    alone; each is published, and a start after the end is done at once."""
    site = joined_site(make_site)
    joined, s = site.scenario.expected(), site.scenario.settings
    ticks = sorted({e.tick for part in joined for e in part.examples})
    first, second, third = (ticks[len(ticks) * n // 5] for n in (1, 3, 4))
    configs = variants(site)
    run_until_done(role(*configs, until_tick=first))
    run_until_done(role(configs[1], until_tick=third))
    run_until_done(role(configs[2], until_tick=second))
    crash(role(*configs, until_tick=third + 1))
    crash(role(*configs, until_tick=ticks[-2]))
    learner = run_until_done(role(*configs, until_tick=site.end_tick))
    models = [loop.fold([e for p in joined for e in p.examples], loop.settings(**{**s, "alpha": a})) for a in ALPHAS]
    assert len({model.digest for model in models}) == len(ALPHAS)
    for fold, model in zip(learner.models, models, strict=True):
        assert fold.tick == site.end_tick
        assert_model_equals(fold.learner, model)
        published = wait_published(site, fold.config, site.end_tick)
        assert published.is_whole and published.model is not None
        assert published.model.content["digest"] == model.digest
        assert published.model.content["slices"] == fold.learner.progress.slices()[-12:]
    again = role(*configs, until_tick=site.end_tick)
    with closing(again.open()) as opened:
        assert again.done
        assert not opened.turn()
        assert [f"{fold.learner.digest():016x}" for fold in again.models] == [model.digest for model in models]


@pytest.mark.thorough
def test_a_fold_ends_at_its_tick_within_a_run_of_empty_ones_and_goes_on_from_there(make_site: MakeSite) -> None:
    """A mark that covers more ticks than wanted is left for later: nothing is missed, nothing folded twice."""
    site = joined_site(make_site, "late_and_orphans")
    joined, s = site.scenario.expected(), site.scenario.settings
    pairs = [pair for marks in site.marks() for pair in pairwise(marks)]
    within = next(run.first_tick for run, then in pairs if 0 < run.first_tick < run.last_tick and then.records)
    for tick in (within, site.end_tick - 1, site.end_tick):
        learner = run_until_done(role(site.config, until_tick=tick))
        assert learner.tick == tick
        assert_model_equals(learner.learner, fold_up_to(joined, tick, s))
    with pytest.raises(ConfigError, match=f"up to tick {within} only"):
        role(site.config, until_tick=within).open()


def test_models_that_cannot_share_a_pass_are_refused(make_site: MakeSite, tmp_path: Path) -> None:
    """Another log, another tick length, the same name, state directory or snapshots, features of a stranger."""
    site = make_site(scenario("plain"))
    own, other = site.config, variant(site, "other")
    cases = {
        "one training log": [own, variant(site, "a", topics={"examples": "another.examples"})],
        "tick": [own, variant(site, "b", join={"tick": "100ms"})],
        "same model": [own, own],
        "same state dir": [own, variant(site, "c", learner={"state_dir": str(own.state_dir)})],
        "same snapshots topic": [own, variant(site, "d", topics={"snapshots": own.snapshots_topic})],
    }
    for message, configs in cases.items():
        with pytest.raises(ConfigError, match=message):
            role(*configs)
    with pytest.raises(ConfigError, match="not learned: stranger"):
        role(own, other, keep={"stranger": FeatureSubset(np.ones(1, np.uint64))})
