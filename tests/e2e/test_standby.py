"""A hot standby on a real Kafka: who leads, whoever is killed or stopped, and that no version is ever wrong for it."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.snapshots.records import VERSION_KEY, VersionRecord, decode
from stream_learner.errors import ConfigError, Fenced, TopicMissing
from stream_learner.roles.learner.role import LearnerRole
from tests.cli_e2e.scraped import values_of
from tests.e2e.checks import assert_fenced, assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import RoleProcess, process_of
from tests.e2e.site import Running, Site, failure_of, running, wait_until
from tests.e2e.test_publication import Witness, fold_up_to
from tests.kafka_broker.broker import Broker
from tests.scenarios import scenario

SHORT = "4s"
FOREVER = "5m"
"""A lease that does not end while a test waits."""


def site_with_control(make_site: MakeSite, lease_timeout: str = SHORT) -> Site:
    """A site with a control topic of its own."""
    control = f"control-{uuid.uuid4().hex[:8]}"
    site = make_site(scenario("everything"), topics={"control": control}, learner={"lease_timeout": lease_timeout})
    add_control(site, control)
    return site


def add_control(site: Site, control: str) -> None:
    """Make the topic, to be deleted with the site's others."""
    site.admin.create([TopicPlan(control, 1, configs={"cleanup.policy": "compact"})])
    site.topics.append(control)


@contextmanager
def learner(site: Site, name: str, command: str = "learn --standby") -> Iterator[RoleProcess]:
    """A learner as a process, with a state directory of its own."""
    with process_of(site, command, learner={"state_dir": str(site.folder / name)}) as process:
        yield process


def standby(site: Site, name: str, metrics: Metrics | None = None) -> LearnerRole:
    """A standby of this process, with a state directory of its own."""
    config = site.changed(learner={"state_dir": str(site.folder / name)})
    return LearnerRole(config, metrics or Metrics(site.model), standby=True)


def leads(role: LearnerRole) -> bool:
    """Whether a learner of this process publishes."""
    return role.models[0].leads


def one_leads(roles: Sequence[LearnerRole]) -> bool:
    """Whether exactly one of them publishes."""
    return [leads(role) for role in roles].count(True) == 1


def events(process: RoleProcess, name: str) -> list[dict[str, Any]]:
    """The events that a process has logged under this name."""
    lines = [json.loads(line) for line in process.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def members(site: Site) -> int:
    """How many candidates the lease has, the holder included; 0 while they agree on who is one.

    A candidate that stops meanwhile cannot leave before all have agreed, and gives up after five seconds: its lease
    then ends with `learner.lease_timeout` only.
    """
    group = site.config.lease_group
    found = site.plain_admin.describe_consumer_groups([group])[group].result()
    return len(found.members) if found.state is ConsumerGroupState.STABLE else 0


def assert_versions_only_grow(site: Site) -> None:
    """In the order of the snapshot topic no version follows a later one, and none comes twice, in any shard."""
    for shard in range(site.config.snapshots.shards):
        values = [value for _, key, value, _ in site.records(site.config.snapshots_topic, shard) if key == VERSION_KEY]
        records = [decode(VERSION_KEY, value) for value in values]
        versions = [record.stamp.version for record in records if isinstance(record, VersionRecord)]
        assert versions == sorted(set(versions))


def test_a_standby_takes_over_from_a_leader_that_is_killed(make_site: MakeSite) -> None:
    """kill -9 under traffic: scorers get every version once and whole, and the last one is the undisturbed model's."""
    site = site_with_control(make_site)
    s, joined = site.scenario.settings, site.scenario.expected()
    witness = Witness(site, sorted(fold_up_to(joined, site.end_tick, s).state))
    with witness.scorer as scorer, running(site.joiner()), learner(site, "first") as first:
        first.wait_for("lease_held")
        site.produce(0, 0.3)
        wait_until(lambda: scorer.version >= 0, "a version")
        with learner(site, "second") as second:
            wait_until(lambda: members(site) == 2, "the standby is a candidate")
            site.produce(0.3, 0.6)
            wait_until(lambda: scorer.version == site.last_tick(), "all of that published")
            assert not events(second, "leads")
            first.kill()
            site.produce(0.6, 1)
            second.wait_for('"took_over"')
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
            (took_over,) = events(second, "took_over")
            assert min(took_over[f] for f in ("stood_by_seconds", "fence_seconds", "first_publication_seconds")) > 0
    versions = [version for version, *_ in witness.versions]
    assert versions == sorted(set(versions))
    for version, digest, _ in witness.versions:
        assert digest == fold_up_to(joined, version, s).digest
    assert_versions_only_grow(site)


def test_a_leader_that_was_stopped_and_wakes_is_fenced_and_says_who_leads(make_site: MakeSite) -> None:
    """SIGSTOP, then SIGCONT after the take-over: it ends with exit code 28 and a message, and publishes nothing."""
    site = site_with_control(make_site)
    with running(site.joiner()), site.scorer() as scorer, learner(site, "second") as second:
        second.wait_for("lease_held")
        with learner(site, "first") as first:
            first.wait_for("learner_started")
            site.produce(0, 0.4)
            wait_until(lambda: scorer.version >= 0, "a version")
            second.pause()
            first.wait_for('"leads"')
            site.produce(0.4, 0.8)
            wait_until(lambda: scorer.version == site.last_tick(), "the first one publishes")
            second.resume()
            assert second.wait_ended() == Fenced.exit_code, second.log
            assert site.config.lease_group in second.log
            assert "-lease-standby-" in second.log.split(site.config.lease_group)[-1], "who holds it is named"
            assert "learn --standby" in second.log
            site.produce(0.8, 1)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
            assert (
                scorer.description["digest"] == expected_fold(site.scenario.expected(), site.scenario.settings).digest
            )
    assert_versions_only_grow(site)


def test_a_leader_that_is_told_to_stop_hands_over_at_once(make_site: MakeSite) -> None:
    """SIGTERM with a lease of five minutes: nobody waits for its end. `learn` holds a lease as well."""
    site = site_with_control(make_site, FOREVER)
    with running(site.joiner()), site.scorer() as scorer, learner(site, "first", "learn") as first:
        first.wait_for("lease_held")
        second = standby(site, "second")
        with running(second):
            site.produce(0, 0.5)
            wait_until(lambda: scorer.version == site.last_tick() >= 0, "all of that published")
            wait_until(lambda: members(site) == 2, "the standby is a candidate")
            assert not leads(second)
            assert first.stop() == 0
            wait_until(lambda: leads(second), "the standby leads")
            site.produce(0.5, 1)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
        assert_model_equals(second.learner, expected_fold(site.scenario.expected(), site.scenario.settings))
    assert_versions_only_grow(site)


@pytest.mark.thorough
def test_of_standbys_without_a_leader_one_leads_and_who_joins_does_not_move_the_lease(make_site: MakeSite) -> None:
    """Before the log has anything; with two, three, and two again. All end with the same model."""
    site = site_with_control(make_site, FOREVER)
    metrics = [Metrics(site.model) for _ in range(3)]
    roles = [standby(site, f"standby-{number}", metrics[number]) for number in range(3)]
    with running(site.joiner()), site.scorer() as scorer:
        first = Running([roles[0]])
        wait_until(lambda: leads(roles[0]), "the first leads")
        with running(*roles[1:]):
            wait_until(lambda: members(site) == 3, "all are candidates")
            wait_until(lambda: not any(role.why_not_ready for role in roles), "all are ready")
            site.produce(0, 0.5)
            wait_until(lambda: scorer.version == site.last_tick() >= 0, "all of that published")
            assert [leads(role) for role in roles] == [True, False, False]
            first.stop()
            wait_until(lambda: one_leads(roles), "one of the others leads")
            assert not leads(roles[0])
            site.produce(0.5, 1)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
            wait_until(lambda: all(site.folded(role) for role in roles[1:]), "both have folded it")
            shown = [values_of(counted.text().decode()) for counted in metrics[1:]]
            assert sorted(found["learner_leads", ""] for found in shown) == [0, 1]
            assert [found.get(("learner_takeovers_total", ""), 0) for found in shown] == [
                found["learner_leads", ""] for found in shown
            ]
    for role in roles[1:]:
        assert_model_equals(role.learner, expected_fold(site.scenario.expected(), site.scenario.settings))
    assert_versions_only_grow(site)


@pytest.mark.thorough
def test_a_plain_learner_takes_over_from_a_standby_that_leads_and_gets_the_lease(make_site: MakeSite) -> None:
    """The standby is fenced and stops; one that is started then does not lead; it does when the plain one has gone."""
    site = site_with_control(make_site, FOREVER)
    before, waiting, after = (standby(site, name) for name in ("before", "waiting", "after"))
    plain = site.learner()
    with running(site.joiner()), site.scorer() as scorer:
        first = Running([before])
        wait_until(lambda: leads(before), "the standby leads")
        site.produce(0, 0.3)
        wait_until(lambda: scorer.version >= 0, "a version")
        with running(waiting):
            wait_until(lambda: members(site) == 2, "another one waits")
            second = Running([plain])
            wait_until(lambda: not plain.why_not_ready, "the plain one leads")
            wait_until(lambda: members(site) == 3, "and asks for the lease")
            site.produce(0.3, 0.6)
            wait_until(lambda: first.error is not None, "the first has stopped")
            first.stop()
            assert_fenced(site, first.error)
            with running(after):
                wait_until(lambda: members(site) == 3, "a further one waits")
                assert (leads(plain), leads(waiting), leads(after)) == (True, False, False)
                second.stop()
                assert second.error is None
                wait_until(lambda: one_leads([waiting, after]), "one of them leads")
                site.produce(0.6, 1)
                wait_until(lambda: scorer.version == site.end_tick, "the last version")
        assert scorer.description["digest"] == expected_fold(site.scenario.expected(), site.scenario.settings).digest
    assert_versions_only_grow(site)


@pytest.mark.thorough
def test_when_no_broker_answers_the_leader_only_stops_publishing(tmp_path: Path) -> None:
    """A broker that hangs for longer than the lease: who led knows by its own clock; then exactly one leads again."""
    with Broker() as broker:
        control = f"control-{uuid.uuid4().hex[:8]}"
        site = Site(
            broker.bootstrap,
            scenario("everything"),
            tmp_path,
            topics={"control": control},
            learner={"lease_timeout": SHORT},
        )
        add_control(site, control)
        roles = [standby(site, "first"), standby(site, "second")]
        with running(site.joiner()), running(*roles), site.scorer() as scorer:
            wait_until(lambda: one_leads(roles), "one leads")
            site.produce(0, 0.5)
            wait_until(lambda: scorer.version == site.last_tick() >= 0, "all of that published")
            broker.nodes[0].signal(signal.SIGSTOP)
            try:
                wait_until(lambda: not any(map(leads, roles)), "nobody leads")
            finally:
                broker.nodes[0].signal(signal.SIGCONT)
            wait_until(lambda: one_leads(roles), "one leads again")
            site.produce(0.5, 1)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
            assert one_leads(roles)
        assert_versions_only_grow(site)
        site.close()


def test_a_standby_without_a_control_topic_or_that_is_not_to_publish_is_refused(make_site: MakeSite) -> None:
    """Both at the start, with what to do."""
    site = make_site(scenario("plain", 1), topics={"control": f"control-{uuid.uuid4().hex[:8]}"})
    assert "topics ensure" in failure_of(standby(site, "first"), TopicMissing).action
    with pytest.raises(ConfigError, match=r"learner\.publish"):
        LearnerRole(site.changed(learner={"publish": False}), Metrics(site.model), standby=True)
