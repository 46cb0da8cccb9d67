"""Incidents of processes, brokers and disks: something is away for longer than every time-out, and comes back."""

from __future__ import annotations

from proofs.chaos.incidents.world import JOINERS, LEAD_S, SERVERS, SESSION_S, SOCKET_S, STALE_S, World

LEARNER = ("learner",)
LONGEST_S = max(LEAD_S, SESSION_S, SOCKET_S, STALE_S)


def roles_away(world: World, *names: str) -> None:
    """Roles are killed; events come on; they are started again."""
    world.kill(*names)
    world.send(world.traffic.end_ms)
    _outlast(world)
    for name in names:
        world.start(name)


def brokers_away(world: World, *names: str) -> None:
    """The brokers are killed, with these roles; the roles are started again before the brokers, and wait for them."""
    middle_ms = (world.traffic.begin_ms + world.traffic.end_ms) // 2
    world.send(middle_ms)
    node = world.broker.nodes[0]
    world.kill(*names)
    node.kill()
    if not names:
        world.wait(lambda: "cannot read the training log" in (world.why("learner") or ""), "the learner says so")
        world.wait(lambda: all(world.events(name, "lost") for name in JOINERS), "the joiners' sessions have ended")
    _outlast(world)
    for name in names:
        world.start(name)
        world.wait(lambda name=name: world.events(name, "waiting_for_brokers"), f"{name} waits for brokers")  # type: ignore[misc]
    node.start()
    world.broker.wait_ready()
    world.send(world.traffic.end_ms)


def _outlast(world: World) -> None:
    """Wait for longer than every time-out; all servers say that their version is old, and go on being ready."""
    world.wait(lambda: all(load.stale_s > 2 * LONGEST_S for load in world.loads.values()), "twice the longest time-out")
    for name in SERVERS:
        world.wait(lambda name=name: world.events(name, "version_stale"), f"{name} says that its version is old")  # type: ignore[misc]
    if not world.servers_are_ready():
        world.problems.append("a server is not ready")
    world.seen["served version is old, s"] = min(load.stale_s for load in world.loads.values())


def full_disk(world: World) -> None:
    """The learner's disk is full; it folds no further and says why, and goes on when there is room."""
    if not world.disk.bounded:
        world.problems.append("no disk of a bounded size could be mounted")
        return
    world.disk.fill()
    world.send(world.traffic.end_ms)
    world.wait(lambda: "no room" in (world.why("learner") or ""), "the learner says that its disk is full")
    if not world.servers_are_ready():
        world.problems.append("a server is not ready")
    world.seen["learner"] = "says that there is no room"
    world.disk.free()
