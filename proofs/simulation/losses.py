"""What may be lost for good in a history of joiners: records, a topic, or what the settings say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proofs.simulation.oracle import accepted_marks
from proofs.simulation.process import CLICKS, IMPRESSIONS, LOG
from stream_learner.core.log.marks import Mark

if TYPE_CHECKING:
    from proofs.simulation.joiners import World


def lose(world: World, kind: str) -> None:
    """Lose something without which no joiner can go on: all must stop, and say what it is."""
    log = world.logs[LOG, 0]
    marks = accepted_marks(log.archive)
    if not marks or log.start:
        return
    topic = world.rng.choice((IMPRESSIONS, CLICKS))
    if kind == "input compacted" and not _compact_input(world, topic, [mark for _, mark in marks]):
        return
    world.lost = kind
    world.seen[f"lost: {kind}"] += 1
    world.say(f"lost: {kind}")
    for process in list(world.processes):
        world.remove(process)
    world.ghosts.clear()
    world.owner.clear()
    if kind == "input recreated":
        world.topic_ids[topic] = b"n" * 16
        world.logs[topic, 0].recreate()
    elif kind == "log emptied":
        world.hints[0] = [world.hints[0][-1] if world.hints[0] else "0:0:-1"]
        log.recreate()
    elif kind == "settings changed":
        world.spec = replace(world.spec, window_ms=world.spec.window_ms + 1)
    elif kind == "partitions changed":
        world.partition_count += 1
    elif kind == "input trimmed":
        world.logs[topic, 0].trim(world.logs[topic, 0].end)
    world.marks_when_lost = len(marks)
    world.start_process()
    world.rebalance()


def _compact_input(world: World, topic: str, marks: list[Mark]) -> bool:
    """Remove a record that marks after the last resume point have counted; False if there is none."""
    points = [place for place, mark in enumerate(marks) if mark.resume is not None]
    first, last = marks[points[-1]], marks[-1]
    ends = [(mark.next_impression if topic == IMPRESSIONS else mark.click_cursor) for mark in (first, last)]
    log = world.logs[topic, 0]
    counted = [entry for entry in log.visible(log.stable) if ends[0] <= entry.offset < ends[1]]
    if not counted:
        return False
    log.entries.remove(world.rng.choice(counted))
    return True
