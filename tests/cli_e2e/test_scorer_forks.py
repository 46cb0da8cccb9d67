"""A scorer in a process that was forked after it had been started."""

from __future__ import annotations

import json
import subprocess
import sys

from stream_learner.core.machine.hashing import BIAS_KEY
from tests.cli_e2e.commands import environment
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.waiting import patience

PROGRAM = """
import json, os, sys
from stream_learner import Scorer
from stream_learner.errors import NotReady

def said(call):
    try:
        return str(call())
    except NotReady as error:
        return f"NotReady: {error}"

scorer = Scorer(sys.argv[1], sys.argv[2], stale_after_ms=None).start()
scorer.wait_ready(60)
ready, write = os.pipe()
if os.fork() == 0:
    found = [said(lambda: scorer.predict({"x": 1})), said(lambda: scorer.predict_many([{}])), said(scorer.wait_ready)]
    scorer.close()
    with Scorer(sys.argv[1], sys.argv[2], stale_after_ms=None) as own:
        own.wait_ready(60)
        found += [scorer.ready, own.predict({"x": 1}).version]
    os.write(write, json.dumps(found).encode())
    sys.exit(7)
_, status = os.wait()
answers = [os.waitstatus_to_exitcode(status), *json.loads(os.read(ready, 9999)), scorer.predict({"x": 1}).version]
print(json.dumps(answers))
"""


def test_a_forked_process_is_told_to_make_a_scorer_of_its_own(make_world: MakeWorld) -> None:
    """It neither serves what nobody keeps current, nor hangs, also at its end; the process it came from goes on."""
    published = Published(make_world())
    published.publish(1000, {BIAS_KEY: -1.0})
    world = published.world
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, world.settings.bootstrap, world.model],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    published.close()
    assert ended.returncode == 0, ended.stderr
    code, one, many, waited, ready, version, parents_version = json.loads(ended.stdout.splitlines()[-1])
    assert (code, ready, version, parents_version) == (7, False, 1000, 1000)
    for answer in (one, many, waited):
        assert answer.startswith("NotReady: ") and "make a Scorer in each process, after the fork" in answer
