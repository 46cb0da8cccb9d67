"""From exec to ready: each role as a process of its own, on an idle broker.

Warm: byte code and machine code are on disk, as from the second start on. First: the folder of machine code is empty,
and the role compiles its kernels. Ready is what `/readyz` says; for `score` the first prediction. Every start is a new
process; processor time is that of all its threads until then, and says more than the clock where others are at work.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench_loop import Site, kafka
from stream_learner.adapters.kafka import Admin
from stream_learner.config import load_config
from stream_learner.operations.topics import control_plan
from tests.cli_e2e.world import free_port

ROLES = {
    "join": ("stream_learner.roles.joiner.role", "joiner"),
    "learn": ("stream_learner.roles.learner.role", "learner"),
    "score": ("stream_learner.operations.score", "scorer"),
    "serve": ("stream_learner.roles.scorer.serve.workers", "serve"),
}
"""The module of each command's role, and whose kernels it loads."""
IMPORTS = "import gc; gc.disable(); import stream_learner.cli.role_commands, {module}"
KERNELS = "from stream_learner.roles.common.compile import load_kernels; load_kernels(['{role}'])"
EVENTS = 2_000
PATIENCE_S = 300.0
STEP_S = 0.002
EVENT = b'{"id":"a","site":"x"}\n'

Row = dict[str, Any]


@dataclass(frozen=True)
class Start:
    """How long one start took until the process lived, by `/healthz` (None for `score`), and until it was ready."""

    ready_s: float
    cpu_s: float
    lives_s: float | None = None


def run(quick: bool) -> list[Row]:
    """Rows of each role: its warm start, with what Python and its imports, the kernels, and all the rest take of it;
    and its first start.
    """
    with kafka() as bootstrap, tempfile.TemporaryDirectory(prefix="bench-start-") as name:
        folder = Path(name)
        site = Site(bootstrap, folder)
        learn_something(site)
        rows = []
        for role in ROLES:
            rows += _warm_rows(role, site, repeats=3 if quick else 9)
            rows += _first_rows(role, site, folder / f"machine-code-{role}")
        return rows


def learn_something(site: Site) -> None:
    """Joiner and learner run until a model is published."""
    control = load_config(site.file, overrides=[f"topics.control={site.model}.control"])
    Admin(site.settings).create([control_plan(control)])
    site.produce(EVENTS)
    with role_process("run", site) as process, role_process("score", site) as scoring:
        first_answer(scoring)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def started(role: str, site: Site, **environment: str) -> Start:
    """Start a role, wait until it is ready, and end it."""
    port = free_port()
    began_s = time.monotonic()
    with role_process(role, site, port, **environment) as process:
        if role == "score":
            first_answer(process)
            return Start(time.monotonic() - began_s, processor_s(process.pid))
        lives_s = wait_until_true(lambda: says_yes(port, "/healthz"), process) - began_s
        ready_s = wait_until_true(lambda: says_yes(port, "/readyz"), process) - began_s
        return Start(ready_s, processor_s(process.pid), lives_s)


def _warm_rows(role: str, site: Site, repeats: int) -> list[Row]:
    module, kernels = ROLES[role]
    imports, loads = IMPORTS.format(module=module), KERNELS.format(role=kernels)
    starts, importing, loading = [], [], []
    for _ in range(repeats + 1):
        starts.append(started(role, site))
        importing.append(_script_cpu_s(imports))
        loading.append(_script_cpu_s(f"{imports}; {loads}"))
    starts, imports_s, kernels_s = starts[1:], statistics.median(importing[1:]), statistics.median(loading[1:])
    ready_s = statistics.median(start.ready_s for start in starts)
    spread = f"{min(start.ready_s for start in starts):.2f} to {max(start.ready_s for start in starts):.2f} s"
    cpu_s = statistics.median(start.cpu_s for start in starts)
    rows = [
        _row(f"{role}: exec to ready, warm", ready_s, f"{repeats} starts, {spread}"),
        _row(f"{role}: processor time of that", cpu_s, "all threads"),
        _row(f"{role}: of it Python and imports", imports_s, "processor time"),
        _row(f"{role}: of it kernels", kernels_s - imports_s, "processor time; loaded from disk"),
        _row(f"{role}: of it the rest", cpu_s - kernels_s, "processor time; configuration, topics, state, clients"),
    ]
    lives = [start.lives_s for start in starts if start.lives_s is not None]
    return [*rows, _row(f"{role}: exec to /healthz, warm", statistics.median(lives), "")] if lives else rows


def _script_cpu_s(script: str) -> float:
    """Seconds of processor time that a new process has used when it has run a script."""
    timed = f"{script}; import time; print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", timed], env=_environment(), capture_output=True, text=True, check=True)
    return float(done.stdout)


def _first_rows(role: str, site: Site, machine_code: Path) -> list[Row]:
    start = started(role, site, NUMBA_CACHE_DIR=str(machine_code))
    rows = [
        _row(f"{role}: exec to ready, first start", start.ready_s, "kernels compiled"),
        _row(f"{role}: processor time of a first start", start.cpu_s, "all threads; kernels compiled"),
    ]
    return [*rows, _row(f"{role}: exec to /healthz, first start", start.lives_s, "")] if start.lives_s else rows


@contextmanager
def role_process(
    role: str, site: Site, port: int = 0, settings: Sequence[str] = (), **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A role of a site; killed at the end of the block. settings: more of them, each as `name=value`."""
    more = [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(
        [sys.executable, "-m", "stream_learner", role, *_options(role, site, port), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**_environment(), **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _options(role: str, site: Site, port: int) -> Sequence[str]:
    settings = {
        "telemetry.http_host": "127.0.0.1",
        "telemetry.http_port": port,
        "serve.host": "127.0.0.1",
        "serve.port": free_port(),
        "scorer.stale_after": "null",
        "scorer.ready_timeout": f"{PATIENCE_S:.0f}s",
        "join.instance_id": "bench",  # a killed member's partitions are given back at once
        "topics.control": f"{site.model}.control",
    }
    return ["-c", str(site.file), *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))]


def _environment() -> dict[str, str]:
    """The environment of an installation: byte code is kept, whatever this process was told."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def first_answer(process: subprocess.Popen[bytes]) -> None:
    """Ask a `score` process, and wait until it answers."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(EVENT)
    process.stdin.flush()
    if not process.stdout.readline():
        raise RuntimeError("score ended before it answered")


def wait_until_true(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> float:
    """The time at which it became true, by the monotonic clock. Raises RuntimeError if the process ends before."""
    until_s = time.monotonic() + PATIENCE_S
    while not true():
        if process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(f"not ready; its exit code is {process.poll()}")
        time.sleep(STEP_S)
    return time.monotonic()


def says_yes(port: int, path: str) -> bool:
    """Whether a probe of a role answers with success."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def processor_s(pid: int) -> float:
    """Seconds of processor time that a process has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _row(name: str, seconds: float, note: str) -> Row:
    return {"name": name, "value": round(seconds, 2), "unit": "s", "note": note}
