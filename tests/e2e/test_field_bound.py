"""`features.max_rows_per_field` on a real Kafka: the log alone decides which field is full, whoever folds it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.field_numbers import names_by_hash
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit, verdict
from stream_learner.operations.backfill.plan import Span, make_plan
from stream_learner.operations.inspect_model import inspect_snapshot
from stream_learner.roles.learner.role import LearnerRole
from stream_learner.roles.learner.row_brake import rows_content
from tests.cli_e2e.scraped import values_of
from tests.e2e.backfills import backfilled
from tests.e2e.checks import assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.e2e.test_standby import SHORT, add_control
from tests.e2e.variants import role, run_until_done, variant
from tests.oracles import loop
from tests.oracles.events import BIAS_KEY, BadRecord
from tests.scenarios import Scenario, scenario

MOST_ROWS = 12
CROSS = ("site", "ad")
NAMED = ("slot", "site", "ad")
"""The fields that the configuration names: one is categorical, the others are crossed."""


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields inside a field that are no objects, by their joined names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}", inner)
    else:
        yield name, value


def fields_of_keys(site: Scenario) -> dict[int, str | None]:
    """The oracle: the field of every key of the scenario, None for the bias."""
    single = {**site.settings, "crosses": (), "missing": ()}
    found: dict[int, str | None] = {}
    for message in (message for part in site.impressions for message in part):
        try:
            event = json.loads(message.value or b"")
            keys = [key for key, _ in loop.features(event, loop.settings(**site.settings))]
        except (ValueError, AttributeError, KeyError, BadRecord):
            continue
        found.update(dict.fromkeys(keys, "site x ad") | {BIAS_KEY: None} | found)
        for field, value in event.items():
            for name, leaf in leaves(field, value):
                counts_as = next((n for n in NAMED if name == n or name.startswith(n + ".")), "(others)")
                alone = loop.features({name: leaf}, loop.settings(**single))
                found.update({key: counts_as for key, _ in alone if key != BIAS_KEY})
    return found


def let_through(
    joined: Sequence[loop.Joined], field_of: Mapping[int, str | None], most_rows: int
) -> tuple[list[loop.Example], Counter[str], Counter[str]]:
    """The oracle: the examples of all partitions in the order of the fold, without the features that get no row; the
    rows of each field, and how many of its features are left out."""
    rows: set[int] = set()
    counts: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    found = []
    examples = [example for partition in joined for example in partition.examples]
    for example in sorted(examples, key=lambda e: (e.tick, e.partition)):
        features = []
        for key, value in example.features:
            name = field_of[key]
            if key not in rows and name is not None:
                if counts[name] >= most_rows:
                    lost[name] += 1
                    continue
                counts[name] += 1
            rows.add(key)
            features.append((key, value))
        found.append(example._replace(features=features))
    return found, counts, lost


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A site of several partitions with a bound on fields."""
    plain = scenario("everything").with_settings(crosses=(CROSS,))
    control = f"control-{id(plain)}"
    bound = {"max_rows_per_field": MOST_ROWS}
    found = make_site(plain, features=bound, learner={"lease_timeout": SHORT}, topics={"control": control})
    add_control(found, control)
    assert found.partitions > 1
    return found


def joined(site: Site) -> Site:
    """The site with its log complete."""
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every tick closed")
    return site


def assert_bounded(site: Site, learner: LearnerRole) -> str:
    """The model of the examples that the oracle lets through, all counts included; returns its digest."""
    wanted, counts, lost = let_through(site.scenario.expected(), fields_of_keys(site.scenario), MOST_ROWS)
    model = loop.fold(wanted, site.scenario.settings)
    assert lost["site x ad"] > 100 and lost["site"] > 100 and 0 < counts["slot"] < MOST_ROWS
    assert_model_equals(learner.learner, model)
    fields = {count["field"]: count for count in rows_of(site, learner)["fields"]}
    assert {name: count["rows"] for name, count in fields.items()} == counts
    assert {name: count["held_back"] for name, count in fields.items() if count["held_back"]} == lost
    assert model.digest != expected_fold(site.scenario.expected(), site.scenario.settings).digest
    return str(model.digest)


def rows_of(site: Site, learner: LearnerRole) -> dict[str, Any]:
    """What the model record says of the rows."""
    content: dict[str, Any] = rows_content(learner.learner, names_by_hash(site.config.feature_spec()))["rows"]
    return content


def test_whoever_folds_the_log_leaves_out_the_same_features(site: Site) -> None:
    """A run without a stop; one stopped and started; one with little memory; one whose disk was lost; a standby; a
    backfill from the inputs. The audit folds the log to the published digest, and what is shown says which field."""
    joined(site)
    metrics = Metrics(site.model)
    straight = LearnerRole(site.config, metrics, until_tick=site.end_tick)
    digest = assert_bounded(site, run_until_done(straight))
    shown = values_of(metrics.text().decode())
    assert shown["learner_field_rows_limit", ""] == MOST_ROWS == shown["learner_field_rows", "site x ad"]
    assert shown["learner_field_features_held_back_total", ""] > 200
    assert shown["learner_features_held_back_total", ""] == 0
    rows = inspect_snapshot(site.config)["rows"]
    assert rows == rows_of(site, straight) and rows["most_per_field"] == MOST_ROWS
    assert verdict(audit(site.config, AuditRequest(replay=True))) is None

    stopping = variant(site, "stopping")
    ticks = sorted({example.tick for part in site.scenario.expected() for example in part.examples})
    for tick in (ticks[len(ticks) // 20], ticks[len(ticks) // 2]):
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

    name = f"{site.model}-again"
    site.topics += [f"{name}.{what}" for what in ("examples", "snapshots", "dead-letters")]
    until_ms = (site.end_tick + 1) * site.config.join.tick_ms - site.config.join.window_ms
    result = backfilled(make_plan(site.config, name, Span(until_ms=until_ms)))
    assert result.models[0].model["digest"] == digest


@pytest.mark.thorough
def test_a_bound_that_is_changed_on_the_way_is_a_part_of_the_log(site: Site) -> None:
    """A joiner without a bound, one with a small one, one with a larger one, after each other. A learner that is
    restarted with each of them, and one that sees only the whole log, come to the same state."""
    stopping = variant(site, "stopping")
    shares = (0.0, 0.3, 0.6, 1.0)
    for start, stop, most_rows in zip(shares, shares[1:], (None, 3, MOST_ROWS), strict=False):
        site.produce(start, stop)
        tick = site.tick_closed_by(stop)
        with running(site.joiner(config=site.changed(features={"max_rows_per_field": most_rows}))):
            wait_until(lambda tick=tick: site.last_tick() >= tick, "the joiner has come to the end")
        learner = run_until_done(role(stopping, until_tick=tick))
    assert site.closed()
    straight = run_until_done(role(variant(site, "straight"), until_tick=site.end_tick))
    assert straight.learner.state_scalars() == learner.learner.state_scalars()
    rows = rows_of(site, straight)
    assert rows["most_per_field"] == MOST_ROWS
    assert max(count["rows"] for count in rows["fields"]) <= MOST_ROWS < straight.learner.table.count / 4
