"""A short schedule on three real brokers, as `make chaos` runs many of them, and one on a single broker."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proofs.chaos.cluster import Cluster
from proofs.chaos.plan import LEARNERS, Fault, Plan, Step, plan_of
from proofs.chaos.proxy import Mode
from proofs.chaos.schedule import NO_CLIENT, run_schedule
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.core.parts import compile_kernels
from tests.waiting import patience, wait_until

KILLS = 8
PATIENCE_S = 400.0


SMALL = (
    Step(Fault.KILL, "joiner-0", 0.2, 0.0, "steady"),
    Step(Fault.CUT, "joiner-1", 0.2, 0.5, nodes=(1,)),
    Step(Fault.KILL, "learner", 0.2, 0.0, "checkpoint"),
    Step(Fault.HANG, "scorer-0", 0.2, 0.5),
)


@pytest.fixture
def one_broker() -> Iterator[Cluster]:
    """A broker behind proxies."""
    compile_kernels()
    with Cluster(nodes=1) as one:
        yield one


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers behind proxies."""
    compile_kernels()
    with Cluster() as three:
        yield three


@pytest.mark.thorough
def test_a_small_schedule_ends_with_the_same_bits(one_broker: Cluster, tmp_path: Path) -> None:
    """A joiner and the learner killed, a network cut, a scorer that hangs: everything is as without them."""
    configure_logging(log_format="json", stream=io.StringIO())
    plan = Plan(1, 0, "edges", 1, 2, False, LEARNERS[0], False, (), SMALL)
    result = run_schedule(plan, one_broker, tmp_path, lambda text: None, patience(PATIENCE_S))
    assert result.problems == [], result.logs
    assert [slot for slot, _ in result.kills] == ["joiner-0", "learner"]
    assert result.versions > 0


def short_plan() -> Plan:
    """The first schedule of the first seed, with fewer kills: one broker is killed, by log time."""
    plan = plan_of(1, 0, KILLS)
    assert not plan.by_clock and Fault.BROKER in {step.fault for step in plan.steps}
    return plan


@pytest.mark.nightly
def test_a_short_schedule_ends_with_the_same_bits(cluster: Cluster, tmp_path: Path) -> None:
    """Roles killed in all phases, a broker killed, a network cut: log, balance, digest, and every version served."""
    configure_logging(log_format="json", stream=io.StringIO())
    plan = short_plan()
    result = run_schedule(plan, cluster, tmp_path, lambda text: None, patience(PATIENCE_S))
    assert result.problems == [], result.logs
    assert len(result.kills) == KILLS
    assert result.versions > 0
    assert result.records > 600
    assert result.faults[NO_CLIENT] == 1


@pytest.mark.nightly
def test_the_active_controller_can_be_told_and_changes_when_it_is_killed(cluster: Cluster) -> None:
    """Its term grows; the cluster is whole again when it is back."""
    node, term = cluster.controller()
    assert node in (1, 2, 3)
    cluster.set_network("LEARNER", Mode.CUT, (node,))
    cluster.kill(node)
    assert not cluster.running(node)
    cluster.heal()
    wait_until(lambda: cluster.controller()[1] > term, "another controller", patience_s=PATIENCE_S)
    wait_until(cluster.whole, "the cluster is whole", patience_s=PATIENCE_S)


def test_the_command_says_what_it_does() -> None:
    """Its help, and what it does with nonsense."""
    command = [sys.executable, "-m", "proofs.chaos"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(option in shown for option in ("--kills", "--seed", "--schedule", "--json", "--patience"))
    wrong = subprocess.run([*command, "--kills", "0"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "--kills must be at least 1" in wrong.stderr
