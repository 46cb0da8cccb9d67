"""What a backfill is to do: its last tick, its isolation from the live model, what is refused; a bounded rate."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stream_learner.config import Config, load_config
from stream_learner.errors import ConfigError
from stream_learner.operations.backfill.plan import Span, last_tick, make_plan
from stream_learner.roles.joiner.inputs import RateLimit

OVERRIDES = (
    "model=ctr",
    "kafka.bootstrap.servers=localhost:9092",
    "kafka.sasl.password={env: NOT_READ}",
    "input.impressions.topic=impressions",
    "input.clicks.topic=clicks",
)


def config(*overrides: str) -> Config:
    return load_config(None, overrides=[*OVERRIDES, *overrides])


def test_the_last_tick_is_that_in_which_the_last_window_before_the_end_closes() -> None:
    """By trying every millisecond: all impressions before the end are in, and none after the tick's own end."""
    rng = random.Random(0)
    for _ in range(300):
        window_ms, tick_ms, until_ms = rng.randrange(1, 60), rng.randrange(1, 20), rng.randrange(1, 500)
        found = last_tick(until_ms, window_ms, tick_ms)
        closes = [(t, (t + window_ms) // tick_ms) for t in range(until_ms + 3 * tick_ms)]
        assert all(tick <= found for t, tick in closes if t < until_ms)
        assert found == max(tick for t, tick in closes if t < until_ms)
        beyond = [t for t, tick in closes if tick <= found and t >= until_ms]
        assert len(beyond) == -(until_ms + window_ms) % tick_ms


def test_a_renamed_configuration_shares_nothing_but_the_inputs() -> None:
    """Whatever was named after the old model, or named otherwise, is named after the new one."""
    old = config(
        "topics.examples=log",
        "topics.snapshots=snaps",
        "topics.dead_letters=dead",
        "join.group=joiners",
        "join.instance_id=joiner-0",
        "learner.state_dir=/data/ctr",
        "join.window=1h30m",
        "features.exclude=[a, b]",
    )
    new = old.renamed("ctr-v2")
    names = (new.examples_topic, new.snapshots_topic, new.dead_letters_topic, new.group, new.publisher_id)
    assert names == ("ctr-v2.examples", "ctr-v2.snapshots", "ctr-v2.dead-letters", "ctr-v2.joiner", "ctr-v2.publisher")
    assert str(new.state_dir) == "/data/ctr-v2"
    assert new.join.instance_id is None
    assert (new.input, new.features, new.join.window_ms) == (old.input, old.features, 5_400_000)
    assert new.kafka == old.kafka
    assert str(config().renamed("ctr-v2").state_dir) == "state/ctr-v2"
    assert old.with_values({}) == old
    with pytest.raises(ConfigError, match="model: "):
        old.renamed("../ctr")


def test_a_plan_of_several_models_has_one_log_and_each_its_own_rest() -> None:
    """Main and variants share the training log, and each has its state and snapshots."""
    variants = {"a": config("learner.optimizer.alpha=0.5"), "b": config("learner.optimizer.l1=0")}
    plan = make_plan(config(), "ctr-v2", Span(60_000, 120_000), joiners=3, max_rate=500, variants=variants)
    assert [model.model for model in plan.models] == ["ctr-v2", "a", "b"]
    assert {model.examples_topic for model in plan.models} == {"ctr-v2.examples"}
    assert len({model.snapshots_topic for model in plan.models}) == len({m.state_dir for m in plan.models}) == 3
    assert [model.learner.optimizer.alpha for model in plan.models] == [0.1, 0.5, 0.1]
    assert (plan.main.join.start, plan.main.join.max_rate, plan.joiners, plan.joins) == (60_000, 500, 3, True)
    assert plan.until_tick == 120 + 1800 - 1


def test_a_plan_on_another_log_makes_none() -> None:
    """The configured model's log has the name it was given; another's is named after it."""
    live = config("topics.examples=log")
    plan = make_plan(live, "ctr-v2", Span(), from_log="ctr")
    assert (plan.main.examples_topic, plan.joins, plan.until_tick) == ("log", False, None)
    plan = make_plan(
        live, "ctr-v2", Span(), from_log="other", variants={"a": config("topics.examples=log", "features.exclude=[x]")}
    )
    assert [model.examples_topic for model in plan.models] == ["other.examples"] * 2


@pytest.mark.parametrize(
    ("live", "name", "options", "words"),
    [
        ((), "ctr", {}, "another model's name"),
        ((), "v2", {"from_log": "v2"}, "another model's name"),
        ((), "v2", {"variants": {"v2": ()}}, "another model's name"),
        (("topics.snapshots=v2.snapshots",), "v2", {}, "write to v2.snapshots"),
        (("topics.examples=v2.examples",), "v2", {}, "write to v2.examples"),
        (("join.group=v2.joiner",), "v2", {}, "the same group"),
        (("learner.state_dir=/data/v2",), "v2", {}, "the same state"),
        (("input.clicks.topic=v2.examples",), "v2", {}, "the same topic"),
        ((), "v2", {"variants": {"a": ("join.window=1h",)}}, "other settings of join"),
        ((), "v2", {"variants": {"a": ("features.exclude=[x]",)}}, "other settings of features"),
        ((), "v2", {"from_log": "ctr", "variants": {"a": ("input.time_unit=s",)}}, "other settings of input"),
    ],
)
def test_models_that_would_get_in_each_others_way_are_refused(
    live: tuple[str, ...], name: str, options: dict[str, Any], words: str
) -> None:
    """By name, topic, group and directory, before anything is touched."""
    if "variants" in options:
        options = options | {"variants": {n: config(*live, *own) for n, own in options["variants"].items()}}
    with pytest.raises(ConfigError, match=words):
        make_plan(config(*live), name, Span(), **options)


@pytest.mark.parametrize("per_s", [1, 7, 500, 20_000, 1_000_000])
def test_no_second_lets_more_through_than_the_rate_and_a_burst(per_s: int) -> None:
    """Asked at random moments by readers that take all they may: over any span at most rate x span + burst, and over
    a long one nearly that."""
    rng = random.Random(per_s)
    limit, now_s, taken = RateLimit(per_s, 0.0), 0.0, [(0.0, 0)]
    while now_s < 20.0:
        now_s += rng.expovariate(2_000)
        allowed = limit.allowed(now_s)
        count = rng.randint(allowed // 2, allowed)
        limit.took(count)
        taken.append((now_s, taken[-1][1] + count))
    burst = max(per_s * RateLimit.BURST_S, 1)
    for at_s, before in rng.choices(taken, k=50):
        for end_s, after in rng.choices(taken, k=50):
            assert end_s < at_s or after - before <= per_s * (end_s - at_s) + burst + 1
    assert taken[-1][1] >= min(0.9 * per_s, 2_000 * 500) * 20 - burst
