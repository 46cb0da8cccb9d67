"""Publications on a real Kafka: each version whole, and equal to the learner's model, whoever is killed."""

from __future__ import annotations

from typing import Any

import numpy as np

from stream_learner.roles.scorer.scorer import Scorer
from tests.e2e.checks import assert_fenced, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import Running, Site, running, wait_until
from tests.oracles import loop
from tests.scenarios import scenario
from tests.waiting import patience

COMPACTED_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "max.compaction.lag.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
SMALL_PAGES = {"interval": "50ms", "ring": 4, "shards": 2, "page_bytes": "4KiB"}


def fold_up_to(joined: list[loop.Joined], tick: int, s: loop.Settings) -> loop.Fold:
    """The oracle's model at a version."""
    up_to = [j._replace(examples=[e for e in j.examples if e.tick <= tick]) for j in joined]
    return expected_fold(up_to, s)


def assert_serves(scorer: Scorer, model: loop.Fold, s: loop.Settings) -> None:
    """The version of the scorer has this digest, and its weights are these, and no others."""
    weights = loop.published(model.state, s)
    assert scorer.description["digest"] == model.digest
    assert {key: scorer.weight(key) for key in model.state} == {key: weights.get(key, 0.0) for key in model.state}
    assert scorer.weights >= len(weights)


def version_records(site: Site) -> list[int]:
    """Offsets of the version records of shard 0."""
    records = site.records(site.config.snapshots_topic, 0, headers=False)
    return [offset for offset, key, _, _ in records if key == b"version"]


def test_a_learner_killed_before_its_checkpoint_publishes_nothing_until_it_is_past_its_last_version(
    make_site: MakeSite,
) -> None:
    """Restarted with no checkpoint at all, it folds to the version in the topic in silence, and publishes beyond it."""
    site = make_site(scenario("everything"), learner={"checkpoint_interval": "1h"})
    s, joined = site.scenario.settings, site.scenario.expected()
    version = site.tick_closed_by(0.5)
    assert 0 <= version < site.end_tick
    with site.scorer() as scorer:
        with running(site.joiner()), process_of(site, "learn") as learner:
            learner.wait_for("learner_started")
            site.produce(0, 0.5)
            wait_until(lambda: scorer.version == version, "everything published")
            learner.kill()
        records = version_records(site)
        again = site.learner()
        with running(again):
            wait_until(lambda: again.tick == version, "folded as far as it was published")
            with running(site.joiner()):
                assert version_records(site) == records
                site.produce(0.5, 1)
                wait_until(lambda: scorer.version == site.end_tick, "the last version")
        assert_serves(scorer, fold_up_to(joined, site.end_tick, s), s)
    with site.scorer() as fresh:
        fresh.wait_ready(patience())
        assert_serves(fresh, fold_up_to(joined, site.end_tick, s), s)


def test_a_second_publisher_fences_the_first(make_site: MakeSite) -> None:
    """The one that started later goes on; the other stops and says why. Scorers notice nothing."""
    site = make_site(scenario("everything"))
    s = site.scenario.settings
    second = site.learner(site.changed(learner={"state_dir": str(site.folder / "second")}))
    with running(site.joiner()), site.scorer() as scorer:
        site.produce(0, 0.4)
        first = Running([site.learner()])
        wait_until(lambda: scorer.version >= 0, "a version")
        with running(second):
            wait_until(lambda: not second.why_not_ready, "the second has taken over")
            site.produce(0.4, 1)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
        wait_until(lambda: first.error is not None, "the first has stopped")
        first.stop()
        assert_fenced(site, first.error)
        assert_serves(scorer, fold_up_to(site.scenario.expected(), site.end_tick, s), s)


class Witness:
    """Notes every version that a scorer serves: its digest, and the weights of all keys at that moment."""

    def __init__(self, site: Site, keys: list[int]) -> None:
        self.keys = np.array(keys, np.uint64)
        self.versions: list[tuple[int, str, list[float]]] = []
        self.scorer = site.scorer(on_version=self._note)

    def _note(self, version: int) -> None:
        n = len(self.keys)
        predictions = self.scorer.predict_hashed(self.keys, np.ones(n), np.arange(n + 1))
        assert predictions.version == version
        self.versions.append((version, self.scorer.description["digest"], predictions.p_click.tolist()))


def test_a_scorer_that_follows_gets_every_version_whole(make_site: MakeSite) -> None:
    """Every version served, while the learner publishes as fast as it can: digest and all weights of that very tick."""
    site = make_site(scenario("everything"), snapshots=SMALL_PAGES)
    s, joined = site.scenario.settings, site.scenario.expected()
    keys = sorted(fold_up_to(joined, site.end_tick, s).state)
    witness = Witness(site, keys)
    parts = 12
    closed = [site.tick_closed_by((part + 1) / parts) for part in range(parts)]
    with witness.scorer as scorer, running(site.joiner(), site.learner()):
        for part, tick in enumerate(closed):
            site.produce(part / parts, (part + 1) / parts)
            wait_until(lambda: scorer.version >= tick, "a version of all that this part closes")  # noqa: B023
        wait_until(lambda: scorer.version == site.end_tick, "the last version")
    assert len(witness.versions) >= len(set(closed)) == parts - 1, "one part closes no tick that others have not"
    assert [version for version, *_ in witness.versions] == sorted({version for version, *_ in witness.versions})
    for version, digest, p_click in witness.versions:
        model = fold_up_to(joined, version, s)
        weights = loop.published(model.state, s)
        assert digest == model.digest
        assert np.float32(p_click).tolist() == np.float32([loop.predict(weights, ((k, 1.0),)) for k in keys]).tolist()


def test_a_scorer_that_starts_on_a_compacted_topic_has_the_whole_model(make_site: MakeSite) -> None:
    """After many publications most records are gone; what is left is the model."""
    site = make_site(scenario("everything"), snapshots=SMALL_PAGES, snapshot_configs=COMPACTED_AT_ONCE)
    s, joined = site.scenario.settings, site.scenario.expected()
    parts = 12
    with site.scorer() as scorer, running(site.joiner(), site.learner()):
        for part in range(parts):
            site.produce(part / parts, (part + 1) / parts)
            closed = site.tick_closed_by((part + 1) / parts)
            wait_until(lambda: scorer.version >= closed, "a new version")  # noqa: B023
        wait_until(lambda: scorer.version == site.end_tick, "the last version")
        wait_until(lambda: compacted(site), "the topic is compacted")
    for _ in range(2):
        with site.scorer() as fresh:
            fresh.wait_ready(patience())
            assert fresh.version == site.end_tick
            assert_serves(fresh, fold_up_to(joined, site.end_tick, s), s)


def compacted(site: Site) -> bool:
    """Whether compaction has removed half of the records that were written to every shard."""
    topic = site.config.snapshots_topic
    for shard in range(site.config.snapshots.shards):
        left: list[Any] = list(site.records(topic, shard, headers=False))
        if 2 * len(left) > site.ends(topic, shard + 1)[shard]:
            return False
    return True


def test_a_scorer_that_gets_nothing_says_why(make_site: MakeSite) -> None:
    """Before the first version it is not ready; when a version is old it is stale."""
    site = make_site(scenario("plain", 1))
    with site.scorer(stale_after_ms=200) as scorer:
        assert "version" in scorer.why_not_ready
        site.produce()
        with running(site.joiner(), site.learner()):
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
        wait_until(lambda: "ago" in scorer.why_stale, "stale")
        assert scorer.ready
        assert scorer.predict(site.scenario.impressions[0][0].value or b"").version == site.end_tick
