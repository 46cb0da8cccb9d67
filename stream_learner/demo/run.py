"""The demo from beginning to end. With `--json` nothing but the object is written to stdout.

1. Start the embedded broker, or name a cluster's topics; make the configuration.
2. Compile the kernels, with a message if that takes time.
3. Start the system; show it until the time is over or a signal comes.
4. Stop it in the order of the data; report; fail if anything does not add up.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from stream_learner.adapters.kafka import EmbeddedBroker
from stream_learner.config import Config
from stream_learner.core.parts import FIRST_TIME_S, compile_kernels, is_compiled
from stream_learner.demo.plan import CONFIG_FILE, DemoPlan, make_config
from stream_learner.demo.report import DemoLocation, as_object, as_text, delete_command, problems
from stream_learner.demo.system import DemoResult, DemoSystem
from stream_learner.demo.view import View, make_console, make_view, quiet_logs
from stream_learner.errors import BrokenInvariant
from stream_learner.roles.common.lifecycle import Stopping

FRAME_S = 0.25
MODEL = "demo"


def run_demo(
    *,
    duration_s: float = 60.0,
    bootstrap_servers: str | None = None,
    as_json: bool = False,
    rate: float = 2_000.0,
    seed: int = 1,
    window_s: float = 5.0,
    partitions: int = 4,
    overrides: Sequence[str] = (),
) -> int:
    """Run a demo for `duration_s` seconds. Returns the exit code: 0, or 128 + the signal that ended it early.

    rate: impressions a second. window_s: the join window. overrides: settings of the model as `a.b=value`.
    Raises ConfigError, what a role raises, and BrokenInvariant when a record is not accounted for.
    """
    plan = DemoPlan(duration_s, rate, window_s, partitions, seed, bootstrap_servers, tuple(overrides))
    console = make_console(stderr=as_json)
    quiet_logs()
    # Step 1: start the embedded broker, or name a cluster's topics; make the configuration.
    with _location(plan) as (location, config, broker):
        # Step 2: compile the kernels.
        _compile(console)
        stopping = Stopping().listen()
        with _mentioning_topics(location, console), DemoSystem(plan, config, broker) as system:
            # Step 3: start the system; show it.
            system.start()
            with make_view(console, location.model, plan.duration_s) as view:
                _watch(system, view, stopping, plan.duration_s)
            # Step 4: stop it; report.
            result = system.finish()
    _report(result, location, console, as_json)
    wrong = problems(result)
    if wrong:
        raise BrokenInvariant("; ".join(wrong))
    return 0 if stopping.signal is None else 128 + stopping.signal


def _compile(console: Console) -> None:
    if is_compiled():
        compile_kernels()
        return
    console.print(f"Compiling the kernels; once on this machine, about {FIRST_TIME_S} s.")
    began_s = time.monotonic()
    compile_kernels(lambda part: console.print(f"  {time.monotonic() - began_s:3.0f} s  {part}"))


@contextmanager
def _location(plan: DemoPlan) -> Iterator[tuple[DemoLocation, Config, EmbeddedBroker | None]]:
    """Step 1: make a directory, a broker and a configuration. After success on a cluster the directory is kept."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="stream-learner-demo-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        broker = stack.enter_context(EmbeddedBroker()) if plan.bootstrap_servers is None else None
        model = MODEL if broker else f"{MODEL}-{uuid.uuid4().hex[:8]}"
        bootstrap = broker.bootstrap if broker else plan.bootstrap_servers or ""
        config = make_config(plan, model, bootstrap, directory)
        yield DemoLocation(config.model, plan.bootstrap_servers, str(directory / CONFIG_FILE)), config, broker
        if broker is None:
            stack.pop_all()


@contextmanager
def _mentioning_topics(location: DemoLocation, console: Console) -> Iterator[None]:
    """On a cluster, print what is made there; after a failure, how to delete it. (After success the report says so.)"""
    if location.bootstrap is None:
        yield
        return
    console.print(f"Making topics {location.model}.* on {location.bootstrap}.")
    try:
        yield
    except BaseException:
        console.print(f"To delete what was made: {delete_command(location)}", soft_wrap=True)
        raise


def _watch(system: DemoSystem, view: View, stopping: Stopping, duration_s: float) -> None:
    """Step 3: show the system until the time is over or a signal comes. Raises the error of a role that failed."""
    until_s = time.monotonic() + duration_s
    while not stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
        system.check()
        view.show(system.status())
        stopping.wait(min(FRAME_S, left_s))
    view.show(system.status())


def _report(result: DemoResult, location: DemoLocation, console: Console, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(as_object(result, location)) + "\n")
        sys.stdout.flush()
    else:
        console.print(as_text(result, location), soft_wrap=True)
