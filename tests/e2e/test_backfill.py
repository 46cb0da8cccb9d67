"""Backfills on a real Kafka: equal to live; spans, logs of other models, variants, rates, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.cli import main
from stream_learner.config import Config
from stream_learner.core.control.records import Publication
from stream_learner.errors import ConfigError, RetryLater
from stream_learner.operations.backfill import run as backfill
from stream_learner.operations.backfill.plan import Span, last_tick, make_plan
from stream_learner.operations.backfill.progress import BackfillStatus
from stream_learner.operations.backfill.result import as_object
from stream_learner.operations.backfill.run import Backfill
from stream_learner.operations.topics import control_plan
from stream_learner.roles.common.lifecycle import Stopping
from stream_learner.roles.control.topic import ControlTopic
from tests.e2e.backfills import PARTITIONS, Live, backfilled, live_model
from tests.e2e.checks import balance_of, expected_fold
from tests.e2e.site import wait_published
from tests.e2e.training_log import LogReader
from tests.scenarios import Scenario
from tests.waiting import patience


@pytest.fixture(scope="module")
def live(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """All that goes wrong in the field, joined and learned once."""
    with live_model(kafka, tmp_path_factory.mktemp("live")) as found:
        yield found


def test_its_end_is_about_impressions_and_the_next_end_goes_on_from_it(live: Live) -> None:
    """Up to a moment: every example shown before it and none shown at or after it; every partition's log ends with
    exactly that tick; the next run goes on to a later one."""
    name = live.name("ends")
    shown = sorted(example.log_time_ms for part in live.joined for example in part.examples)
    on_a_tick = next(
        t
        for t, later in pairwise(sorted(set(shown[len(shown) // 3 :])))
        if (t + live.window_ms) % live.tick_ms == 0 and later < t + live.tick_ms
    )
    for until_ms in (on_a_tick, on_a_tick + 1, shown[2 * len(shown) // 3]):
        tick = last_tick(until_ms, live.window_ms, live.tick_ms)
        plan = make_plan(live.site.config, name, Span(until_ms=until_ms))
        result = backfilled(plan)
        model = live.fold(tick)
        assert plan.until_tick == result.models[0].model["version"] == tick
        assert result.models[0].model["digest"] == model.digest
        before = sum(t < until_ms for t in shown)
        on_an_edge = (until_ms + live.window_ms) % live.tick_ms == 0
        assert before == model.folded if on_an_edge else before < model.folded
        assert result.balance["impressions"]["examples"] == model.folded
        assert {marks[-1].last_tick for marks in marks_of(live, plan.main)} == {tick}


def marks_of(live: Live, config: Config) -> list[list[Any]]:
    """The accepted marks of each partition of another model's log."""
    topic, found = config.examples_topic, []
    for partition, end in enumerate(live.site.ends(topic, PARTITIONS)):
        reader = LogReader(live.site.settings, topic, partition)
        found.append(reader.read(end).marks)
        reader.close()
    return found


def test_it_begins_at_the_records_of_a_moment(live: Live) -> None:
    """The result is that of a site whose topics hold nothing before the moment."""
    name = live.name("later")
    middle_ms = live.site.scenario.impressions[0][len(live.site.scenario.impressions[0]) // 2].timestamp_ms
    parts = [
        [part[next(i for i, m in enumerate(part) if m.timestamp_ms >= middle_ms) :] for part in topic]
        for topic in (live.site.scenario.impressions, live.site.scenario.clicks)
    ]
    rest: Scenario = replace(live.site.scenario, impressions=parts[0], clicks=parts[1])
    result = backfilled(make_plan(live.site.config, name, Span(middle_ms, live.until_ms)))
    assert result.models[0].model["digest"] == expected_fold(rest.expected(), rest.settings).digest
    with pytest.raises(ConfigError, match=r"begun with --from 2.*, not 2"):
        backfilled(make_plan(live.site.config, name, Span(middle_ms + 1, live.until_ms)))
    for section, change in (("features", {"exclude": ["site"]}), ("input", {"time_unit": "iso"})):
        changed = live.site.changed(**{section: {**live.site.tree[section], **change}})
        with pytest.raises(ConfigError, match=f"begun with other settings of {section}"):
            backfilled(make_plan(changed, name, Span(middle_ms, live.until_ms)))


@pytest.mark.thorough
def test_variants_and_a_log_that_is_there_give_the_models_of_runs_alone(live: Live) -> None:
    """Three models in one pass, joined, and three from live's log: by alpha, each is the oracle's."""
    alphas = (0.02, 0.3, 1.0)
    objects = []
    for label, from_log in (("joined", None), ("folded", live.model)):
        names = [live.name(f"{label}{number}") for number in range(3)]
        configs = [live.site.changed(learner={**learner_of(live), "optimizer": optimizer_of(live, a)}) for a in alphas]
        variants = dict(zip(names[1:], configs[1:], strict=True))
        plan = make_plan(configs[0], names[0], Span(until_ms=live.until_ms), from_log=from_log, variants=variants)
        objects.append(as_object(backfilled(plan)))
    expected = [live.fold(live.site.end_tick, alpha=alpha).digest for alpha in alphas]
    for found in objects:
        assert [each["model"]["digest"] for each in found["models"]] == expected
        assert found["models"][0] == {"model": found["model"], "metrics": found["metrics"]}
        assert {side: found[side] for side in ("impressions", "clicks")} == balance_of(live.site).to_dict()
    assert [each["metrics"] for each in objects[0]["models"]] == [each["metrics"] for each in objects[1]["models"]]


def test_a_paused_model_is_waited_for_and_the_page_says_how_it_goes_on(live: Live) -> None:
    """Everything is learned, one of two models may not be published: the command that resumes it is named, and with it
    the backfill ends as any other."""
    names = [live.name("paused"), live.name("unpaused")]
    topic = f"{names[0]}.control"
    config = live.site.changed(topics={**live.site.tree.get("topics", {}), "control": topic})
    live.site.admin.create([control_plan(config)])
    live.site.topics.append(topic)
    control = ControlTopic(live.site.settings, topic)
    control.write(Publication(names[0], True, "test", 1))
    span = Span(until_ms=live.until_ms)
    plan = make_plan(config, names[0], span, from_log=live.model, variants={names[1]: config})
    said: list[str] = []

    def show(moment: BackfillStatus) -> None:
        assert moment.seconds < patience(), "it waits, and does not say for what"
        if "resume" in moment.waits and not said:
            said.append(moment.waits)
            control.write(Publication(names[0], False, "test", 2))

    with Backfill(plan) as work:
        result = work.run(Stopping(), show)
    assert said == [f"all is learned, and publication is paused: waits for `stream-learner resume --model {names[0]}`"]
    assert result is not None
    for name, model in zip(names, result.models, strict=True):
        assert (model.model["name"], model.model["digest"]) == (name, live.digest)
        wait_published(live.site, config.with_values({("model",): name}), live.site.end_tick)


@pytest.mark.thorough
def test_brokers_that_are_away_at_the_very_end_are_waited_for(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is learned and published; the balance is read when they are back, and a signal ends the wait."""
    plan = make_plan(live.site.config, live.name("late"), Span(until_ms=live.until_ms), from_log=live.model)
    as_it_is, asked = backfill.balance_of, []

    def away_at_first(*of: Any) -> Any:
        asked.append(of)
        if len(asked) < 3:
            raise RetryLater("no leader")
        return as_it_is(*of)

    monkeypatch.setattr(backfill, "balance_of", away_at_first)
    monkeypatch.setattr(backfill, "AGAIN_S", 0.01)
    assert backfilled(plan).models[0].model["digest"] == live.digest
    assert len(asked) == 3
    asked.clear()
    stopping = Stopping()
    monkeypatch.setattr(backfill, "balance_of", lambda *of: (stopping.set(), away_at_first(*of)))
    with Backfill(plan) as work:
        assert work.run(stopping, lambda moment: None) is None
    assert len(asked) == 1


def learner_of(live: Live) -> dict[str, Any]:
    learner: dict[str, Any] = live.site.tree["learner"]
    return learner


def optimizer_of(live: Live, alpha: float) -> dict[str, Any]:
    return {**learner_of(live)["optimizer"], "alpha": alpha}


@pytest.mark.thorough
def test_fewer_features_of_a_log_are_those_of_a_join_with_fewer(live: Live) -> None:
    """The keys to leave out are found in the impressions; without an end they cannot be, and more are refused."""
    fewer = live.site.changed(features={**live.site.tree["features"], "exclude": ["site"]})
    joined = backfilled(make_plan(fewer, live.name("fewer-joined"), Span(until_ms=live.until_ms)))
    span = Span(until_ms=live.until_ms)
    folded = backfilled(make_plan(fewer, live.name("fewer-folded"), span, from_log=live.model))
    assert joined.models[0].model["digest"] == folded.models[0].model["digest"] != live.digest
    with pytest.raises(ConfigError, match="has other features"):
        backfilled(make_plan(fewer, live.name("endless"), Span(), from_log=live.model))
    other_window = live.site.changed(join={**live.site.tree["join"], "window": "30s"})
    with pytest.raises(ConfigError, match=r"join\.window was \d+, now 30000"):
        backfilled(make_plan(other_window, live.name("window"), span, from_log=live.model))


def test_the_rate_is_kept(live: Live) -> None:
    """All partitions together: by the backfill's own clock, no stretch of it reads more than the rate says."""
    rate = 1_500
    plan = make_plan(live.site.config, live.name("rate"), Span(until_ms=live.until_ms), max_rate=rate)
    moments: list[BackfillStatus] = []
    with Backfill(plan) as work:
        result = work.run(Stopping(), moments.append)
    assert result is not None and result.models[0].model["digest"] == live.digest
    read = result.balance["impressions"]["read"]
    assert result.seconds > read / rate - 0.2
    first, last = next(m for m in moments if m.impressions), moments[-1]
    assert last.impressions - first.impressions <= rate * (result.seconds - first.seconds + 0.5)
    assert all(0.0 <= (moment.share or 0.0) <= 1.0 for moment in moments)


@pytest.mark.thorough
def test_without_an_end_it_catches_up_and_stays(live: Live) -> None:
    """Until it is told to stop; it then has what live has, and goes on."""
    name = live.name("stays")
    plan = make_plan(live.site.config, name, Span())
    stopping = Stopping()
    lasts = []

    def show(moment: BackfillStatus) -> None:
        lasts.append(moment.examples)
        if moment.examples == sum(len(part.examples) for part in live.joined) and len(lasts) > 3:
            stopping.set()

    with Backfill(plan) as work:
        assert work.run(stopping, show) is None
    result = backfilled(make_plan(live.site.config, name, Span(until_ms=live.until_ms)))
    assert result.models[0].model["digest"] == live.digest


def test_what_cannot_be_meant_is_refused_with_its_code(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    """2 for the command line, 10 for names, 55 for a model that is not there to fold; nothing is touched."""
    taken = live.name("taken")
    wrong: list[tuple[int, str, list[str]]] = [
        (2, "--from is missing", ["--as", "x"]),
        (2, "with its zone", ["--as", "x", "--from", "2026-11-01T00:00"]),
        (2, "--from latest", ["--as", "x", "--from", "latest"]),
        (2, "in the future", ["--as", "x", "--from", "2999-01-01T00:00Z"]),
        (2, "later than --from", ["--as", "x", "--from", "2020-01-02T00:00Z", "--until", "2020-01-01T00:00Z"]),
        (2, "--until takes a moment", ["--as", "x", "--from", "earliest", "--until", "latest"]),
        (2, "does not join", ["--as", "x", "--from-log", live.model, "--joiners", "2"]),
        (2, "leave --from out", ["--as", "x", "--from-log", live.model, "--from", "2020-01-01T00:00Z"]),
        (2, "--variant takes", ["--as", "x", "--from", "earliest", "--variant", "x2"]),
        (2, "given twice", ["--as", "x", "--from", "earliest", *["--variant", "y:learner.publish=true"] * 2]),
        (10, "another model's name", ["--as", live.model, "--from", "earliest"]),
        (
            10,
            "learner.optimizer.alhpa",
            ["--as", "x", "--from", "earliest", "--variant", "y:learner.optimizer.alhpa=1"],
        ),
        (10, "other settings of join", ["--as", "x", "--from", "earliest", "--variant", "y:join.window=1h"]),
        (10, "is there already", ["--as", taken, "--from", "earliest"]),
        (21, "nobody.snapshots", ["--as", live.name("nobody"), "--from-log", "nobody"]),
    ]
    live.site.admin.create([TopicPlan(f"{taken}.examples", PARTITIONS)])
    live.site.append(f"{taken}.examples", 0, b"somebody's")
    for code, words, arguments in wrong:
        with pytest.raises(SystemExit) as ended:
            main(["backfill", "-c", str(live.file), *arguments])
        said = " ".join(capsys.readouterr().err.split())
        assert (ended.value.code, words in said) == (code, True), (arguments, said)
