"""The gate on a real Kafka: everyone who folds a log holds at one tick, and goes on to one model by one decision."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from stream_learner.adapters.kafka import Appender
from stream_learner.config import Config
from stream_learner.core.control.records import LogDecision
from stream_learner.core.gate.decisions import Decision
from stream_learner.errors import DecisionRefused, NotFound, OtherDecisions
from stream_learner.evaluate.log_source import LogSource
from stream_learner.operations import gate
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.backfill.plan import Span, make_plan
from stream_learner.operations.backfill.progress import BackfillStatus
from stream_learner.operations.backfill.run import Backfill
from stream_learner.operations.gate import DecisionRequest
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.lifecycle import Stopping
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.backfills import backfilled
from tests.e2e.conftest import MakeSite
from tests.e2e.gated_log import EXAMPLES, FIRST, PARTITIONS, Gated, Ticks, folded, make_gated, wait_folded, wait_held
from tests.e2e.site import failure_of, running, wait_published, wait_until
from tests.waiting import patience

DEAD = Ticks(150, 170)
DEAD_TICKS = range(DEAD.first, DEAD.last + 1)
TICKS = 200
END = FIRST + TICKS - 1


@pytest.fixture
def gated(make_site: MakeSite) -> Gated:
    return make_gated(make_site)


def decide(config: Config, what: Any, first: int | None, last: int | None, reason: str = "dead clicks") -> Any:
    return gate.decide(config, DecisionRequest(what, first, last, reason, "ann@host"))


def shown_late(config: Config) -> dict[str, bool]:
    """What `gate status` says of each decision: whether it came too late."""
    return {row["decision"]: row["late"] for row in gate.status(config)["decisions"]}


def digests(*roles: LearnerRole) -> set[str]:
    """The digests of all models of these learners."""
    return {f"{one.learner.digest():016x}" for role in roles for one in role.models}


def rows(*roles: LearnerRole) -> set[int]:
    """The digests of the rows of all models of these learners."""
    return {one.learner.table.rows_digest for role in roles for one in role.models}


def test_all_hold_at_one_tick_and_skip_to_one_model(gated: Gated) -> None:
    """Live, as a standby, after a restart, after a lost disk and under another name: one tick is held, and by one
    decision one model comes of it: to the row, that of the log without the examples that were left out."""
    config = gated.config()
    gated.write(100)
    live, standby = gated.learner(config), gated.learner(gated.config("standby"), standby=True)
    with gated.site.scorer() as scorer, running(live), running(standby):
        wait_folded(FIRST + 99, live, standby)
        gated.write(TICKS - 100, dead=DEAD_TICKS)
        held = wait_held(live, standby)
        assert FIRST + DEAD.first <= held <= FIRST + DEAD.first + 2
        wait_published(gated.site, config, held - 1)
        wait_until(lambda: scorer.version == held - 1, "the last good version is served")
        assert live.why_not_ready.startswith("held: ") and "stream-learner gate status" in live.why_not_ready
        wait_until(lambda: gate.status(config)["state"] == "held", "the learner says so")
        assert gate.status(config)["tick"] == held
        before = digests(live, standby)
        assert len(before) == 1
    shutil.rmtree(config.state_dir)
    lost, kept, other = (
        gated.learner(one) for one in (config, gated.config("standby", publish=False), gated.other("o"))
    )
    with running(lost), running(kept), running(other):
        assert wait_held(lost, kept, other) == held
        assert digests(lost, kept, other) == before
        decide(config, "skip", held, FIRST + DEAD.last)
        wait_folded(END, lost, kept, other)
        assert not lost.why_not_ready
        published = wait_published(gated.site, config, END)
        wait_until(lambda: gate.status(config)["state"] == "open", "the learner says so")
        after = digests(lost, kept, other)
    left_out = range(held - FIRST, DEAD.last + 1)
    wanted = folded(config, TICKS, dead=DEAD_TICKS, without=left_out)
    assert rows(lost, kept, other) == {wanted.table.rows_digest}
    assert len(after) == 1 and f"{wanted.digest():016x}" not in after
    assert {f"{version.digest:016x}" for version in published.versions if version is not None} == after
    shutil.rmtree(config.state_dir)
    again, later = gated.learner(config), gated.learner(gated.other("later"))
    with running(again), running(later):
        wait_folded(END, again, later)
        assert digests(again, later) == after
    checks = audit(config, AuditRequest(replay=True))["checks"]
    assert checks["digests_again"]["status"] == "holds", checks["digests_again"]


@pytest.mark.thorough
def test_a_backfill_from_the_log_waits_says_so_and_takes_the_decision(gated: Gated) -> None:
    """It holds where the live model did, and shows that; with the decision it comes to the end, its examples add up,
    and `evaluate --log` reads what it has learned."""
    config = gated.config()
    gated.write(TICKS, dead=DEAD_TICKS)
    with running(live := gated.learner(config)):
        held = wait_held(live)
        wait_published(gated.site, config, held - 1)
        until_ms = gated.site.config.join.tick_ms * (END + 1) - config.join.window_ms
        plan = make_plan(config, gated.name("filled"), Span(until_ms=until_ms), from_log=config.model)
        assert plan.until_tick == END
        stopping = Stopping()

        def look(status: BackfillStatus) -> None:
            if "held: " in status.waits:
                stopping.set()

        with Backfill(plan) as work:
            assert work.run(stopping, look) is None
        decide(config, "skip", held, FIRST + DEAD.last)
        wait_folded(END, live)
        filled = backfilled(plan).models[0]
        assert {filled.model["digest"]} == digests(live)
        learned = live.learner.examples
    assert filled.examples == TICKS * PARTITIONS * EXAMPLES > learned
    assert sum(len(record) for block in LogSource(config).blocks() for record in block) == learned


def test_what_came_in_time_and_what_came_too_late_is_so_in_every_replay(gated: Gated) -> None:
    """A skip of ticks to come is taken without a hold. One that comes too late is left out, said, and left out too by
    the fold of an empty disk that knows it from the beginning, and by an audit."""
    config = gated.config()
    gated.write(20)
    with running(live := gated.learner(config)):
        wait_folded(FIRST + 19, live)
        ahead = decide(config, "skip", FIRST + 25, FIRST + 29, "a test of the shop")
        gated.write(20)
        wait_folded(FIRST + 39, live)
        late = Decision.make("skip", FIRST + 30, FIRST + 50, who="ann", when_ms=1, why="not through the command")
        ControlTopic(gated.site.settings, config.control_topic).write(LogDecision(config.examples_topic, late))
        wait_until(lambda: live.models[0].gate.late == (late.id,), "it came too late")
        gated.write(20)
        wait_folded(FIRST + 59, live)
        wait_published(gated.site, config, FIRST + 59)
        wanted = {ahead["decision"]: False, late.id: True}
        wait_until(lambda: shown_late(config) == wanted, "the learner says so")
        found = digests(live)
    assert rows(live) == {folded(config, 60, without=range(25, 30)).table.rows_digest}
    with running(again := gated.learner(gated.config("empty", copies=False))):
        wait_folded(FIRST + 59, again)
        assert digests(again) == found and again.models[0].gate.late == (late.id,)
    checks = audit(config, AuditRequest(replay=True))["checks"]
    assert checks["digests_again"]["status"] == "holds", checks["digests_again"]


@pytest.mark.thorough
def test_a_state_that_missed_a_decision_of_the_published_model_neither_leads_nor_publishes(gated: Gated) -> None:
    """It had folded on before the decision came; the one that leads took it. Emptied, it is the same model."""
    config, second = gated.config(), gated.config("second")
    gated.write(20)
    with running(first := gated.learner(config)):
        wait_folded(FIRST + 19, first)
    shutil.copytree(config.state_dir, second.state_dir)
    gated.write(20)
    with running(ahead := gated.learner(gated.config("second", publish=False))):
        wait_folded(FIRST + 39, ahead)
    ahead_of_all = decide(config, "skip", FIRST + 25, FIRST + 29, "a test of the shop")
    with running(first := gated.learner(config)):
        wait_folded(FIRST + 39, first)
    wait_published(gated.site, config, FIRST + 39)
    error = failure_of(gated.learner(second), OtherDecisions)
    assert ahead_of_all["decision"] in str(error)
    assert shown_late(config) == {ahead_of_all["decision"]: False}
    shutil.rmtree(second.state_dir)
    with running(again := gated.learner(second)):
        wait_folded(FIRST + 39, again)
        assert digests(again) == digests(first)
    assert audit(config, AuditRequest(replay=True))["checks"]["digests_again"]["status"] == "holds"


def write_decision(gated: Gated, config: Config, first: int, last: int) -> Decision:
    """A decision that the command would refuse."""
    decision = Decision.make("skip", first, last, who="ann", when_ms=1, why="not through the command")
    ControlTopic(gated.site.settings, config.control_topic).write(LogDecision(config.examples_topic, decision))
    return decision


def crashed(gated: Gated, config: Config) -> None:
    """Fold 20 ticks into a checkpoint, publish 20 more, and crash before the next checkpoint."""
    gated.write(20)
    with running(first := gated.learner(config)):
        wait_folded(FIRST + 19, first)
    kept = gated.site.folder / "kept"
    shutil.copytree(config.state_dir, kept)
    gated.write(20)
    with running(first := gated.learner(config)):
        wait_folded(FIRST + 39, first)
        wait_published(gated.site, config, FIRST + 39)
    shutil.rmtree(config.state_dir)
    kept.rename(config.state_dir)


@pytest.mark.thorough
def test_a_decision_found_late_by_a_learner_that_crashed_before_it_said_so_is_late_for_the_next(gated: Gated) -> None:
    """The next one begins before the decision's first tick. It goes by what is published, and says what it finds."""
    config = gated.config(copies=False)
    crashed(gated, config)
    late = write_decision(gated, config, FIRST + 30, FIRST + 50)
    gated.write(20)
    with running(again := gated.learner(config)):
        wait_folded(FIRST + 59, again)
        wait_published(gated.site, config, FIRST + 59)
        wait_until(lambda: shown_late(config) == {late.id: True}, "the learner says so")
    assert rows(again) == {folded(config, 60).table.rows_digest}


@pytest.mark.thorough
def test_courses_are_compared_again_before_the_first_publication_of_a_term(gated: Gated) -> None:
    """A crash, and a decision of the published model that is gone: where the term began nothing differed."""
    config = gated.config(copies=False)
    ahead = write_decision(gated, config, FIRST + 25, FIRST + 29)
    crashed(gated, config)
    appender = Appender(gated.site.settings)
    appender.append(config.control_topic, 0, None, key=LogDecision(config.examples_topic, ahead).key)
    appender.flush(patience())
    appender.close()
    gated.write(20)
    error = failure_of(gated.learner(config), OtherDecisions)
    assert ahead.id in str(error)
    shards = config.snapshots.shards
    last = read_last_publication(gated.site.settings, gated.site.admin.offsets, config.snapshots_topic, shards)
    assert last.model is not None and last.model.stamp.version == FIRST + 39


@pytest.mark.thorough
def test_a_state_that_names_decisions_is_not_folded_on_without_the_control_topic(gated: Gated) -> None:
    """There may be others by now. It says what it waits for; with the topic it goes on."""
    config = gated.config(publish=False)
    gated.write(20)
    with running(first := gated.learner(config)):
        wait_folded(FIRST + 19, first)
    decide(config, "skip", FIRST + 25, FIRST + 29, "a test of the shop")
    gated.write(20)
    with running(first := gated.learner(config)):
        wait_folded(FIRST + 39, first)
    gated.write(20)
    tree = config.model_dump(mode="json", by_alias=True)
    nowhere = Config.model_validate(
        {**tree, "kafka": gated.site.tree["kafka"], "topics": {**tree["topics"], "control": "there-is-none"}}
    )
    with running(role := gated.learner(nowhere)):
        wait_until(lambda: "a model was learned with some" in role.why_not_ready, "it says what it waits for")
        wait_until(lambda: role._loop is not None and role._loop.follower.read_bytes > 0, "it reads the log")
        assert "there is no control topic" in role.why_not_ready and "topics ensure" in role.why_not_ready
        assert role.tick == FIRST + 39
    with running(role := gated.learner(config)):
        wait_folded(FIRST + 59, role)


def test_accept_goes_on_and_several_models_hold_together(gated: Gated) -> None:
    """Two models in one pass hold and go on together; `accept` learns what was held."""
    config, other = gated.config(), gated.other("b")
    gated.write(TICKS, dead=DEAD_TICKS)
    role, alone = gated.learner(config, other), gated.learner(gated.other("alone"))
    with running(role), running(alone):
        held = wait_held(role, alone)
        wait_until(lambda: all(one.gate.holding is not None for one in role.models), "both models hold")
        assert [one.tick for one in role.models] == [held - 1, held - 1]
        wait_until(lambda: gate.status(config)["state"] == "held", "the learner says so")
        assert decide(config, "accept", None, FIRST + DEAD.last)["from_tick"] == held
        wait_folded(END, role, alone)
        found = digests(role, alone)
    assert len(found) == 1
    assert rows(role) == {folded(config, TICKS, dead=DEAD_TICKS).table.rows_digest}


def test_nothing_is_folded_before_the_decisions_are_known(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """While brokers do not answer for the control topic the learner waits, and says so; a topic that is missing has no
    decisions."""
    gated.write(5)
    monkeypatch.setattr(ControlWatch, "is_settled", False)
    with running(role := gated.learner(gated.config())):
        wait_until(lambda: "has not read the decisions" in role.why_not_ready, "it says what it waits for")
        wait_until(lambda: role._loop is not None and role._loop.follower.read_bytes > 0, "it reads the log")
        assert role.tick == -1
        monkeypatch.undo()
        wait_folded(FIRST + 4, role)
    nowhere = gated.site.changed(
        topics={"control": "there-is-none"}, learner={"state_dir": str(gated.site.folder / "n")}
    )
    with running(role := gated.learner(nowhere)):
        wait_folded(FIRST + 4, role)


def test_what_must_not_be_decided(gated: Gated) -> None:
    """Ticks that are published, no ticks, no reason, another model, milliseconds in the place of ticks."""
    config = gated.config()
    gated.write(20)
    with running(role := gated.learner(config)):
        wait_folded(FIRST + 19, role)
        wait_published(gated.site, config, FIRST + 19)
    for first, last, reason, words in (
        (FIRST + 19, FIRST + 30, "why", "rewind"),
        (FIRST + 40, FIRST + 30, "why", "no span"),
        (None, FIRST + 30, "why", "holds no tick"),
        (FIRST + 40, FIRST + 50, " ", "needs a reason"),
        (FIRST + 40, FIRST * 60_000, "why", "more than a day ahead"),
    ):
        with pytest.raises(DecisionRefused) as refused:
            decide(config, "skip", first, last, reason)
        assert words in f"{refused.value.message} {refused.value.action}"
    with pytest.raises(NotFound, match="there is no model nobody"):
        decide(config.renamed("nobody"), "skip", FIRST + 40, FIRST + 50)
    assert gate.status(config)["decisions"] == []
