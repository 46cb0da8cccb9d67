"""Carries incidents out one after the other, each in a world of its own, with a line for each and the exit code."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofs.chaos.incidents.catalogue import INCIDENTS, Incident
from proofs.chaos.incidents.load import FACTOR
from proofs.chaos.incidents.traffic import MINUTE_MS, usual
from proofs.chaos.incidents.verdict import verdict
from proofs.chaos.incidents.world import JOINERS, ROLES, SERVERS, World
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.core.gate.decisions import What
from stream_learner.core.parts import compile_kernels
from stream_learner.operations import gate
from tests.kafka_broker.broker import Broker

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / ".build" / "chaos"
HISTORY_REST = 60
"""How many ticks of the history may still wait in the join when an incident begins."""
WHO = "operator@chaos"
Result = dict[str, Any]


def run(seed: int, *, only: Sequence[str] = (), as_json: bool = False) -> int:
    """Carry out the incidents of these names, all without any. Returns 0 if nothing failed and all ended equal."""
    configure_logging(log_format="json", stream=io.StringIO())
    compile_kernels()
    results: list[Result] = []
    for incident in INCIDENTS:
        if only and incident.name not in only:
            continue
        with Broker() as broker:
            results.append(run_incident(incident, broker, seed))
        sys.stdout.write((json.dumps(results[-1]) if as_json else row_of(results[-1])) + "\n")
        sys.stdout.flush()
    sound = sum(not one["problems"] for one in results)
    sys.stderr.write(f"{len(results)} incidents, {sound} sound\n")
    return 0 if sound == len(results) else 1


def run_incident(incident: Incident, broker: Broker, seed: int) -> Result:
    """One incident, from a learned history to the verdict."""
    folder = Path(tempfile.mkdtemp(prefix="stream-learner-incident-"))
    traffic = usual(seed, incident.after_min * MINUTE_MS)
    incident.spoil(traffic)
    began_s = time.monotonic()
    world = World(broker, folder, incident.name, traffic, seed, incident.sections)
    try:
        _carry_out(incident, world)
    except AssertionError as error:
        world.problems.append(str(error))
    finally:
        result = _result(incident, world, seed, time.monotonic() - began_s)
        if result["problems"]:
            _keep(incident, world, seed, result)
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _carry_out(incident: Incident, world: World) -> None:
    for name in ROLES:
        world.start(name)
    world.send(world.traffic.begin_ms)
    known = world.traffic.begin_ms // world.tick_ms - HISTORY_REST
    world.wait(lambda: world.joined() >= known, "the history is joined")
    world.wait(lambda: world.tick() >= known, "the history is learned")
    world.wait(lambda: all(world.why(name) == "" for name in world.loads), "both servers are ready")
    for load in world.loads.values():
        load.start()
    world.wait(lambda: world.served(known), "the history is served")
    for load in world.loads.values():
        load.bound()
    said = {name: len(world.events(name, "not_ready")) for name in SERVERS}
    incident.happen(world)
    world.send()
    _to_the_end(world)
    for name in SERVERS:
        if len(world.events(name, "not_ready")) > said[name]:
            world.problems.append(f"{name} was not ready")
    world.stop()
    world.problems += verdict(world)


def _to_the_end(world: World) -> None:
    """Wait until the last tick is served. What is held meanwhile is decided as an operator does: a tick of the
    incident is left out with the rest of the incident, a later one is accepted."""
    end = world.site.end_tick

    def done() -> bool:
        _decide(world)
        return world.joined() >= end and world.tick() >= end and world.served(end)

    world.wait(done, "the last tick is served")
    world.wait(lambda: all(world.why(name) == "" for name in ("learner", *JOINERS)), "all roles are ready again")


def _decide(world: World) -> None:
    config = world.site.config
    held = world.held()
    if held is not None and held["tick"] > world.decided_to:
        at, last = held["tick"], world.last_tick
        what: What = "skip" if at <= last else "accept"
        to = max(at, last)
        gate.decide(config, gate.DecisionRequest(what, at, to, "an incident", WHO))
        count = "1 tick" if to == at else f"{to - at + 1} ticks"
        world.decisions.append(f"{what} {count} ({world.told_of(held)})")
        if what == "skip":
            world.skipped.append((at, to))
        world.decided_to = to
    if world.metric("learner", "learner_publication_held") == 1 and "accept --publication" not in world.decisions:
        gate.accept_publication(config, "an incident", WHO)
        world.decisions.append("accept --publication")


def _result(incident: Incident, world: World, seed: int, seconds: float) -> Result:
    loads = list(world.loads.values())
    widest = max(load.widest for load in loads)
    failed = sum(load.failed for load in loads)
    problems = list(world.problems)
    if failed:
        told = next(load.failures[0] for load in loads if load.failures)
        problems.append(f"{failed} requests failed, the first: {told}")
    if not all(load.answers for load in loads):
        problems.append("a server was never asked")
    if widest > FACTOR:
        problems.append(f"odds of a prediction changed {widest:.2f} times, allowed are {FACTOR}")
    return {
        "incident": incident.name,
        "seed": seed,
        "requests": sum(load.answers for load in loads),
        "failed": failed,
        "odds_factor": round(widest, 3),
        "expected": incident.expected,
        "seen": world.seen,
        "decisions": world.decisions,
        "equals": incident.equals,
        "seconds": round(seconds, 1),
        "problems": problems,
    }


def _keep(incident: Incident, world: World, seed: int, result: Result) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    parts = [json.dumps(result, indent=1), world.logs()]
    (KEPT / f"incident-{incident.name}-seed-{seed}.log").write_text("\n\n".join(parts), encoding="utf-8")


def row_of(result: Result) -> str:
    """A row of Markdown; docs/evidence-faults.md has those of one run, where no request failed."""
    seen = "; ".join(f"{name} {value}" for name, value in result["seen"].items() if name != "digest")
    told = "; ".join(result["problems"]) or "equal"
    decided = ", ".join(result["decisions"]) or "none"
    cells = (result["incident"], result["requests"], result["failed"], result["odds_factor"], seen, decided, told)
    return f"| {' | '.join(map(str, cells))} |"
