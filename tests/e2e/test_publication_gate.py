"""A model held before its publication, on a real Kafka: scorers keep theirs, learning goes on, a word frees it."""

from __future__ import annotations

import uuid

import pytest

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.core.gate.publication import CHANGE, Held, PublicationGate
from stream_learner.errors import DecisionRefused
from stream_learner.operations.gate import accept_publication, status
from tests.e2e.checks import assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import running, wait_published, wait_until
from tests.scenarios import scenario
from tests.waiting import patience


def test_a_model_that_is_held_is_published_by_an_operators_word(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is held the learner folds on, is not ready and says why; a restart holds on; then scorers get it all."""
    control = f"control-{uuid.uuid4().hex[:8]}"
    site = make_site(scenario("plain"), topics={"control": control}, learner={"gate": "off"})
    site.admin.create([TopicPlan(control, 1, configs={"cleanup.policy": "compact"})])
    site.topics.append(control)
    expected = expected_fold(site.scenario.expected(), site.scenario.settings)
    middle = site.tick_closed_by(0.6)
    with site.scorer() as scorer:
        with running(site.joiner(), site.learner()):
            site.produce(0.0, 0.6)
            wait_until(lambda: scorer.version >= middle, "a version of the first part")
        served = scorer.version

        def judge(gate: PublicationGate, tick: int, *_: object) -> Held:
            gate.held = Held(CHANGE, 0.9, 0.05, 0.3, tick)
            return gate.held

        monkeypatch.setattr(PublicationGate, "judge", judge)
        for _ in range(2):
            learner = site.learner()
            with running(site.joiner(), learner):
                site.produce(0.6, 1.0) if site.last_tick() < site.end_tick else None
                wait_until(lambda: site.folded(learner), "every tick folded")  # noqa: B023
                wait_until(lambda: "publication held" in learner.why_not_ready, "it says why")  # noqa: B023
            assert wait_published(site, site.config, served).latest == served
        with pytest.raises(DecisionRefused, match="reason"):
            accept_publication(site.config, " ", "ann@host")
        learner = site.learner()
        with running(learner):
            wait_until(lambda: "publication held" in learner.why_not_ready, "it holds on")
            wait_until(lambda: status(site.config)["publication"] == "held", "`gate status` shows it")
            assert (status(site.config)["published"], status(site.config)["publication_bound"]) == (served, CHANGE)
            assert accept_publication(site.config, "new prices", "ann@host")["accepted_after_version"] == served
            wait_until(lambda: scorer.version == site.end_tick, "the last version", patience())
            wait_until(lambda: learner.why_not_ready == "", "it is ready again")
            wait_until(lambda: status(site.config)["publication"] == "open", "`gate status` shows that, too")
        assert_model_equals(learner.learner, expected)
        assert scorer.description["digest"] == expected.digest
