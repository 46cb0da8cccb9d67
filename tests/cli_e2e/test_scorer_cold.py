"""Scorers whose kernels are compiled nowhere yet, in a process of many threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stream_learner.core.machine.hashing import BIAS_KEY
from tests.cli_e2e.commands import environment
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.waiting import patience

THREADS = 4
PROGRAM = """
import faulthandler, json, sys, threading
from pathlib import Path
faulthandler.enable()
from stream_learner import Scorer

def predict(number):
    folder = Path(sys.argv[3], str(number))
    folder.mkdir()
    with Scorer(sys.argv[1], sys.argv[2], stale_after_ms=None, state_dir=folder, copy_every_ms=1000) as scorer:
        scorer.wait_ready(float(sys.argv[4]))
        while not list(folder.glob("*.copy")):
            one, many = scorer.predict({"site": "a"}), scorer.predict_many([{"site": "a"}, {"x": 1}])
        answers[number] = [one.p_click, *many.p_click.tolist()]

answers = [None] * int(sys.argv[5])
threads = [threading.Thread(target=predict, args=(number,)) for number in range(len(answers))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(answers))
"""


@pytest.mark.nightly
def test_four_threads_start_and_use_a_scorer_each_without_any_machine_code(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """With a copy on disk, which other threads write meanwhile. A process that ends by a signal says where."""
    published = Published(make_world())
    published.publish(1000, {BIAS_KEY: -1.0})
    world = published.world
    given = [world.settings.bootstrap, world.model, str(tmp_path), str(10 * patience()), str(THREADS)]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given],
        env={**environment(), "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=20 * patience(),
        check=False,
    )
    published.close()
    assert ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr}"
    answers = json.loads(ended.stdout.splitlines()[-1])
    assert answers[0] is not None and answers == answers[:1] * THREADS
