"""A learner taken back to a kept checkpoint, on a real Kafka: what it learns from there on, and what is told of it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.errors import DecisionRefused, LogTrimmed, ModelRewound, NotFound, StateInUse
from stream_learner.operations import rewind as operation
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit, verdict
from stream_learner.operations.gate import DecisionRequest
from stream_learner.operations.gate import decide as decide_on
from stream_learner.operations.rewind import RewindRequest, list_kept, rewind
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.checks import assert_model_equals, expected_fold, state_of
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.oracles import loop
from tests.scenarios import Scenario, scenario
from tests.suite.share import cases
from tests.waiting import patience

OPERATOR = "ann@host"


@pytest.fixture(scope="module")
def plain() -> Scenario:
    """Four partitions, a minute of traffic."""
    return scenario("plain")


@pytest.fixture(scope="module")
def expected(plain: Scenario) -> list[loop.Joined]:
    """What the join must make of it."""
    return plain.expected()


def rewindable(make_site: MakeSite, made: Scenario, **learner: Any) -> Site:
    """A site with a control topic of its own, whose learner keeps checkpoints of twenty seconds."""
    control = f"control-{uuid.uuid4().hex[:8]}"
    settings = {"history": ["20s"], "copy_interval": "0ms", "gate": "off", **learner}
    site = make_site(made, topics={"control": control}, learner=settings)
    site.admin.create([TopicPlan(control, 1, configs={"cleanup.policy": "compact"})])
    site.topics.append(control)
    return site


def learn_part(site: Site, share: float = 0.7) -> LearnerRole:
    """The first part joined, learned and published; learner and joiner are stopped."""
    learner, tick = site.learner(), site.tick_closed_by(share)
    site.produce(0.0, share)
    with running(site.joiner(), learner):
        wait_until(lambda: learner.tick >= tick, "every tick of the first part folded")
    return learner


@contextmanager
def learning_rest(site: Site, share: float = 0.7, **roles: Any) -> Iterator[LearnerRole]:
    """A learner that has folded all, and goes on running."""
    learner = site.learner()
    with running(site.joiner(), learner):
        site.produce(share, 1.0)
        wait_until(lambda: site.folded(learner), "every tick folded")
        yield learner


def back(site: Site, tick: int, why: str = "poison") -> dict[str, Any]:
    return rewind(site.config, RewindRequest(tick, OPERATOR, why))


def without(joined: list[loop.Joined], first: int, last: int) -> list[loop.Joined]:
    """The join without the examples of a span of ticks."""
    return [one._replace(examples=[e for e in one.examples if not first <= e.tick <= last]) for one in joined]


def records_of(site: Site) -> ControlTopic:
    return ControlTopic(site.settings, site.config.control_topic)


def shown(site: Site) -> list[tuple[int, str]]:
    """Tick and digest of what is kept, newest first."""
    return [(one["tick"], one["digest"]) for one in list_kept(site.config)]


def test_a_learner_that_went_back_learns_to_the_same_model(
    plain: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """With the log unchanged it ends with the same digest, and keeps the same checkpoints as one that never went back;
    the record says who, when and why, from where and to where; the audit finds nothing."""
    site, other = (rewindable(make_site, plain) for _ in range(2))
    learn_part(other)
    with learning_rest(other) as undisturbed:
        digest = undisturbed.learner.digest()
    first = learn_part(site)
    kept = shown(site)
    assert len(kept) >= 2  # a third one, older, where the first fold ended at a boundary
    with capture_logs() as logged:
        done = back(site, kept[1][0] + 7)
    assert (done["from_tick"], done["to_tick"], done["digest"]) == (first.tick, *kept[1])
    assert [event["to_tick"] for event in logged if event["event"] == "rewound"] == [kept[1][0]]
    (record,) = records_of(site).state.rewinds[site.model].history
    assert (record.to_tick, record.from_tick, record.who, record.note) == (kept[1][0], first.tick, OPERATOR, "poison")
    assert record.when_ms > 1_600_000_000_000
    with capture_logs() as logged, learning_rest(site) as learner:
        assert learner.learner.digest() == digest
        assert_model_equals(learner.learner, expected_fold(expected, plain.settings))
    assert [event["tick"] for event in logged if event["event"] == "learner_started"] == [kept[1][0]]
    assert shown(site) == shown(other)
    report = audit(site.config, AuditRequest(replay=True))
    assert verdict(report) is None, report["findings"]


@pytest.mark.thorough
def test_scorers_are_told_anew_what_the_span_had_changed(
    plain: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """A span is left out after the rewind: a scorer that follows, and one that starts, have the oracle's weights of the
    rest for every row of the poison too, and versions only rise. A lost disk is restored to that state, and the audit
    finds nothing."""
    site = rewindable(make_site, plain)
    learn_part(site)
    kept = shown(site)
    first, last = kept[1][0] + 1, kept[0][0]
    good, poisoned = (expected_fold(one, plain.settings) for one in (without(expected, first, last), expected))
    assert poisoned.state.keys() - good.state.keys(), "some rows are of the span alone"
    with pytest.raises(DecisionRefused, match="too late"):
        decide(site, first, last)
    versions: list[int] = []
    with site.scorer(on_version=versions.append) as scorer:
        scorer.wait_ready(patience())
        back(site, first)
        decide(site, first, last)
        with learning_rest(site) as learner:
            assert state_of(learner.learner) == {key: row for key, row in good.state.items() if any(row)}
            assert learner.learner.digest() != int(poisoned.digest, 16)
            wait_until(lambda: scorer.version == site.end_tick, "the last version")
        with site.scorer() as late:
            late.wait_ready(patience())
            weights = loop.published(good.state, plain.settings)
            for one in (scorer, late):
                assert one.version == site.end_tick
                assert {k: one.weight(k) for k in poisoned.state} == {k: weights.get(k, 0.0) for k in poisoned.state}
    assert versions == sorted(set(versions))
    shutil.rmtree(site.config.state_dir)
    with capture_logs() as logged, learning_rest(site, 1.0) as learner:
        assert state_of(learner.learner) == {key: row for key, row in good.state.items() if any(row)}
    assert [event["tick"] for event in logged if event["event"] == "state_restored"] == [site.end_tick]
    report = audit(site.config, AuditRequest(replay=True))
    assert verdict(report) is None, report["findings"]


def decide(site: Site, first: int, last: int) -> None:
    """Leave a span out."""
    decide_on(site.config, DecisionRequest("skip", first, last, "poison", OPERATOR))


@pytest.mark.thorough
def test_a_state_that_was_left_behind_neither_leads_nor_publishes(plain: Scenario, make_site: MakeSite) -> None:
    """The state of a second learner, the copy of before, and a learner that runs: each ends and says so. The same
    command takes the second one back, no less far than the model, without another record."""
    site = rewindable(make_site, plain)
    second = site.changed(learner={**site.tree["learner"], "state_dir": str(site.folder / "second"), "publish": False})
    follower = site.learner(second)
    with running(follower):
        first = learn_part(site)
        wait_until(lambda: follower.tick >= first.tick, "the second learner has folded all")
    kept = shown(site)
    leads = second.with_values({("learner", "publish"): True})
    done = back(site, kept[1][0])
    before = published_bytes(site)
    error = failure_of(site.learner(leads), ModelRewound)
    assert f"tick {kept[1][0]}" in error.message and "rewind" in error.action
    copied = site.changed(learner={**site.tree["learner"], "state_dir": str(site.folder / "empty")})
    failure_of(site.learner(copied), ModelRewound)
    assert published_bytes(site) == before
    again = rewind(leads, RewindRequest(kept[0][0], OPERATOR, "the standby"))
    assert (again["to_tick"], again["digest"]) == (done["to_tick"], done["digest"])
    assert again["follows"]
    assert len(records_of(site).state.rewinds[site.model].history) == 1
    with learning_rest(site) as learner, running(site.learner(second)):
        digest = learner.learner.digest()
    third = site.learner(leads)
    with running(third):
        wait_until(lambda: site.folded(third), "the second learner has folded all")
        assert third.learner.digest() == digest


def published_bytes(site: Site) -> list[int]:
    """The ends of the snapshots and of the copies: whatever is written moves one."""
    shards = site.config.snapshots.shards
    return [*site.ends(site.config.snapshots_topic, shards), *site.ends(site.config.checkpoints_topic, shards)]


def test_a_learner_that_runs_ends_when_its_model_goes_back(plain: Scenario, make_site: MakeSite) -> None:
    """It may be the leader: what it would publish is what was left."""
    site = rewindable(make_site, plain)
    learn_part(site)
    shutil.copytree(site.config.state_dir, site.folder / "second")
    second = site.changed(learner={**site.tree["learner"], "state_dir": str(site.folder / "second")})
    with pytest.raises(ModelRewound), running(site.learner()) as them:
        rewind(second, RewindRequest(shown(site)[0][0], OPERATOR, "of the second"))
        wait_until(lambda: them.error is not None, "the first one ends")


def test_what_cannot_be_gone_back_to_changes_nothing(plain: Scenario, make_site: MakeSite) -> None:
    """A state in use, a tick too early, a log without what follows, no state at all: each says so, and state, kept
    checkpoints and control topic are as they were."""
    site = rewindable(make_site, plain)
    learner = site.learner()
    with running(site.joiner(), learner):
        site.produce()
        wait_until(lambda: site.folded(learner), "every tick folded")
        with pytest.raises(StateInUse):
            back(site, site.end_tick)
    kept, files = shown(site), content(site)
    with pytest.raises(NotFound, match="no checkpoint of tick 3 or before"):
        back(site, 3)
    for later in (files[1], files[1] + 1_000_000):
        with pytest.raises(NotFound, match=f"tick {files[1]} .* nothing after tick {later} to take"):
            back(site, later)
    trim(site)
    with pytest.raises(LogTrimmed, match="nothing was changed"):
        back(site, kept[1][0])
    with pytest.raises(NotFound, match="holds no state"):
        rewind(site.changed(learner={"state_dir": str(site.folder / "none")}), RewindRequest(5, OPERATOR, "why"))
    assert not (site.folder / "none").exists()
    assert (shown(site), content(site)) == (kept, files)
    assert records_of(site).state.rewinds == {}


def content(site: Site) -> tuple[str, int]:
    """Digest and tick of the state on disk."""
    with operation.open_store(site.config, site.learner().learner, site.partitions) as store:
        loaded = store.load()
        assert loaded is not None
        return f"{loaded.digest:016x}", loaded.version


def trim(site: Site) -> None:
    """Take from the training log all that there is, as its retention does."""
    topic = site.config.examples_topic
    ends = {TopicPartition(topic, p, end) for p, end in enumerate(site.ends(topic, site.partitions))}
    for one in site.plain_admin.delete_records(list(ends)).values():
        one.result()


STEPS = ("copy_out", "amend_head", "swap")


@pytest.mark.parametrize("step", cases(STEPS, ["swap"]))
def test_a_crash_at_any_step_is_mended_by_the_same_command(
    step: str, plain: Scenario, expected: list[loop.Joined], make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the record: a learner goes on as if nothing had been. After it: the learner does not publish what is left
    behind, and the same command goes back without another record."""
    site = rewindable(make_site, plain)
    learn_part(site)
    kept = shown(site)
    with monkeypatch.context() as patch:
        patch.setattr(operation, step, crash)
        with pytest.raises(RuntimeError, match="crash"):
            back(site, kept[1][0])
    recorded = step == "swap"
    assert bool(records_of(site).state.rewinds) == recorded
    if recorded:
        failure_of(site.learner(), ModelRewound)
    assert back(site, kept[1][0])["to_tick"] == kept[1][0]
    assert len(records_of(site).state.rewinds[site.model].history) == 1
    with learning_rest(site) as learner:
        assert_model_equals(learner.learner, expected_fold(expected, plain.settings))
    assert not list(site.config.state_dir.glob("rewound*"))


def crash(*_: object) -> None:
    raise RuntimeError("crash")
