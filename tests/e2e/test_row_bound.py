"""`learner.max_rows` on a real Kafka: the log alone decides who gets a row, whoever folds it, and however often."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit, verdict
from stream_learner.operations.inspect_model import inspect_snapshot
from stream_learner.roles.learner.role import LearnerRole
from tests.cli_e2e.scraped import values_of
from tests.e2e.checks import assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.e2e.test_standby import SHORT, add_control
from tests.e2e.variants import role, run_until_done, variant
from tests.oracles import loop
from tests.scenarios import scenario

MAX_ROWS = 60


def let_through(joined: Sequence[loop.Joined], max_rows: int) -> tuple[list[loop.Example], set[int], int]:
    """The oracle: the examples of all partitions in the order of the fold, without the features that get no row."""
    rows: set[int] = set()
    found, lost = [], 0
    examples = [example for partition in joined for example in partition.examples]
    for example in sorted(examples, key=lambda e: (e.tick, e.partition)):
        features = []
        for key, value in example.features:
            if key not in rows and len(rows) < max_rows:
                rows.add(key)
            if key in rows:
                features.append((key, value))
            else:
                lost += 1
        found.append(example._replace(features=features))
    return found, rows, lost


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A site of several partitions with a bound, its log complete."""
    plain = scenario("everything")
    control = f"control-{id(plain)}"
    found = make_site(plain, learner={"max_rows": MAX_ROWS, "lease_timeout": SHORT}, topics={"control": control})
    add_control(found, control)
    found.produce()
    with running(found.joiner()):
        wait_until(found.closed, "every tick closed")
    assert found.partitions > 1
    return found


def assert_bounded(site: Site, learner: LearnerRole) -> None:
    """The model of the examples that the oracle lets through, with as many rows, and the loss counted."""
    examples, rows, lost = let_through(site.scenario.expected(), MAX_ROWS)
    model = loop.fold(examples, site.scenario.settings)
    assert lost > 100 and len(rows) == MAX_ROWS
    assert_model_equals(learner.learner, model)
    assert learner.learner.table.count == MAX_ROWS
    bound = learner.learner.row_bound
    assert bound is not None and bound.held_back == lost
    assert model.digest != expected_fold(site.scenario.expected(), site.scenario.settings).digest


@pytest.mark.thorough
def test_whoever_folds_the_log_leaves_out_the_same_features(site: Site) -> None:
    """A run without a stop; one stopped and started at every third of the log; one with little memory; one whose disk
    was lost; a standby. The audit folds the log to the published digest, and `inspect snapshot` shows the bound."""
    metrics = Metrics(site.model)
    straight = LearnerRole(site.config, metrics, until_tick=site.end_tick)
    assert_bounded(site, run_until_done(straight))
    shown = values_of(metrics.text().decode())
    assert shown["learner_rows_limit", ""] == shown["learner_features", ""] == MAX_ROWS
    assert shown["learner_features_held_back_total", ""] > 100
    rows = inspect_snapshot(site.config)["rows"]
    assert (rows["count"], rows["most"]) == (MAX_ROWS, MAX_ROWS) and rows["held_back"] > 100
    assert verdict(audit(site.config, AuditRequest(replay=True))) is None

    stopping = variant(site, "stopping")
    ticks = sorted({example.tick for joined in site.scenario.expected() for example in joined.examples})
    for tick in (ticks[len(ticks) // 20], ticks[len(ticks) // 5], ticks[len(ticks) // 2]):
        run_until_done(role(stopping, until_tick=tick))
    assert_bounded(site, run_until_done(role(stopping, until_tick=site.end_tick)))
    small = run_until_done(role(variant(site, "small", learner={"memory": "17MiB"}), until_tick=site.end_tick))
    assert small.learner.state_scalars() == straight.learner.state_scalars()

    shutil.rmtree(site.config.state_dir)
    leader = site.learner()
    with running(leader):
        wait_until(lambda: site.folded(leader), "all folded again")
        assert_bounded(site, leader)
        config = site.changed(learner={"state_dir": str(site.folder / "standby")})
        follower = LearnerRole(config, Metrics(site.model), standby=True)
        with running(follower):
            wait_until(lambda: site.folded(follower), "the standby has folded all")
            assert_bounded(site, follower)
