"""A learner whose state directory is lost or damaged: restored from the copies, and the same bits in the end."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.checks import assert_model_equals, assert_predictions_equal, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.oracles import loop
from tests.scenarios import Scenario, scenario
from tests.waiting import patience

SMALL = {"learner": {"copy_interval": "0ms"}}


@pytest.fixture(scope="module")
def plain() -> Scenario:
    """Two partitions of ordinary traffic."""
    return scenario("plain")


@pytest.fixture(scope="module")
def expected(plain: Scenario) -> list[loop.Joined]:
    """The expected result of the join."""
    return plain.expected()


def first_half(site: Site) -> int:
    """Learn the first half, and stop; the tick that its copy is of."""
    learner = site.learner()
    site.produce(0.0, 0.5)
    with running(site.joiner(), learner):
        wait_until(lambda: learner.tick > 0 and copied(learner) > 0, "a checkpoint is copied")
    return learner.tick


def copied(learner: LearnerRole) -> int:
    """The tick of the last complete copy."""
    copies = learner.models[0].copies
    return -1 if copies is None else copies.tick


def second_half(site: Site, expected: list[loop.Joined]) -> list[Any]:
    """Learn the rest with a new learner: model and scorer equal the oracle's. What it logged."""
    learner = site.learner()
    with capture_logs() as logged, running(site.joiner(), learner):
        wait_until(lambda: learner.models[0].copies is not None, "the learner has started")
        site.produce(0.5, 1.0)
        wait_until(lambda: site.folded(learner), "every tick folded")
        model = expected_fold(expected, site.scenario.settings)
        assert_model_equals(learner.learner, model)
        with site.scorer() as scorer:
            scorer.wait_ready(patience())
            wait_until(lambda: scorer.description["digest"] == model.digest, "the last version")
            assert_predictions_equal(scorer, site, model)
    return logged


def events(logged: list[Any], name: str) -> list[Any]:
    return [event for event in logged if event["event"] == name]


def test_a_learner_whose_disk_is_gone_goes_on_from_the_copy(
    plain: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """It says so, begins at the tick of the copy, and ends with the oracle's model."""
    site = make_site(plain, **SMALL)
    tick = first_half(site)
    shutil.rmtree(site.config.state_dir)
    logged = second_half(site, expected)
    assert [event["tick"] for event in events(logged, "state_restored")] == [tick]
    assert [event["tick"] for event in events(logged, "learner_started")] == [tick]
