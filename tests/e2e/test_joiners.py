"""Several joiners on a real Kafka: the same log and digest, whoever joins, leaves, is killed, or believes it owns a
partition that another owns too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.roles.joiner.role import JoinerRole
from tests.e2e.checks import (
    assert_equal_to_oracle,
)
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import running, wait_until
from tests.oracles import loop
from tests.scenarios import Scenario, scenario
from tests.suite.share import cases

PARTITIONS = 8


@pytest.fixture(scope="module")
def everything() -> Scenario:
    """All that goes wrong in the field, over eight partitions."""
    return scenario("everything", PARTITIONS)


@pytest.fixture(scope="module")
def expected(everything: Scenario) -> list[loop.Joined]:
    """The expected result of the join."""
    return everything.expected()


@pytest.mark.parametrize("joiners", cases([1, 2, 4], [2]))
def test_any_number_of_joiners_makes_the_same_log_and_digest(
    joiners: int, everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """1, 2 and 4 joiners over 8 partitions: the oracle's examples, counts and digest each time."""
    site = make_site(everything)
    with running(*(site.joiner() for _ in range(joiners))):
        wait_until(lambda: site.shared_by(joiners), f"{joiners} joiners share the partitions")
        site.produce()
        wait_until(site.closed, "every partition closed")
    assert_equal_to_oracle(site, expected)


def test_joiners_join_and_leave_while_traffic_flows(
    everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """From one joiner to two, to three, to the last two, to the last one: every tick is made once."""
    site = make_site(everything)
    with ExitStack() as first, ExitStack() as second, ExitStack() as third:
        changes: list[Callable[[], object]] = [
            lambda: first.enter_context(running(site.joiner())),
            lambda: second.enter_context(running(site.joiner())),
            lambda: third.enter_context(running(site.joiner())),
            first.close,
            second.close,
        ]
        for step, (change, joiners) in enumerate(zip(changes, (1, 2, 3, 2, 1), strict=True)):
            site.produce(step / 5, (step + 0.5) / 5)
            change()
            site.produce((step + 0.5) / 5, (step + 1) / 5)
            wait_until(lambda n=joiners: site.shared_by(n), f"{joiners} share the partitions")  # type: ignore[misc]
        wait_until(site.closed, "every partition closed")
    assert sum(log.attempts for log in site.logs()) > PARTITIONS
    assert_equal_to_oracle(site, expected)


@pytest.mark.parametrize("rounds", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_joiner_killed_while_traffic_flows_loses_and_repeats_nothing(
    rounds: int, everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """kill -9 of a joiner, again and again, beside another that takes over and gives back."""
    site = make_site(everything)
    with process_of(site, "join") as survivor:
        survivor.wait_for("partition_begun")
        for turn in range(rounds):
            with process_of(site, "join") as victim:
                wait_until(lambda: site.shared_by(2), "two joiners share the partitions")
                seen = site.marks_seen()
                site.produce(turn / rounds, (turn + 0.9) / rounds)
                wait_until(lambda seen=seen: site.marks_seen() > seen, "the log grows")  # type: ignore[misc]
                victim.kill()
            site.produce((turn + 0.9) / rounds, (turn + 1) / rounds)
        wait_until(site.closed, "every partition closed")
    assert_equal_to_oracle(site, expected)


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", [4])
def test_the_only_joiner_killed_again_and_again_loses_and_repeats_nothing(
    rounds: int, everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """A static member that is killed comes back to its partitions at once and goes on where the log ends."""
    site = make_site(everything, join={"instance_id": "joiner-0"})
    for turn in range(rounds):
        with process_of(site, "join") as joiner:
            seen = site.marks_seen()
            site.produce(turn / rounds, (turn + 1) / rounds)
            wait_until(lambda seen=seen: site.marks_seen() > seen + 20, "the log grows")  # type: ignore[misc]
            if turn == rounds // 2 - 1:  # half of the input closes ticks of every partition; another joiner goes on
                wait_until(lambda: all(log.marks for log in site.logs()), "marks in every partition")
            joiner.kill()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert all(log.attempts > 1 for log in site.logs())
    assert_equal_to_oracle(site, expected)


def test_two_writers_of_a_partition_make_every_tick_once(
    everything: Scenario, expected: list[loop.Joined], make_site: MakeSite
) -> None:
    """Two groups that each own all partitions and write one log: one of them is accepted, the other counts it."""
    site = make_site(everything)
    metrics = [Metrics(site.model), Metrics(site.model)]
    configs = [site.config, site.changed(join={"group": f"{site.model}.twin"})]
    joiners = [site.joiner(c, m) for c, m in zip(configs, metrics, strict=True)]
    with running(*joiners):
        wait_until(lambda: all(_have_begun(joiner, len(site.logs())) for joiner in joiners), "both hold all partitions")
        for step in range(4):
            site.produce(step / 4, (step + 1) / 4)
            seen = site.marks_seen()
            wait_until(lambda seen=seen: site.closed() or site.marks_seen() > seen, "the log grows")  # type: ignore[misc]
        wait_until(site.closed, "every partition closed")
    logs = site.logs()
    assert sum(log.rule.ignored_marks for log in logs) > 0
    lost = sum(_counter(m, "attempts_lost") for m in metrics)
    assert lost > 0
    assert_equal_to_oracle(site, expected)


def _have_begun(joiner: JoinerRole, partitions: int) -> bool:
    """Whether a joiner has begun an attempt in each partition."""
    begun = [each for each in list(joiner.partitions.values()) if each.attempt is not None]
    return len(begun) == partitions


def _counter(metrics: Metrics, name: str) -> float:
    """The sum of a counter over its labels."""
    lines = metrics.text().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if name in line and not line.startswith("#"))
