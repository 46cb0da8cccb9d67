"""Incidents of foreign bytes: junk in the training log, and in every topic that a model has."""

from __future__ import annotations

import shutil

from proofs.chaos.incidents.spoiled import BAD_RECORDS
from proofs.chaos.incidents.world import SERVERS, World

JUNK: tuple[bytes | None, ...] = (b"junk", b"", None, bytes(16), b"\xff" * 100, b'{"id": "x"}' * 50)
KEYS = (None, b"", b"junk", bytes(9))


def in_the_log(world: World) -> None:
    """Junk in every partition of the training log, while it grows."""
    _send_half(world)
    _append(world, world.site.config.examples_topic, world.site.partitions)
    world.send(world.traffic.end_ms)
    _wait_foreign(world)


def everywhere(world: World) -> None:
    """Junk in every topic of the model, and in the inputs; then the learner loses its disk, and takes its state from
    the topic of the copies."""
    site, config = world.site, world.site.config
    _send_half(world)
    shards = config.snapshots.shards
    for topic, partitions in (
        (config.examples_topic, site.partitions),
        (config.snapshots_topic, shards),
        (config.checkpoints_topic, shards),
        (config.dead_letters_topic, site.partitions),
        (world.control, 1),
    ):
        _append(world, topic, partitions)
    world.send(world.traffic.end_ms)
    _wait_foreign(world)
    for name in SERVERS:
        world.wait(lambda name=name: world.events(name, "snapshot_record_unusable"), f"{name} passes junk over")  # type: ignore[misc]
    world.seen["in the snapshots"] = "passed over and said"
    copied = world.tick()
    world.wait(lambda: world.metric("learner", "learner_copy_age_seconds") < 5 and world.tick() >= copied, "a copy")
    world.kill("learner")
    shutil.rmtree(world.disk.path / "state")
    world.start("learner")
    world.wait(lambda: world.events("learner", "learner_started"), "the learner has started")
    world.seen["the learner's disk"] = "restored" if world.events("learner", "state_restored") else "not restored"
    if not world.events("learner", "state_restored"):
        world.problems.append("the state was not restored from its copy")
    if not world.servers_are_ready():
        world.problems.append("a server is not ready")


def letters(world: World) -> None:
    """Each bad record of the inputs has its letter, and the joiners have said so."""
    dead = sum(
        log.marks[n].counts.impressions.dead + log.marks[n].counts.clicks.dead
        for log in world.site.logs()
        for n in range(len(log.marks))
    )
    world.seen["dead letters"] = dead
    if dead != 2 * BAD_RECORDS:
        world.problems.append(f"{dead} records were dead letters, {2 * BAD_RECORDS} were sent")


def _send_half(world: World) -> None:
    world.send((world.traffic.begin_ms + world.traffic.end_ms) // 2)


def _append(world: World, topic: str, partitions: int) -> None:
    """Junk with the keys that a topic may have in every partition; where a topic is compacted, none without a key."""
    compacted = topic not in (world.site.config.examples_topic, world.site.config.dead_letters_topic)
    for partition in range(partitions):
        for number, value in enumerate(JUNK):
            key = KEYS[number % len(KEYS)]
            world.site.append(topic, partition, value, key=b"junk" if compacted and key is None else key)


def _wait_foreign(world: World) -> None:
    count = len(JUNK) * world.site.partitions
    name = "learner_log_records_foreign_total"
    world.wait(lambda: world.metric("learner", name) >= count, "the learner has passed the junk over")
    found = int(world.metric("learner", name))
    world.seen["passed over in the log"] = found
    if found != count:
        world.problems.append(f"{found} records were passed over, {count} were sent")
    if not world.events("learner", "foreign_record_passed_over"):
        world.problems.append("the learner has not said that it passed records over")
