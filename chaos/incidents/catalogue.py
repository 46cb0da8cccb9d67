"""The incidents by name: what goes wrong, what must be seen of it, and which run has the same digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.incidents.traffic import MINUTE_MS, Traffic
from chaos.incidents.world import JOINERS, World
from tests.e2e.configuration import Tree

LEAST_BYTES = 50
"""The least that an impression takes while it waits."""
REST_MS = 5 * MINUTE_MS
"""How much comes right after the incident, before an operator decides."""


@dataclass(frozen=True)
class Incident:
    """An incident. happen: begins it, waits for the reaction, and mends the cause. spoil: changes the events.

    expected: the reaction that is waited for. equals: the run whose digest it must have in the end.
    """

    name: str
    expected: str
    equals: str
    happen: Callable[[World], None]
    spoil: Callable[[Traffic], None] = lambda _: None
    sections: Tree = field(default_factory=dict)
    after_min: int = 10


SKIPPED = "the oracle's, of the same events, with the same skip"
NEVER = "the oracle's, of a run that never had the fault"


def _dead_clicks(traffic: Traffic) -> None:
    traffic.clicks = [click for click in traffic.clicks if not traffic.within(click)]


def _poison(world: World) -> None:
    """The span of the incident is sent, and what comes right after it; the gate holds a tick, and nothing of it is
    published."""
    world.send(world.traffic.end_ms)
    world.send(world.traffic.end_ms + REST_MS)
    hold_seen(world, "positives")


def _silence(world: World) -> None:
    """No click comes, so the join waits, and nothing is learned as not clicked; when clicks come again, the gate holds
    what they close."""
    world.send(world.traffic.end_ms)
    waiting = sum(map(world.traffic.within, world.traffic.impressions)) * LEAST_BYTES
    world.wait(
        lambda: sum(world.metric(name, "joiner_buffer_bytes") for name in JOINERS) >= waiting, "the impressions wait"
    )
    if world.joined() * world.tick_ms >= world.traffic.begin_ms:
        world.problems.append("ticks were closed while no click came")
    world.seen["join"] = "waits while no click comes"
    _poison(world)


def hold_seen(world: World, bound: str) -> None:
    """Wait until the gate holds; the learner is not ready then, servers are, and serve what came before."""
    world.wait(world.held, "the gate holds")
    held = world.held() or {}
    why = world.why("learner") or ""
    if not why.startswith("held: "):
        world.problems.append(f"the learner is ready while it holds, or does not say why: {why!r}")
    if not world.servers_are_ready():
        world.problems.append("a server is not ready while the gate holds")
    at = int(held["tick"])
    world.seen["held"] = world.told_of(held)
    newest = max(load.newest for load in world.loads.values())
    if newest >= at:
        world.problems.append(f"version {newest} was served, tick {at} is held")
    if held["bound"] != bound:
        world.problems.append(f"held by {held['bound']}, not by {bound}")


def _junk_in_the_log(world: World) -> None:
    """Bytes that are no records of the log, in every partition, while it grows."""
    middle_ms = (world.traffic.begin_ms + world.traffic.end_ms) // 2
    world.send(middle_ms)
    junk: tuple[bytes | None, ...] = (b"junk", b"", None, bytes(16), b"\xff" * 100, b'{"id": "x"}' * 50)
    topic = world.site.config.examples_topic
    for partition in range(world.site.partitions):
        world.site.append(topic, partition, *junk)
    world.send(world.traffic.end_ms)
    count = len(junk) * world.site.partitions
    name = "log_records_foreign_total"
    world.wait(lambda: world.metric("learner", f"learner_{name}") >= count, "the learner has passed it over")
    world.seen["passed over"] = int(world.metric("learner", f"learner_{name}"))
    if world.seen["passed over"] != count:
        world.problems.append(f"{world.seen['passed over']} records were passed over, {count} were sent")
    if not world.events("learner", "foreign_record_passed_over"):
        world.problems.append("the learner has not said that it passed records over")


INCIDENTS = (
    Incident("dead-clicks", "the join waits; then held: positives", SKIPPED, _silence, _dead_clicks),
    Incident("junk-in-the-log", "passed over, with a count", NEVER, _junk_in_the_log),
)
