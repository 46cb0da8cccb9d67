"""The least rights of `serve`, `backfill`, `promote` and its like, `diff`, `audit`, `begin-anew`: enough, each needed.

Where a right is missing, each of them says which, of whom, on what; or what the table says is not obeyed, is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from stream_learner.cli import main
from stream_learner.config import Config
from stream_learner.config.values import format_start
from stream_learner.errors import NotAuthorised, StreamLearnerError, TopicMissing
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.backfill.plan import BackfillPlan, Span, make_plan
from stream_learner.operations.backfill.result import Result
from stream_learner.operations.backfill.run import Backfill
from stream_learner.operations.begin_anew import BeginAnewRequest, begin_anew
from stream_learner.operations.delete import DeleteRequest, delete
from stream_learner.operations.diff.run import compare_models
from stream_learner.operations.promote import aliases
from stream_learner.operations.promote.checks import Outcome, PromotionRequest
from stream_learner.operations.promote.run import promote, refusal, rollback
from stream_learner.operations.rights import NOT_ASKED, Right, rights_of
from stream_learner.operations.topics import control_plan, plans
from stream_learner.roles.common.lifecycle import Stopping
from tests.e2e.site import Site, running, wait_published, wait_until
from tests.kafka_broker.broker import delete_topics
from tests.roles.scorer.serve.running import serving
from tests.scenarios import Message, scenario
from tests.security.broker import SPARE, Secured
from tests.security.roles import Roles
from tests.waiting import patience

AT_ONCE = 8
LIMIT_BYTES = 4096
CLICKS_TOO_LARGE = 3
FOREVER_MS = 10**15
ALIAS = "served"
OPERATOR = "operator"


@dataclass
class Live:
    """A model that has learned a scenario, one record of which is no event; and another, for which some clicks are too
    large. Both have published, and nothing of theirs runs any more.
    """

    secured: Secured
    site: Site
    digest: str
    until_ms: int
    other: Config

    @property
    def config(self) -> Config:
        return self.site.config

    def of(self, user: str, **changes: dict[str, Any]) -> Config:
        """The configuration, for a user."""
        return Roles(self.site, lambda name: self.secured.options("PLAIN", name)).config(user, **changes)

    def file_of(self, user: str) -> str:
        """The events as a file."""
        path = self.site.folder / f"{user}.yaml"
        tree = {**self.site.config.shown(), "kafka": dict(self.of(user).kafka_options())}
        path.write_text(json.dumps(tree), encoding="utf-8")
        return str(path)

    def plan(self, name: str, config: Config, *, from_log: bool, fewer: bool = False) -> BackfillPlan:
        """A backfill under another name up to the end; of the same features, or without one of them."""
        if fewer:
            config = config.with_values({("features", "exclude"): [*config.features.exclude, "site"]})
        span = Span("earliest", self.until_ms)
        return make_plan(config, name, span, from_log=self.site.model if from_log else None)


@pytest.fixture(scope="module")
def live(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Made by the super user."""
    made = scenario("plain", 1)
    made = replace(made, clicks=[[*map(padded, made.clicks[0][:CLICKS_TOO_LARGE]), *made.clicks[0][CLICKS_TOO_LARGE:]]])
    site = Site(secured.broker.bootstrap, made, tmp_path_factory.mktemp("live"))
    site.admin.create([control_plan(site.config)])
    site.produce(0, 0.5)
    site.append(site.impressions, 0, b"no event", key=b"x")
    site.produce(0.5, 1)
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(lambda: site.folded(learner), "every tick closed and folded")
    until_ms = (site.end_tick + 1) * site.config.join.tick_ms - site.config.join.window_ms
    strict = site.changed(join={"max_event_bytes": LIMIT_BYTES})
    other = make_plan(strict, f"{site.model}-strict", Span("earliest", until_ms))
    backfilled(other)
    yield Live(secured, site, f"{learner.learner.digest():016x}", until_ms, other.main)
    site.close()


def padded(click: Message) -> Message:
    """A copy of a click with a field that makes it large."""
    assert click.value is not None
    return click._replace(value=json.dumps({**json.loads(click.value), "pad": "x" * LIMIT_BYTES}).encode())


def backfilled(plan: BackfillPlan) -> Result | None:
    """Run a plan to its end."""
    with Backfill(plan) as work:
        return work.run(Stopping(), lambda moment: None)


def rights_for(plan: BackfillPlan) -> list[Right]:
    """The table's, for a plan."""
    variants = [config.model for config in plan.models[1:]]
    return rights_of(plan.main, "backfill", source=plan.source, variants=variants)


def exit_code(*arguments: str) -> int:
    """Run a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def allow(secured: Secured, user: str, rights: Sequence[Right]) -> None:
    """Give rights to a user."""
    secured.allow_all(user, [(r.kind, r.name, r.operation) for r in rights])


@dataclass
class Lack:
    """A user who has all rights but one, and does what needs it."""

    user: str
    rights: Sequence[Right]
    missing: Right
    act: Callable[[], object]

    def allow(self, secured: Secured) -> None:
        """Give the rights; describing stays, so that the lack itself shows, and not that the name is unknown."""
        allow(secured, self.user, [right for right in self.rights if right != self.missing])
        if self.missing.operation != "Describe":
            secured.allow_all(self.user, [(self.missing.kind, self.missing.name, "Describe")])

    def error(self) -> StreamLearnerError | None:
        """The error that the command ended with."""
        try:
            self.act()
        except StreamLearnerError as error:
            return error
        return None

    def assert_named_in(self, text: str) -> None:
        """Assert that a message names the user, the missing right and the resource."""
        right = self.missing
        assert f"{self.user} lacks the right: {right.operation} on {right.kind} {right.name}" in text, (right, text)


def assert_refused(secured: Secured, lacks: Sequence[Lack]) -> None:
    """All at once, each as a user of its own: NotAuthorised, exit code 23, with the user, the right, the resource."""
    assert lacks
    for lack in lacks:
        lack.allow(secured)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(Lack.error, lacks))
    for lack, error in zip(lacks, found, strict=True):
        assert isinstance(error, NotAuthorised), (lack.missing, error)
        assert error.exit_code == 23
        lack.assert_named_in(str(error))


@pytest.mark.parametrize("from_log", [False, True], ids=["joins", "folds a log"])
def test_a_backfill_needs_no_other_rights(
    from_log: bool, live: Live, secured: Secured, capsys: pytest.CaptureFixture[str]
) -> None:
    """To its end, a variant beside it; the digest is the live model's. Said again, it goes on, with the same rights."""
    name = f"{live.site.model}-{'folded' if from_log else 'joined'}"
    variant = f"{name}-b"
    config = live.config
    plan = make_plan(config, name, Span(), from_log=live.site.model if from_log else None, variants={variant: config})
    allow(secured, OPERATOR, rights_for(plan))
    command = ["backfill", "-c", live.file_of(OPERATOR), "--as", name, "--until", format_start(live.until_ms)]
    command += ["--from-log", live.site.model] if from_log else ["--from", "earliest"]
    for _ in range(2):
        assert exit_code(*command, "--variant", f"{variant}:learner.optimizer.alpha=0.7", "--json") == 0
        found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
        assert found["model"]["digest"] == live.digest
        assert [one["model"]["name"] for one in found["models"]] == [name, variant]


@pytest.mark.parametrize("from_log", [False, True], ids=["joins", "folds a log"])
def test_a_backfill_stops_without_any_one_of_its_rights(from_log: bool, live: Live, secured: Secured) -> None:
    """Each a backfill of its own; that of a log leaves a feature out. What the control topic says is not obeyed."""
    control = live.config.control_topic
    lacks = list(backfills_that_lack(live, from_log))
    of_retention = [lack for lack in lacks if lack.missing.operation == "DescribeConfigs" and lack.missing.without]
    assert len(of_retention) == (0 if from_log else 2)
    assert_done(secured, of_retention)
    assert_refused(secured, [lack for lack in lacks if lack.missing.name != control and lack not in of_retention])
    of_control = [lack for lack in lacks if lack.missing.name == control]
    if from_log:
        assert [lack.missing.operation for lack in of_control] == ["Read", "Write"]
        assert_done(secured, of_control)
        return
    making, describing, reading, writing = of_control
    assert_done(secured, [reading, writing])
    assert_refused(secured, [describing])
    delete_topics(live.site.settings.bootstrap, [control])
    assert_refused(secured, [making])
    live.site.admin.create([control_plan(live.config)])
    assert_done(secured, [making])


def backfills_that_lack(live: Live, from_log: bool) -> Iterator[Lack]:
    """For each right, a backfill of its own, so far that the right is needed."""
    for number, user in enumerate(SPARE):
        name = f"{live.site.model}-{from_log:d}{number}"
        plan, begun = (live.plan(name, of, from_log=from_log, fewer=from_log) for of in (live.of(user), live.config))
        rights = rights_for(plan)
        if number == len(rights):
            return
        right = rights[number]
        if right.operation == "DescribeConfigs":
            live.site.admin.create(plans(plan.main, 1))
        if (right.operation, right.name) == ("Read", plan.main.snapshots_topic):
            backfilled(begun)
        yield Lack(user, rights, right, lambda plan=plan: backfilled(plan))
    raise AssertionError("too few users")


def assert_done(secured: Secured, lacks: Sequence[Lack]) -> None:
    """Give each missing right, and assert that the command then succeeds."""
    for lack in lacks:
        lack.allow(secured)
        assert lack.error() is None


@pytest.mark.parametrize("may_read", [True, False], ids=["with the right", "without"])
def test_a_learner_obeys_a_pause_only_where_it_may_read_the_control_topic(
    may_read: bool, live: Live, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """With the right it folds and publishes nothing; without, it publishes, and its log names the right."""
    user = "learner"
    config = live.plan(f"{live.site.model}-paused-{may_read:d}", live.of(user), from_log=True).main
    own = (config.snapshots_topic, config.checkpoints_topic)
    live.site.admin.create([plan for plan in plans(config, 1) if plan.name in own])
    aliases.set_paused(live.config, config.model, True, "test", "")
    rights = rights_of(config, user)
    (reading,) = (right for right in rights if (right.operation, right.name) == ("Read", config.control_topic))
    lack = Lack(user, rights, reading, lambda: fold(live, config))
    if may_read:
        allow(secured, user, rights)
    else:
        lack.allow(secured)
    with caplog.at_level("WARNING", "stream_learner"):
        lack.act()
    wait_published(live.site, config, -1 if may_read else live.site.end_tick)
    assert ("control_topic_not_read" in caplog.text) != may_read
    if not may_read:
        lack.assert_named_in(caplog.text)


def fold(live: Live, config: Config) -> None:
    """Run a learner until it has folded the log, then stop it."""
    learner = live.site.learner(config)
    with running(learner):
        wait_until(lambda: live.site.folded(learner), "every tick folded")


def asked(url: str, name: str) -> httpx.Response:
    """One event to predict."""
    return httpx.post(f"{url}/v1/models/{name}:predict", json={"instances": [{"id": "x", "site": "site-1"}]})


def served(live: Live, user: str) -> Config:
    """The settings of `serve`: the model, and an alias of it."""
    return live.of(user, serve={"drain": "0s", "models": [live.site.model], "aliases": [ALIAS]})


@pytest.fixture
def aliased(live: Live) -> Live:
    """An alias points at the model."""
    wish = PromotionRequest(ALIAS, live.site.model, "test", forced=True)
    assert promote(live.config, wish, max_lag_ms=FOREVER_MS, tolerance=0.0).done
    return live


def test_serve_needs_no_other_rights(aliased: Live, secured: Secured) -> None:
    """A model and an alias answer the same over HTTP, as a scorer of the super user does."""
    config = served(aliased, OPERATOR)
    allow(secured, OPERATOR, rights_of(config, "serve"))
    with serving(config) as server, aliased.site.scorer() as scorer:
        scorer.wait_ready(patience())
        expected = scorer.predict({"id": "x", "site": "site-1"}).p_click
        for name in (aliased.site.model, ALIAS):
            answer = asked(server.url, name)
            assert answer.status_code == 200, answer.text
            assert answer.json()["predictions"] == pytest.approx([expected], abs=1e-7)


def test_serve_is_not_ready_without_the_snapshots(
    aliased: Live, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers 503, and its log says why, where it may only describe them; where not even that, it stops."""
    config = served(aliased, "scorer")
    rights = rights_of(config, "serve")
    lack = Lack("scorer", rights, rights[0], lambda: None)
    assert lack.missing.name == aliased.config.snapshots_topic
    lack.allow(secured)
    with caplog.at_level("WARNING", "stream_learner"), serving(config, ready=False) as server:
        wait_until(lambda: caplog.text.count("scorer_ended") == 2, "both names have said why")
        for name in (aliased.site.model, ALIAS):
            answer = asked(server.url, name)
            assert answer.status_code == 503
            lack.assert_named_in(answer.text)
        assert httpx.get(f"{server.url}/v2/health/ready").status_code == 503
    lack.assert_named_in(caplog.text)
    secured.forbid_all("scorer")
    allow(secured, "scorer", rights[1:])
    with pytest.raises(NotAuthorised, match=f"Describe on topic {lack.missing.name}"), serving(config, ready=False):
        pass


def test_serve_without_the_control_topic_serves_models_and_no_alias(
    aliased: Live, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """The alias is not ready; the model answers, and does not obey a pin."""
    config = served(aliased, "scorer")
    rights = rights_of(config, "serve")
    lack = Lack("scorer", rights, rights[1], lambda: None)
    assert lack.missing.name == config.control_topic
    lack.allow(secured)
    with caplog.at_level("WARNING", "stream_learner"), serving(config, ready=False) as server:
        wait_until(lambda: asked(server.url, aliased.site.model).status_code == 200, "the model answers")
        wait_until(lambda: "lacks the right" in asked(server.url, ALIAS).text, "the alias says why")
        refused = asked(server.url, ALIAS)
        assert refused.status_code == 503
        lack.assert_named_in(refused.text)
    assert "control_topic_not_read" in caplog.text


CONTROL_COMMANDS = (
    ("promote", "{model}", "--alias", ALIAS, "--max-lag", "99999d"),
    ("promote", "{other}", "--alias", ALIAS, "--force"),
    ("rollback", "--alias", ALIAS),
    ("alias", "list"),
    ("alias", "show", ALIAS),
    ("pause",),
    ("resume",),
    ("pin", ALIAS),
    ("unpin", ALIAS),
    ("alias", "delete", ALIAS),
)


def test_promotion_needs_no_other_rights(live: Live, secured: Secured) -> None:
    """Every command that reads or writes the control topic ends well."""
    allow(secured, OPERATOR, rights_of(live.config, "promote", [live.other.model]))
    names = {"{model}": live.site.model, "{other}": live.other.model}
    for command in CONTROL_COMMANDS:
        words = [names.get(word, word) for word in command]
        assert exit_code(*words, "-c", live.file_of(OPERATOR)) == 0, command


def test_promotion_refuses_without_any_one_of_its_rights(aliased: Live, secured: Secured) -> None:
    """Without the control topic it stops; without a model's snapshots it is refused, unless forced."""
    control = aliased.config.control_topic
    acts: list[Callable[[Config], object]] = [
        lambda config: promote(config, wish(aliased, forced=True), max_lag_ms=FOREVER_MS, tolerance=0.0),
        lambda config: rollback(config, PromotionRequest(ALIAS, aliased.other.model, "test", forced=True)),
        lambda config: aliases.set_paused(config, aliased.site.model, True, "test", ""),
        lambda config: aliases.set_paused(config, aliased.site.model, False, "test", ""),
        lambda config: aliases.set_pin(config, aliased.site.model, None, "test", ""),
    ]
    rights = rights_of(aliased.config, "promote", [aliased.other.model])
    of_control = [right for right in rights if right.name == control]
    assert len(of_control) == 2
    pairs = [(act, right) for right in of_control for act in acts]
    assert_refused(secured, [lack_of(aliased, user, rights, r, a) for user, (a, r) in zip(SPARE, pairs, strict=False)])
    (seen,) = [right for right in rights if right.name == aliased.other.snapshots_topic]
    asks = wish(aliased)
    lack = lack_of(aliased, OPERATOR, rights, seen, lambda config: promote(config, asks, max_lag_ms=1, tolerance=0.0))
    lack.allow(secured)
    outcome = lack.act()
    assert isinstance(outcome, Outcome)
    error = refusal(outcome)
    assert error is not None
    assert error.exit_code == 56
    lack.assert_named_in(str(error))
    forced = promote(aliased.of(OPERATOR), wish(aliased, forced=True), max_lag_ms=1, tolerance=0.0)
    assert forced.done
    (own,) = [right for right in rights if right.name == aliased.config.snapshots_topic]
    secured.forbid_all(OPERATOR)
    assert_refused(secured, [lack_of(aliased, OPERATOR, rights, own, acts[-1])])


def wish(live: Live, *, forced: bool = False) -> PromotionRequest:
    """Point the alias at the other model."""
    return PromotionRequest(ALIAS, live.other.model, "test", forced=forced)


def lack_of(live: Live, user: str, rights: Sequence[Right], right: Right, act: Callable[[Config], object]) -> Lack:
    """A user's lack, and what it does with its configuration."""
    return Lack(user, rights, right, lambda: act(live.of(user)))


def test_diff_needs_no_other_rights(live: Live, secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models whose labels differ, and the clicks that made the difference."""
    allow(secured, OPERATOR, rights_of(live.config, "diff", [live.other.model]))
    assert exit_code("diff", live.site.model, live.other.model, "-c", live.file_of(OPERATOR), "--json") == 57
    found = json.loads(capsys.readouterr().out)
    assert any(entry.get("clicks") for entry in found["listed"] if entry["what"] == "label")


def test_diff_stops_without_any_one_of_its_rights(live: Live, secured: Secured) -> None:
    """The logs, the snapshots, and where labels differ the clicks."""
    rights = rights_of(live.config, "diff", [live.other.model])
    assert_refused(
        secured,
        [
            lack_of(live, user, rights, right, lambda config: compare_models(config, config.renamed(live.other.model)))
            for user, right in zip(SPARE, rights, strict=False)
        ],
    )


def test_audit_needs_no_other_rights(live: Live, secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    """With a replay: inputs, log, dead letters and snapshots are read, the group's offsets looked up."""
    allow(secured, OPERATOR, rights_of(live.config, "audit"))
    assert exit_code("audit", "-c", live.file_of(OPERATOR), "--replay", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checks"]["committed"]["checked"] > 0
    assert found["checks"]["dead_letters"]["checked"] > 0


def test_audit_stops_without_any_one_of_its_rights(live: Live, secured: Secured) -> None:
    """Each topic that it reads, and the group."""
    rights = rights_of(live.config, "audit")
    lacks = [
        lack_of(live, user, rights, right, lambda config: audit(config, AuditRequest(replay=True)))
        for user, right in zip(SPARE, rights, strict=False)
    ]
    assert_refused(secured, [lack for lack in lacks if lack.missing.operation != "Describe"])
    (of_group,) = [lack for lack in lacks if lack.missing.operation == "Describe"]
    allow(secured, of_group.user, [right for right in rights if right != of_group.missing])
    error = of_group.error()
    assert isinstance(error, NotAuthorised)
    of_group.assert_named_in(str(error))


def test_begin_anew_stops_without_any_one_of_its_rights(live: Live, secured: Secured) -> None:
    """Each topic, of the log also Write where that is told. Without the group's it shows what it would do."""
    rights = rights_of(live.config, "begin-anew")
    lacks = [
        lack_of(live, user, rights, right, lambda config, write=right.operation == "Write": shown(config, write=write))
        for user, right in zip(SPARE, rights, strict=False)
    ]
    (of_group,) = [lack for lack in lacks if lack.missing.without == NOT_ASKED]
    refused = [lack for lack in lacks if lack is not of_group]
    assert_refused(secured, [lack for lack in refused if lack.missing.operation != "Describe"])
    for lack in [lack for lack in refused if lack.missing.operation == "Describe"]:
        allow(secured, lack.user, [right for right in rights if right != lack.missing])
        assert isinstance(lack.error(), (NotAuthorised, TopicMissing))
    allow(secured, of_group.user, [right for right in rights if right != of_group.missing])
    assert of_group.error() is None


def shown(config: Config, *, write: bool) -> object:
    """The report of `begin-anew`, or that of its writing."""
    return begin_anew(config, BeginAnewRequest(write=write))


def test_delete_needs_no_other_rights(live: Live, secured: Secured) -> None:
    """Where one is missing it says so, and goes on later where it has stopped. Last: it takes the other model away, and
    the alias that another test has pointed at it."""
    write = DeleteRequest(write=True, force=True, who="test")
    config = live.of(OPERATOR).renamed(live.other.model)
    rights = rights_of(config, "delete")
    lacking = live.of(SPARE[0]).renamed(live.other.model)
    allow(secured, SPARE[0], [right for right in rights if (right.operation, right.name) != ("Delete", config.group)])
    with pytest.raises(NotAuthorised, match=config.group):
        delete(lacking, write)
    allow(secured, OPERATOR, rights)
    assert "topic" in {row["kind"] for row in delete(config, write)["found"]}
    assert {row["kind"] for row in delete(config, write)["found"]} == {"transactional id"}
