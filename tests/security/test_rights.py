"""The least rights: each one is needed, its lack is named, and the commands give what the table says.

That they are enough is shown in `test_mechanisms.py`, where every role has no others.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import KafkaSettings, TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.cli import app
from stream_learner.config import Config, load_config
from stream_learner.core.control.records import LogDecision
from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.core.gate.decisions import Decision
from stream_learner.core.gate.gate import Gate, Predict, Verdict
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.errors import ConfigError, NotAuthorised
from stream_learner.operations.doctor.allowed import check_rights
from stream_learner.operations.doctor.cluster import look_at
from stream_learner.operations.rights import ROLES, TRANSACTIONAL_ID, Right, commands, rights_of
from stream_learner.operations.topics import control_plan, ensure_topics
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.learner import model
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.kafka_broker.broker import delete_topics
from tests.scenarios import scenario
from tests.security.broker import Secured
from tests.security.page import PAGE
from tests.security.roles import Roles, allow_role
from tests.waiting import patience

MINIMAL = PAGE.parents[1] / "configs" / "minimal.yaml"
CONFIG = PAGE.parents[1] / "configs" / "production.yaml"


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A model with a training log and a version; one bad record and half of the input are not joined yet."""
    site = make_site(scenario("plain", 1))
    site.produce(0, 0.5)
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(lambda: learner.tick >= 0, "something folded")
    site.append(site.impressions, 0, b"no event", key=b"x")
    site.produce(0.5, 1)
    return site


@pytest.fixture
def roles(site: Site, secured: Secured) -> Roles:
    """Its roles, each as a user."""
    return Roles(site, lambda user: secured.options("PLAIN", user))


@contextmanager
def without(secured: Secured, right: Right, rights: list[Right], user: str) -> Iterator[None]:
    """All rights but one for as long as the block lasts, and those that bring it with them.

    Describing stays, so that the lack itself shows.
    """
    secured.forbid_all()
    gone = {right.operation, "AlterConfigs"} if right.operation == "DescribeConfigs" else {right.operation}
    left = [r for r in rights if (r.kind, r.name) != (right.kind, right.name) or r.operation not in gone]
    secured.allow_all(user, [(r.kind, r.name, r.operation) for r in left])
    if right.operation != "Describe":
        secured.allow_all(user, [(right.kind, right.name, "Describe")])
    yield


def refused(call: Callable[[], object]) -> NotAuthorised:
    """The error that a call ends with."""
    with pytest.raises(NotAuthorised) as caught:
        call()
    return caught.value


def assert_names(error: NotAuthorised, user: str, right: Right) -> None:
    """Assert that a message names the user, the missing right and the resource."""
    assert f"{user} lacks the right: {right.operation} on {right.kind} {right.name}" in str(error)
    assert error.exit_code == 23


@pytest.mark.parametrize("role", ["joiner", "learner"])
def test_a_role_stops_without_any_one_of_its_rights(role: str, site: Site, roles: Roles, secured: Secured) -> None:
    """The error names the user, the right and the resource. `doctor` says so before, as far as brokers tell it, and
    finds nothing where all are there.
    """
    if role == "learner":
        with running(site.joiner()):
            wait_until(site.closed, "every partition closed")
    rights = rights_of(site.config, role)
    allow_role(secured, site.config, role)
    assert lacking(roles.config(role)) == []
    for right in rights:
        if not right.without:
            with without(secured, right, rights, role):
                assert_names(failure_of(getattr(roles, role)(), NotAuthorised), role, right)
                told = [f"{role} lacks what a {role} needs: {right.operation} on {right.kind} {right.name}"]
                assert lacking(roles.config(role)) == (told if right.kind != TRANSACTIONAL_ID else [])


def lacking(config: Config) -> list[str]:
    """What `doctor` finds of rights."""
    settings = KafkaSettings(config.kafka_options(), group="doctor")
    return [one.seen for one in check_rights(look_at(settings, config), config)]


def test_the_rule_of_a_log_is_found_by_a_roles_own_rights(make_site: MakeSite, secured: Secured) -> None:
    """By the log, which both may read. A joiner may not read the model record, which counts where no mark tells."""
    site = make_site(scenario("plain", 1))
    site.produce(0, 0.5)
    with running(site.joiner(site.changed(features={"key_rule": 1}))):
        wait_until(lambda: site.logs()[0].marks, "a mark")
    roles = Roles(site, lambda user: secured.options("PLAIN", user))
    for role in ("joiner", "learner"):
        secured.forbid_all()
        allow_role(secured, site.config, role)
        assert with_key_rule(roles.config(role)).features.key_rule == 1
        assert with_key_rule(roles.config(role, features={"exclude": ["x"]})).features.key_rule == NEWEST_RULE


def test_a_joiner_without_the_right_to_an_inputs_retention_goes_on_and_says_so(
    site: Site, roles: Roles, secured: Secured
) -> None:
    """It joins; its log names the right that it would need, once for each input."""
    rights = rights_of(site.config, "joiner")
    for right in (right for right in rights if right.without):
        with without(secured, right, rights, "joiner"), capture_logs() as logged:
            joiner = roles.joiner()
            with running(joiner):
                wait_until(lambda joiner=joiner: not joiner.why_not_ready and joiner.partitions, "it joins")
            (said,) = (event for event in logged if event["event"] == "retention_not_known")
        assert said["topic"] == right.name
        assert f"joiner lacks the right: DescribeConfigs on topic {right.name}" in said["reason"]
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")


def test_a_learner_without_the_right_to_the_logs_retention_goes_on_and_says_so(
    site: Site, roles: Roles, secured: Secured
) -> None:
    """It folds and publishes; its log names the right that it would need, once."""
    rights = rights_of(site.config, "learner")
    (retention,) = (right for right in rights if right.operation == "DescribeConfigs")
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    with without(secured, retention, rights, "learner"), capture_logs() as logged:
        learner = roles.learner()
        with running(learner):
            wait_until(lambda: site.folded(learner), "it folds")
            wait_until(lambda: "retention_not_known" in [event["event"] for event in logged], "it says so")
    (said,) = (event for event in logged if event["event"] == "retention_not_known")
    assert f"learner lacks the right: DescribeConfigs on topic {site.config.examples_topic}" in said["reason"]


def test_a_standby_stops_without_the_right_to_the_lease_and_a_plain_learner_goes_on(
    site: Site, roles: Roles, secured: Secured
) -> None:
    """The standby names the group; the plain learner publishes all the same."""
    site.admin.create([control_plan(site.config)])
    rights = rights_of(site.config, "learner")
    (lease,) = (right for right in rights if right.name == site.config.lease_group)
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    config = roles.config("learner")
    with without(secured, lease, rights, "learner"):
        standby = LearnerRole(config, Metrics(site.model), standby=True)
        assert_names(failure_of(standby, NotAuthorised), "learner", lease)
        plain = roles.learner()
        with running(plain):
            wait_until(lambda: site.folded(plain) and plain.models[0].leads, "it folds and leads")


def test_a_learner_without_the_right_to_copy_goes_on_and_says_so(site: Site, roles: Roles, secured: Secured) -> None:
    """The learner folds and publishes; its log names the right that copies need."""
    rights = rights_of(site.config, "learner")
    (copy,) = (right for right in rights if right.without and right.name == site.config.checkpoints_topic)
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    with without(secured, copy, rights, "learner"), capture_logs() as logged:
        learner = roles.learner()
        with running(learner):
            said = lambda: [e["reason"] for e in logged if e["event"] == "checkpoint_copy_failed"]  # noqa: E731
            wait_until(lambda: site.folded(learner) and said() != [], "it folds, and says that nothing is copied")
            assert learner.models[0].leads
    assert f"learner lacks the right: Write on topic {copy.name}" in said()[0]


def test_a_learner_that_may_not_write_what_it_holds_says_so_and_goes_on(
    site: Site, roles: Roles, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds; its log names the right once; a decision is taken all the same."""
    site.admin.create([control_plan(site.config)])
    rights = rights_of(site.config, "learner")
    (writing,) = (right for right in rights if (right.operation, right.name) == ("Write", site.config.control_topic))
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    monkeypatch.setattr(model, "Gate", HoldsAll)
    with without(secured, writing, rights, "learner"), capture_logs() as logged:
        learner = roles.learner()
        with running(learner):
            said = lambda: [event for event in logged if event["event"] == "gate_state_not_written"]  # noqa: E731
            wait_until(lambda: said() != [], "it says what it cannot write")
            assert learner.why_not_ready.startswith("held: ")
            holding = learner.models[0].gate.holding
            assert holding is not None
            accept = Decision.make("accept", holding.tick, site.end_tick, who="ann", when_ms=1, why="a test")
            control = ControlTopic(site.settings, site.config.control_topic)
            control.write(LogDecision(site.config.examples_topic, accept))
            wait_until(lambda: site.folded(learner) and not learner.why_not_ready, "it goes on")
    (event,) = said()
    assert f"learner lacks the right: Write on topic {site.config.control_topic}" in event["reason"]


class HoldsAll(Gate):
    """A gate for which every tick is out of bounds."""

    def judge(self, tick: int, accepted: Sequence[AcceptedTick], predict: Predict | None = None) -> Verdict:
        super().judge(tick, accepted, predict)
        return Verdict("positives", "", 0.0, 20.0, 5.0, 40.0, tick)


def test_a_scorer_refuses_to_start_without_any_one_of_its_rights(site: Site, roles: Roles, secured: Secured) -> None:
    """The snapshots, and for an alias the control topic."""
    site.admin.create([control_plan(site.config)])
    rights = rights_of(site.config, "scorer")
    for right in rights:
        followed = {"model": "", "alias": "ctr"} if right.name == site.config.control_topic else {}
        scorer = roles.scorer(**followed)
        with without(secured, right, rights, "scorer"):
            error = refused(lambda scorer=scorer: follow(scorer))
        assert_names(error, "scorer", right)


def follow(scorer: object) -> None:
    """Start a scorer and wait for it."""
    with scorer:  # type: ignore[attr-defined]
        scorer.wait_ready(patience())  # type: ignore[attr-defined]


def test_topics_ensure_refuses_without_any_one_of_its_rights(site: Site, roles: Roles, secured: Secured) -> None:
    """Every topic is missing once, and has another setting once."""
    config = roles.config("operator", topics={"retention": "2d"})
    rights = rights_of(config, "topics")
    for right in rights:
        with without(secured, right, rights, "operator"):
            assert_names(refused(lambda right=right: provoke(site, config, right)), "operator", right)


def provoke(site: Site, config: Config, right: Right) -> None:
    """Make topics so that a right is needed."""
    ensure_topics(site.config, partitions=1)
    if right.operation == "Create":
        delete_topics(site.settings.bootstrap, [right.name])
    if right.operation == "AlterConfigs":
        delete_topics(site.settings.bootstrap, [right.name])
        sharded = (config.snapshots_topic, config.checkpoints_topic)
        partitions = config.snapshots.shards if right.name in sharded else 1
        site.admin.create([TopicPlan(right.name, partitions, configs={"cleanup.policy": "delete,compact"})])
    ensure_topics(config, partitions=1, apply=True)


@pytest.mark.parametrize("role", sorted(ROLES))
def test_the_commands_give_what_the_table_says(role: str) -> None:
    """The commands give exactly the rights of the table, however they combine them."""
    rights = rights_of(load_config(CONFIG), role, ["ctr-v2"])
    given = set()
    for command in commands(rights, "User:somebody", "kafka:9092"):
        given |= set(parsed(command))
    assert given == {(right.operation, right.kind, right.name) for right in rights}


def parsed(command: str) -> Iterator[tuple[str, str, str]]:
    """The rights that a kafka-acls.sh command gives, by the documented meaning of its options."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option in ("--bootstrap-server", "--command-config", "--allow-principal"):
        parser.add_argument(option, required=True)
    parser.add_argument("--add", action="store_true", required=True)
    for option in ("--operation", "--topic", "--group", "--transactional-id"):
        parser.add_argument(option, action="append", default=[])
    found = parser.parse_args(shlex.split(command)[1:])
    assert found.allow_principal == "User:somebody"
    for operation in found.operation:
        for kind, names in (
            ("topic", found.topic),
            ("group", found.group),
            ("transactional id", found.transactional_id),
        ):
            yield from ((operation, kind, name) for name in names)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The output of `stream-learner rights` for the configuration of the examples."""
    app(["rights", "-c", str(CONFIG), *arguments], standalone_mode=False)
    return capsys.readouterr().out


def test_rights_as_json_hold_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """`rights --json` has one object a right, with the principal asked for."""
    rows = json.loads(printed(capsys, "--role", "joiner", "--principal", "User:ada", "--json"))
    assert {row["principal"] for row in rows} == {"User:ada"}
    assert {(row["operation"], row["kind"], row["name"]) for row in rows} == {
        (right.operation, right.kind, right.name) for right in rights_of(load_config(CONFIG), "joiner")
    }


def test_a_backfill_has_rights_on_the_new_models_topics_only(capsys: pytest.CaptureFixture[str]) -> None:
    """The inputs may be read; nothing of the live model may be touched, and the control topic only be made where it is
    missing; without a name there is nothing to say."""
    rows = json.loads(printed(capsys, "--role", "backfill", "--as", "ctr-v2", "--json"))
    config = load_config(CONFIG)
    names = {row["name"] for row in rows}
    assert names.isdisjoint({config.examples_topic, config.snapshots_topic, config.dead_letters_topic, config.group})
    changed = {row["name"] for row in rows if row["operation"] in ("Write", "Create", "AlterConfigs")}
    inputs = {config.input.impressions.topic, config.input.clicks.topic}
    assert {name for name in changed - inputs if not name.startswith("ctr-v2.")} == {config.control_topic}
    assert [row["operation"] for row in rows if row["name"] == config.control_topic if not row["without"]] == [
        "DescribeConfigs"
    ]
    with pytest.raises(ConfigError):
        printed(capsys, "--role", "backfill")


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands in docs/security.md are those for configs/minimal.yaml."""
    shown = re.search(r"```\n\$ (stream-learner rights [^\n]*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    arguments = shlex.split(shown[1])[2:]
    assert arguments[:2] == ["-c", "configs/minimal.yaml"]
    app(["rights", "-c", str(MINIMAL), *arguments[2:]], standalone_mode=False)
    assert capsys.readouterr().out.strip() == shown[2].strip()
