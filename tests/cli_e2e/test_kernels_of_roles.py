"""When a role has loaded its own kernels, its work neither loads nor compiles another one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stream_learner.traffic import Emitted
from tests.cli_e2e.commands import answer_of, environment
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.world import PARTITIONS, World

IMPRESSIONS = 4_000
COMMON = """
import gc, json, sys, threading
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from stream_learner.config import load_config
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.roles.common.compile import load_kernels
from stream_learner.roles.common.lifecycle import Stopping, run_roles
from tests.waiting import patience, wait_until

def versions():
    kernels = [kernel for kernel in gc.get_objects() if isinstance(kernel, Dispatcher)]
    return {f"{kernel.__module__}.{kernel.__name__}": len(kernel.overloads) for kernel in kernels}

def run(role, true):
    stopping = Stopping()
    thread = threading.Thread(target=run_roles, args=([role], stopping))
    thread.start()
    wait_until(lambda: not thread.is_alive() or true(role), "the role has done its work")
    assert thread.is_alive()
    stopping.set()
    thread.join()

config, count = load_config(Path(sys.argv[1])), int(sys.argv[2])
"""
END = """
after = versions()
print(json.dumps([sum(before.values()), {name: n for name, n in after.items() if n != before.get(name, 0)}]))
"""
JOINER = """
from stream_learner.roles.joiner.role import JoinerRole

load_kernels(["joiner"])
before = versions()

def joined(role):
    marks = [view.progress.last for view in role.partitions.values()]
    return sum(mark.next_impression for mark in marks if mark is not None) >= count

for _ in range(2):
    run(JoinerRole(config, Metrics(config.model)), joined)
"""
LEARNER = """
from stream_learner.roles.learner.role import LearnerRole

load_kernels(["learner"], [config.optimizer()])
before = versions()

def learned(role):
    return not role.why_not_ready and role.learner.examples >= count

for _ in range(2):
    run(LearnerRole(config, Metrics(config.model)), learned)
"""
SCORER = """
from stream_learner.operations.score import scorer_of

with scorer_of(config) as scorer:
    before = versions()
    scorer.wait_ready(patience())
    usual, unusual = b'{"site":"a","x":1.5e3,"l":[1,true]}', b'{"\\\\u0061":null,"o":{"s":"\\\\u00e9"}}'
    scorer.predict_many([usual, unusual, b"nonsense"])
    scorer.predict({"site": "a", "x": 2})
"""
SERVE = """
import httpx
from tests.roles.scorer.serve.running import serving

load_kernels(["serve"])
before = versions()
with serving(config) as server:
    url = f"{server.url}/v1/models/{config.model}:predict"
    for instances in ('[{"site":"a"},{"x":1.5e3}]', '[ {"s":"\\\\u00e9"} ]', "[7]", "[", "[]"):
        body = '{"instances":' + instances + "}"
        httpx.post(url, content=body)
"""


@pytest.fixture(scope="module")
def sent(make_world: MakeWorld) -> tuple[World, Emitted]:
    """A model with topics and traffic, and nothing joined yet."""
    world = make_world(scorer={"stale_after": None})
    assert answer_of("topics", "ensure", "-c", world.file, "--partitions", str(PARTITIONS)).code == 0
    return world, world.produce(IMPRESSIONS)


@pytest.mark.thorough
def test_a_role_runs_no_kernel_that_it_did_not_load(sent: tuple[World, Emitted]) -> None:
    """Joiner and learner from nothing, and again from where they were; then what reads the model."""
    world, emitted = sent
    works = {
        JOINER: emitted.impression_records,
        LEARNER: emitted.impressions,
        SCORER: 0,
        SERVE: 0,
    }
    for work, count in works.items():
        loaded, more = versions_of(work, world, count)
        assert loaded > 10
        assert more == {}, work


def versions_of(work: str, world: World, count: int) -> tuple[int, dict[str, int]]:
    """How many versions of kernels there were before the work, and those of which there were more after it."""
    process = subprocess.run(
        [sys.executable, "-c", COMMON + work + END, str(world.file), str(count)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    loaded, more = json.loads(process.stdout.splitlines()[-1])
    return loaded, more
