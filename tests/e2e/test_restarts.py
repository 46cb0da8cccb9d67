"""Learners stopped, killed and compiled for another processor: the same bits every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.checks import (
    assert_balance,
    assert_log_equals,
    assert_model_equals,
    assert_predictions_equal,
    expected_fold,
)
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import Site, running, wait_until
from tests.oracles import loop
from tests.scenarios import Scenario, scenario
from tests.waiting import patience

ROUNDS = 10


@pytest.fixture(scope="module")
def everything() -> Scenario:
    """All that goes wrong in the field."""
    return scenario("everything")


@pytest.fixture(scope="module")
def expected(everything: Scenario) -> list[loop.Joined]:
    """The expected result of the join."""
    return everything.expected()


def assert_loads_equal(site: Site, expected: list[loop.Joined]) -> None:
    """Log, balance, and the model in the state directory and in the snapshots."""
    assert_log_equals(site, expected)
    assert_balance(site)
    learner = site.learner(site.changed(learner={"publish": False}))
    with running(learner):
        wait_until(lambda: site.folded(learner), "every tick folded")
    model = expected_fold(expected, site.scenario.settings)
    assert_model_equals(learner.learner, model)
    with site.scorer() as scorer:
        scorer.wait_ready(patience())
        assert (scorer.version, scorer.description["digest"]) == (site.last_tick(), model.digest)
        assert_predictions_equal(scorer, site, model)


@pytest.mark.thorough
def test_a_learner_restarted_ten_times_ends_with_the_same_model(
    everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """Each start goes on from the checkpoint of the stop before, in the middle of the traffic."""
    site = make_site(everything)
    with running(site.joiner()):
        for turn in range(ROUNDS):
            learner = site.learner()
            with running(learner):
                wait_until(lambda: learner.tick >= 0 or turn == 0, "the checkpoint is loaded")  # noqa: B023
                site.produce(turn / ROUNDS, (turn + 1) / ROUNDS)
                closed = site.tick_closed_by((turn + 1) / ROUNDS)
                wait_until(lambda: learner.tick >= max(closed, 0), "the fold goes on")  # noqa: B023
        learner = site.learner()
        with running(learner):
            wait_until(lambda: site.folded(learner), "every tick folded")
    assert_loads_equal(site, expected)


@pytest.mark.parametrize("rounds", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_a_learner_killed_again_and_again_ends_with_the_same_model(
    rounds: int, everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """kill -9 after a publication and before its checkpoint, and after one: the ticks since are folded again."""
    site = make_site(everything)
    with running(site.joiner()), site.scorer() as scorer:
        for turn in range(rounds):
            with process_of(site, "learn") as learner:
                learner.wait_for("learner_started")
                version = scorer.version
                site.produce(turn / (rounds + 1), (turn + 1) / (rounds + 1))
                wait_until(lambda: scorer.version > version, "a new version")  # noqa: B023
                if turn % 2:
                    learner.wait_for('"checkpoint"')
                learner.kill()
        with process_of(site, "learn"):
            site.produce(rounds / (rounds + 1), 1)
            wait_until(lambda: scorer.version >= site.end_tick, "the last version")
    assert_loads_equal(site, expected)


@pytest.mark.thorough
def test_joiner_and_learner_in_one_process_killed_in_the_middle(
    everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """`stream-learner run` as on a laptop: kill -9, start again, the same model."""
    site = make_site(everything, join={"instance_id": "laptop"})
    with site.scorer() as scorer:
        for turn in range(2):
            version = scorer.version
            with process_of(site, "run") as process:
                site.produce(turn / 3, (turn + 1) / 3)
                wait_until(lambda: scorer.version > version, "a new version")  # noqa: B023
                process.kill()
        with process_of(site, "run"):
            site.produce(2 / 3, 1)
            wait_until(lambda: scorer.version >= site.end_tick, "the last version")
    assert_loads_equal(site, expected)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["everything", "rich"])
def test_kernels_for_a_generic_processor_make_the_same_model(
    name: str, make_site: MakeSite, pytestconfig: pytest.Config
) -> None:
    """Joiner and learner compiled for a generic CPU give the oracle's bits, as those for this one do."""
    site = make_site(scenario(name))
    env = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(_cache_folder(pytestconfig))}
    site.produce()
    with site.scorer() as scorer, process_of(site, "run", env):
        wait_until(lambda: scorer.version >= site.end_tick, "the last version", patience_s=300)
    assert_loads_equal(site, site.scenario.expected())


def _cache_folder(config: pytest.Config) -> Path:
    """The folder that keeps machine code for the generic CPU between runs of the tests."""
    return Path(config.rootpath) / ".build" / "numba-generic"
