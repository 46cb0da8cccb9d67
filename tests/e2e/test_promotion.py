"""Promotion of models that real learners have made: what the checks see, and publication paused and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.control.records import ROLLBACK, Alias, Pin, Publication
from stream_learner.errors import DamagedLog, NewerFormat, NotFound, PromotionRefused, TopicMissing
from stream_learner.operations.promote.checks import Outcome, PromotionRequest
from stream_learner.operations.promote.run import promote, refusal, rollback
from stream_learner.operations.topics import control_plan
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.control.topic import ControlTopic
from tests.cli_e2e.scraped import values_of
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.e2e.variants import joined_site, role, run_until_done, variant
from tests.kafka_broker.broker import delete_topics
from tests.scenarios import scenario

SLICES = {"metrics_slice": "1s"}
HOPELESS = {"name": "ftrl_proximal", "l1": 1_000_000.0}
"""So much L1 that every weight is 0: it predicts one half for everything."""


@dataclass
class Models:
    """Models of one training log, learned and published, and their control topic."""

    site: Site
    good: Config
    bad: Config
    early: Config
    coarse: Config

    @property
    def now_ms(self) -> int:
        """A moment just after the last tick."""
        return (self.site.end_tick + 2) * int(self.good.join.tick_ms)

    def promote(self, model: str, **options: Any) -> Outcome:
        request = PromotionRequest(
            "ctr", model, "ann@host", **{k: options.pop(k) for k in ("forced", "dry_run") if k in options}
        )
        limits = {"max_lag_ms": 3_000, "tolerance": 0.01, **options}
        return promote(self.good, request, clock_ms=lambda: self.now_ms, **limits)

    def rollback(self, model: str = "", **options: Any) -> Outcome:
        return rollback(self.good, PromotionRequest("ctr", model, "ann@host", ROLLBACK, **options))

    @property
    def control(self) -> ControlTopic:
        return ControlTopic(self.site.settings, self.good.control_topic)

    @property
    def alias(self) -> Alias:
        return self.control.state.aliases["ctr"]


@pytest.fixture
def models(make_site: MakeSite) -> Iterator[Models]:
    """Good and bad ones, one that stands still since the middle, one whose metrics are cut differently."""
    site = joined_site(make_site, "traffic")
    topics = {"examples": site.config.examples_topic, "control": f"{site.model}.control"}
    of = partial(variant, site, topics=topics)
    optimizer = site.tree["learner"]["optimizer"]
    good, early = of("good", learner=SLICES), of("early", learner=SLICES)
    bad = of("bad", learner={**SLICES, "optimizer": {**optimizer, **HOPELESS}})
    coarse = of("coarse", learner={"metrics_slice": "1h"})
    site.admin.create([control_plan(good)])
    run_until_done(role(good, bad, coarse, until_tick=site.end_tick))
    ticks = sorted({e.tick for part in site.scenario.expected() for e in part.examples})
    run_until_done(role(early, until_tick=ticks[len(ticks) // 2]))
    yield Models(site, good, bad, early, coarse)
    delete_topics(site.settings.bootstrap, [good.control_topic])


def failed(outcome: Outcome) -> list[str]:
    return [check.name for check in outcome.failed]


def detail(outcome: Outcome, name: str) -> str:
    (check,) = (check for check in outcome.checks if check.name == name)
    return check.detail


def test_the_checks(models: Models) -> None:
    """The first promotion has nothing to compare with; after it a model must be complete, fresh, and not worse on the
    slices that both have predicted, or forced; who, from, to and forced are written down."""
    good, bad, early, coarse = (c.model for c in (models.good, models.bad, models.early, models.coarse))
    outcome = models.promote(bad)
    assert outcome.done and failed(outcome) == [] and detail(outcome, "not worse") == "nothing to compare with"
    outcome = models.promote(good)
    assert outcome.done and failed(outcome) == [] and outcome.before == bad
    assert "log-loss" in detail(outcome, "not worse") and detail(outcome, "features") == "the same inputs and features"

    outcome = models.promote(bad)
    assert failed(outcome) == ["not worse"] and not outcome.done
    assert "log-loss 0.69315" in detail(outcome, "not worse")
    error = refusal(outcome)
    assert isinstance(error, PromotionRefused) and "not worse: log-loss 0.69315" in str(error)
    assert models.promote(bad, tolerance=1e9, dry_run=True).failed == []

    outcome = models.promote(early)
    assert failed(outcome) == ["fresh"] and "--max-lag" in detail(outcome, "fresh")
    assert failed(models.promote(early, max_lag_ms=3_600_000, dry_run=True)) == []
    outcome = models.promote(coarse)
    assert failed(outcome) == ["not worse"] and "no finished slice" in detail(outcome, "not worse")
    for missing in ("nothing-of-that-name", _empty(models)):
        assert failed(models.promote(missing)) == ["complete"]
    assert models.alias.model == good and len(models.alias.history) == 2

    outcome = models.promote(coarse, forced=True)
    assert outcome.done and failed(outcome) == ["not worse"] and refusal(outcome) is None
    last = models.alias.last
    assert (last.from_model, last.to_model, last.who, last.forced) == (good, coarse, "ann@host", True)
    assert last.when_ms == models.now_ms

    assert models.rollback().done and models.alias.model == good
    assert models.rollback().done and models.alias.model == bad
    with pytest.raises(NotFound, match="no model before"):
        models.rollback()
    assert failed(models.rollback("nothing-of-that-name")) == ["complete"]
    assert models.rollback("nothing-of-that-name", forced=True).done


def _empty(models: Models) -> str:
    """A model that has a topic and never published, and little patience for it."""
    models.good = models.good.model_copy(
        update={"scorer": models.good.scorer.model_copy(update={"ready_timeout_ms": 1_500})}
    )
    topic = f"{models.site.model}-empty.snapshots"
    models.site.admin.create([TopicPlan(topic, 4)])
    models.site.topics.append(topic)
    return topic.removesuffix(".snapshots")


def test_what_else_stands_in_the_way(models: Models) -> None:
    """A model whose publication is paused, a pinned alias, a model that was replaced and is gone; twice the same."""
    good, bad = models.good.model, models.bad.model
    assert models.promote(good).done
    again = models.promote(good)
    assert again.done and "already" in again.notes[0] and len(models.alias.history) == 1
    models.control.write(Publication(bad, True, "bob", 1))
    models.control.write(Pin("ctr", good, True, None, "eve", 1))
    outcome = models.promote(bad, tolerance=1e9)
    assert failed(outcome) == ["publishing", "followed"]
    assert "bob" in detail(outcome, "publishing") and "unpin" in detail(outcome, "followed")
    models.control.write(Publication(bad, False, "bob", 2))
    models.control.write(Pin("ctr", good, False, None, "eve", 2))
    delete_topics(models.site.settings.bootstrap, [models.good.snapshots_topic])
    wait_until(lambda: not models.site.admin.describe([models.good.snapshots_topic]), "the topic is gone")
    outcome = models.promote(bad)
    assert failed(outcome) == ["not worse"] and "cannot be looked at" in detail(outcome, "not worse")


def test_a_record_that_cannot_be_used_stops_a_promotion(models: Models) -> None:
    """That of this alias, with its place; others do not matter. Without the topic it is said how to make it."""
    site, topic = models.site, models.good.control_topic
    site.append(topic, 0, b"x", key=b"alias/other")
    site.append(topic, 0, b"x", key=b"stranger")
    assert models.promote(models.good.model).done
    for value, kind in ((b"x", DamagedLog), (b'{"format":9}', NewerFormat)):
        site.append(topic, 0, value, key=b"alias/ctr")
        offset = site.ends(topic, 1)[0] - 1
        with pytest.raises(kind, match=f"{topic} partition 0 offset {offset}"):
            models.promote(models.bad.model)
    elsewhere = models.good.model_copy(update={"topics": models.good.topics.model_copy(update={"control": "nowhere"})})
    with pytest.raises(TopicMissing, match="nowhere") as caught:
        promote(elsewhere, PromotionRequest("ctr", "m", "ann"), max_lag_ms=1, tolerance=0.0)
    assert "topics ensure" in caught.value.action


def test_publication_is_paused_and_resumed(make_site: MakeSite) -> None:
    """A paused learner folds and checkpoints, and publishes nothing: not in its turns, not at its end, not after a
    restart. Resumed, it publishes all that it has learned."""
    site = make_site(scenario("late_and_orphans"), learner={"metrics_slice": "1s"})
    config = site.changed(topics={"control": f"{site.model}.control"})
    site.admin.create([control_plan(config)])
    site.topics.append(config.control_topic)
    metrics = Metrics(site.model)
    assert 0 <= site.tick_closed_by(0.3) < site.tick_closed_by(0.6) < site.end_tick

    def pause(on: bool) -> None:
        ControlTopic(site.settings, config.control_topic).write(Publication(site.model, on, "test", 1))

    def paused() -> bool:
        return f'learner_publication_paused{{model="{site.model}"}} 1.0' in metrics.text().decode()

    def paused_s() -> float:
        return values_of(metrics.text().decode()).get(("learner_publication_paused_seconds", ""), 0)

    with running(site.joiner()), site.scorer(control_topic=config.control_topic) as scorer:
        learner = site.learner(config, metrics)
        with running(learner):
            site.produce(0, 0.3)
            wait_until(lambda: scorer.version >= 0, "a version")
            pause(True)
            wait_until(paused, "the learner obeys")
            wait_until(lambda: paused_s() > 0, "the time of the pause is told")
            version, tick = scorer.version, learner.tick
            site.produce(0.3, 0.6)
            wait_until(lambda: learner.tick > tick, "more is folded")
        assert learner.tick > version
        again = site.learner(config, metrics)
        with running(again):
            wait_until(lambda: not again.why_not_ready, "loaded")
            tick = again.tick
            site.produce(0.6, 1)
            wait_until(lambda: site.folded(again), "all is folded")
            topic, shards = config.snapshots_topic, config.snapshots.shards
            assert read_last_publication(site.settings, site.admin.offsets, topic, shards).latest == version
            pause(False)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
            assert not paused()
            wait_until(lambda: paused_s() == 0, "and that it is over")
