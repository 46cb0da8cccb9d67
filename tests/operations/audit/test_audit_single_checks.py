"""Single checks of an audit, each on one thing that is wrong by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.examples import ExampleBatch, encode_examples
from stream_learner.core.log.examples import decode as decode_record
from stream_learner.core.log.marks import ImpressionCounts, Mark, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.operations.audit.examples_again import example_differences
from stream_learner.operations.audit.findings import COUNTS, ORDER, Findings
from stream_learner.operations.audit.log_walk import LogWalk, Step
from stream_learner.operations.audit.mark_checks import MarkChecks
from stream_learner.operations.audit.request import AuditedPartition, Range
from tests.core.log.log_world import Rules, World

NOWHERE = KafkaSettings({"bootstrap.servers": "localhost:1"}, group="nobody")


def audited(findings: Findings) -> AuditedPartition:
    """A partition whose log is in memory."""
    return AuditedPartition(NOWHERE, "log", 0, Range(), findings, lambda records: None)


def batch(ids: tuple[int, ...] = (11, 12, 13, 14)) -> ExampleBatch:
    """One feature each; the label is 1 where the id is even."""
    count = len(ids)
    return ExampleBatch(
        np.arange(count, dtype=np.int64),
        np.array(ids, np.uint64),
        np.array([1.0 - i % 2 for i in ids]),
        np.ones(count),
        np.arange(count + 1, dtype=np.int64),
        np.array([100 + i for i in ids], np.uint64),
        np.ones(count),
    )


@pytest.mark.parametrize(("counted", "found"), [("2 positives", 0), ("1 positive", 1), ("3 positives", 1)])
def test_positives_that_a_mark_counts_are_those_of_its_examples(counted: str, found: int) -> None:
    """One too many is as wrong as one too few."""
    (value,) = encode_examples(0, 9, 1, batch())
    record = decode_record(value)
    counts = TickCounts(ImpressionCounts(read=4, examples=4, positives=int(counted[0])))
    mark = Mark(0, 1, 0, 9, 4, 0, 0, 1, 0, -1, counts)
    findings = Findings(10)
    place = audited(findings)
    spec = JoinSpec(window_ms=1, skew_ms=0, tick_ms=1, dedupe_ms=1)
    tick = AcceptedTick(mark, 1, [(0, record)])  # type: ignore[list-item]
    MarkChecks(place, spec).take(Step(tick, None, in_range=True))
    assert findings.failures[COUNTS] == found
    assert findings.total == found
    assert all(f"counts {counted}, its examples are 2" in finding.what for finding in findings.listed)


CHANGES: dict[str, tuple[Callable[[ExampleBatch], ExampleBatch], list[str]]] = {
    "nothing": (lambda made: made, []),
    "one is missing": (lambda _: batch((11, 12, 14)), ["missing: 1 example", "1 example with another log_time"]),
    "one too many": (
        lambda _: batch((11, 12, 13, 14, 15)),
        ["1 example that the inputs do not give: id 0x000000000000000f"],
    ),
    "a label": (lambda made: replace(made, label=np.zeros(4)), ["2 examples with another label"]),
    "a weight": (lambda made: replace(made, weight=made.weight * 2), ["4 examples with another weight"]),
    "a key": (lambda made: replace(made, keys=made.keys + np.uint64(1)), ["4 examples with another features"]),
    "the order": (
        lambda _: batch((12, 11, 13, 14)),
        ["2 examples with another log_time", "the examples are in another"],
    ),
    "a sign of nothing": (
        lambda made: replace(made, label=np.where(made.label > 0, 1.0, -0.0)),
        ["the same numbers in other bytes"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_way_in_which_examples_differ_from_the_inputs_is_said(change: str) -> None:
    """Each alone; the log has what is changed, the inputs give the rest."""
    changed, said = CHANGES[change]
    made = batch()
    found = list(example_differences(changed(made), made))
    assert len(found) == len(said)
    for one, words in zip(found, said, strict=True):
        assert one.startswith(words)


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_hole_between_offsets_is_found_though_nothing_else_is_wrong(missing: int) -> None:
    """Whoever writes to the log ends no transactions, and nothing is compacted: no offset may be left out."""
    world = World(1, Rules())
    world.run()
    behind = len(world.log) // 2

    def records(start: int) -> Iterator[tuple[int, bytes | None]]:
        for place, value in enumerate(world.log):
            offset = place if place < behind else place + missing
            if offset >= start:
                yield offset, value

    findings = Findings(10)
    assert list(LogWalk(audited(findings), records, 0).ticks())
    said = f"offsets {behind} to {behind + missing - 1} hold no record"
    assert [(finding.check, finding.what) for finding in findings.listed] == ([(ORDER, said)] if missing else [])
