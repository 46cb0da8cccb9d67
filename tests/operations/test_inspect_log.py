"""Which marks `inspect tick` takes for those that count, where attempts that lost have left theirs in the log."""

from __future__ import annotations

import random

import pytest

from stream_learner.core.log.header import Kind, open_record
from stream_learner.core.log.marks import MarkId, decode_mark
from stream_learner.core.log.rule_r import RuleR
from stream_learner.operations.inspect_log import _accepted, _Link
from tests.core.log.log_world import Rules, World


def links_of(log: list[bytes]) -> dict[MarkId, _Link]:
    """The marks of a log, as `inspect tick` reads them from a topic."""
    links: dict[MarkId, _Link] = {}
    for offset, value in enumerate(log):
        record = open_record(value)
        if record.header.kind is not Kind.MARK:
            continue
        mark = decode_mark(record)
        if mark.id not in links:
            before = links.get(mark.predecessor) if mark.first_tick == mark.pred_tick + 1 else None
            length = 1 + (before.length if before is not None else 0)
            links[mark.id] = _Link(offset, mark.id, mark.predecessor, mark.first_tick, length)
    return links


def test_a_last_mark_that_lost_is_not_the_one_that_counts() -> None:
    """One that was stopped while it wrote tick 1 writes it when others have come to tick 2."""
    winner, loser = [MarkId(1, tick) for tick in range(3)], MarkId(2, 1)
    links = {
        mark: _Link(at, mark, MarkId(1, mark.last_tick - 1), mark.last_tick, mark.last_tick + 1)
        for at, mark in enumerate([*winner, loser])
    }
    assert [link.mark for link in _accepted(links)] == winner[::-1]


@pytest.mark.parametrize("seed", range(12))
def test_the_marks_that_count_are_those_of_rule_r(seed: int) -> None:
    """Over random histories of several writers, whose logs end with one more mark of some attempt that lost."""
    world = World(seed, Rules())
    world.run()
    log, rng = list(world.log), random.Random(seed)
    rule = RuleR(partition=0)
    taken = [tick.mark.id for offset, value in enumerate(log) if (tick := rule.take(offset, value))]
    lost = [mark for mark in links_of(log) if mark not in taken]
    links = links_of(log)
    if lost:
        last = rng.choice(lost)
        links[last] = links.pop(last)._replace(offset=len(log))
    assert [link.mark for link in _accepted(links)] == taken[::-1]
