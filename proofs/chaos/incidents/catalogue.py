"""The incidents by name: what goes wrong, what must be seen of it, and which run has the same digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proofs.chaos.incidents import away, junk, spoiled
from proofs.chaos.incidents.traffic import MINUTE_MS, Traffic
from proofs.chaos.incidents.world import JOINERS, World
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
EVENTS = "the oracle's, of the same events, with the same skip if there was one"
NEVER = "the oracle's, of a run that never had the fault"
JUNK = "the oracle's, of the same inputs; of the other topics as if there were no junk"


def _poison(world: World, bound: str = "positives") -> None:
    """The span of the incident is sent, and what comes right after it; the gate holds a tick, and nothing of it is
    published."""
    world.send(world.traffic.end_ms)
    world.send(world.traffic.end_ms + REST_MS)
    hold_seen(world, bound)


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


def _changed(world: World) -> None:
    """Events of another form: they are learned, or the gate holds; whichever it is, it is seen."""
    world.send(world.traffic.end_ms + REST_MS)
    world.wait(lambda: world.tick() >= world.last_tick or world.held(), "the incident is learned or held")
    held = world.held()
    if held is None:
        world.seen["learned"] = "yes"
    else:
        hold_seen(world, held["bound"])


def _flood(world: World) -> None:
    """Unique values are learned; nothing brakes them."""
    before = world.metric("learner", "learner_features")
    _changed(world)
    world.seen["new features"] = int(world.metric("learner", "learner_features") - before)


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


def _junk_everywhere(world: World) -> None:
    junk.everywhere(world)
    world.send(world.traffic.end_ms + REST_MS)
    world.wait(lambda: world.joined() >= world.last_tick, "the incident is joined")
    junk.letters(world)


INCIDENTS = (
    Incident("dead-clicks", "the join waits; then held: positives", SKIPPED, _silence, spoiled.dead_clicks),
    Incident("half-the-clicks", "held: positives", SKIPPED, _poison, spoiled.half_the_clicks),
    Incident("clicks-an-hour-late", "held: positives", SKIPPED, _silence, spoiled.late_clicks, after_min=85),
    Incident("doubled-impressions", "held: positives", SKIPPED, _poison, spoiled.doubled_impressions),
    Incident("a-field-vanishes", "learned, or held", EVENTS, _changed, spoiled.a_field_vanishes),
    Incident("a-field-changes-type", "learned, or held", EVENTS, _changed, spoiled.a_field_changes_type),
    Incident("unique-values", "learned, or held", EVENTS, _flood, spoiled.unique_values),
    Incident("junk-in-the-log", "passed over, with a count", NEVER, junk.in_the_log),
    Incident("junk-everywhere", "passed over, with counts and letters", JUNK, _junk_everywhere, spoiled.bad_records),
    Incident("learner-away", "versions are old; all goes on", NEVER, lambda w: away.roles_away(w, "learner")),
    Incident("joiners-away", "versions are old; all goes on", NEVER, lambda w: away.roles_away(w, *JOINERS)),
    Incident("learner-and-joiners-away", "the same", NEVER, lambda w: away.roles_away(w, "learner", *JOINERS)),
    Incident("brokers-away", "all wait and say so; all goes on", NEVER, away.brokers_away),
    Incident(
        "brokers-learner-and-joiners-away", "the same", NEVER, lambda w: away.brokers_away(w, "learner", *JOINERS)
    ),
    Incident("full-disk", "the learner waits and says so", NEVER, away.full_disk),
)
