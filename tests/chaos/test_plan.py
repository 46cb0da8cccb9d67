"""Schedules of faults: pure functions of their seeds, with the kills that were asked for."""

from __future__ import annotations

from collections import Counter

from proofs.chaos.plan import KILLS, Fault, plan_of
from proofs.chaos.run import command, plans_of
from proofs.chaos.traffic import traffic_of
from tests.scenarios import scenario


def test_a_plan_is_a_function_of_seed_and_number() -> None:
    """The same seed and number give the same plan, others give another."""
    assert plan_of(3, 4) == plan_of(3, 4)
    assert len({plan_of(seed, number) for seed in (1, 2) for number in range(5)}) == 10


def test_a_run_has_exactly_the_kills_that_were_asked_for() -> None:
    """Whatever does not fill a schedule goes into a last, shorter one."""
    for kills in (1, 30, 31, 300):
        assert sum(plan.kills for plan in plans_of(kills, seed=1)) == kills


def test_three_hundred_kills_hit_every_role_and_every_kind_of_fault() -> None:
    """No fault is left to chance; a third of the kills hit the learner."""
    plans = plans_of(300, seed=1)
    steps = [step for plan in plans for step in plan.steps]
    assert {step.fault for step in steps} == set(Fault)
    killed = Counter(step.slot.split("-")[0] for step in steps if step.fault in KILLS)
    assert killed["learner"] > 60 and killed["joiner"] > 60 and killed["scorer"] > 20
    assert {step.aim for step in steps if step.fault in KILLS} == {
        "recovery",
        "recovered",
        "steady",
        "checkpoint",
        "after-checkpoint",
        "publication",
    }
    assert 0 < sum(plan.by_clock for plan in plans) < len(plans) / 2


def test_a_kill_in_recovery_follows_a_kill_of_the_same_process() -> None:
    """Or there would be nothing to recover from."""
    for number in range(20):
        steps = plan_of(1, number).steps
        for before, step in zip((None, *steps), steps, strict=False):
            if step.aim in ("recovery", "recovered"):
                assert before is not None and before.fault in KILLS and before.slot == step.slot


def test_one_schedule_alone_is_that_of_the_whole_run() -> None:
    """A failing schedule runs again without the others, also the last one, which is shorter."""
    plans = plans_of(70, seed=7)
    for plan in plans:
        assert plans_of(plan.kills, 7, only=plan.number) == [plan]
    assert command(plans[1]) == 'make chaos ARGS="--seed 7 --schedule 1"'
    assert command(plans[2]) == 'make chaos ARGS="--seed 7 --schedule 2 --kills 10"'


def test_a_repeated_stretch_adds_the_same_records_before_the_sentinels() -> None:
    """Nothing else changes: without the second copies the traffic is the scenario's."""
    plan = next(plan for plan in plans_of(300, seed=1) if plan.repeats and not plan.by_clock)
    made, plain = traffic_of(plan, 0), scenario(plan.scenario, plan.partitions, seed=plan.traffic_seed)
    assert sum(map(len, made.impressions)) > sum(map(len, plain.impressions))
    for ours, theirs in zip((*made.impressions, *made.clicks), (*plain.impressions, *plain.clicks), strict=True):
        assert set(ours) == set(theirs)
        assert list(dict.fromkeys(ours)) == list(dict.fromkeys(theirs))
        assert plain.sentinels(ours) == plain.sentinels(theirs)
