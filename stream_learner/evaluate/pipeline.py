"""Leads examples to trials: blocks are read ahead, parsed by several threads, and taken by every trial in their order.

1. The source hands out blocks in order.
2. For each group of trials a thread of a pool parses the block, up to `AHEAD` blocks ahead.
3. Block after block, in order: bad lines are counted, and all trials take their examples, side by side.
4. When all trials have taken a block, its predictions are written, and the next one follows.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from stream_learner.errors import BadInput
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.models import Trial
from stream_learner.wording import count_of

AHEAD: Final = 2
"""How many blocks are parsed ahead, in addition to one in each thread."""


class Reader(Protocol):
    """Parses blocks of the source. One thread at a time."""

    def __call__(self, block: Any) -> ExampleBlock:
        """The examples of a block."""
        ...


class Source(Protocol):
    """A source of blocks: files, or a training log."""

    def blocks(self) -> Iterator[Any]:
        """All blocks, in order; called again for each further pass."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes read from files or topics in this pass so far, before decompression."""
        ...

    @property
    def bytes_total(self) -> int | None:
        """The bytes of one pass; None if that is not known."""
        ...


@dataclass(slots=True)
class TrialGroup:
    """Trials that share a way of reading blocks, so that each block is parsed once for all of them.

    make_reader: called once for each thread. examples: the number of the first pass, once it has ended. free: readers
    that no thread uses at the moment.
    """

    make_reader: Callable[[], Reader]
    trials: list[Trial]
    examples: int | None = None
    free: queue.SimpleQueue[Reader] = field(default_factory=queue.SimpleQueue)

    @property
    def wanted(self) -> list[Trial]:
        """The trials that make another pass."""
        return [trial for trial in self.trials if not trial.done]

    def read(self, block: Any) -> ExampleBlock:
        """Parse a block with a reader that no other thread uses."""
        try:
            reader = self.free.get_nowait()
        except queue.Empty:
            reader = self.make_reader()
        try:
            return reader(block)
        finally:
            self.free.put(reader)


@dataclass(slots=True)
class ReadCounts:
    """Sums of what has been read. skipped: bad lines of the first pass. examples: of all passes together."""

    passes: int = 0
    examples: int = 0
    skipped: int = 0


class Pipeline:
    """All passes of all trials."""

    def __init__(
        self,
        source: Source,
        groups: Sequence[TrialGroup],
        *,
        skip_bad: int = 0,
        on_block: Callable[[ReadCounts], None] = lambda counts: None,
        on_taken: Callable[[Sequence[ExampleBlock]], None] = lambda example_blocks: None,
        threads: int | None = None,
    ) -> None:
        """on_block: called after each block. on_taken: called in the first pass with the examples of a block as each
        group has parsed them. skip_bad: how many bad lines may be left out. threads: how many parse; by default one
        for each core, at most 4.
        """
        self.counts = ReadCounts()
        self._source = source
        self._feeds = groups
        self._skip_bad = skip_bad
        self._on_block = on_block
        self._on_taken = on_taken
        cores = len(os.sched_getaffinity(0))
        self._parsers = threads or min(4, cores)
        self._learners = min(cores, sum(len(group.trials) for group in groups))

    def run(self) -> None:
        """Make passes until no trial wants another. Raises BadInput for one bad line more than `skip_bad`."""
        with ExitStack() as stack:
            pools = [ThreadPoolExecutor(n, thread_name_prefix="evaluate") for n in (self._parsers, self._learners)]
            for pool in pools:
                stack.callback(pool.shutdown, cancel_futures=True)
            while groups := [group for group in self._feeds if group.wanted]:
                self._pass(groups, *pools)

    def _pass(self, groups: list[TrialGroup], parsers: ThreadPoolExecutor, learners: ThreadPoolExecutor) -> None:
        """Make one pass over all blocks."""
        trials = [(group.wanted, index) for index, group in enumerate(groups)]
        examples = [0] * len(groups)
        for example_blocks in self._example_blocks(groups, parsers):
            self._count_faults(example_blocks)
            work = [learners.submit(trial.take, example_blocks[index]) for wanted, index in trials for trial in wanted]
            for taken in work:
                taken.result()
            examples = [
                count + len(example_block) for count, example_block in zip(examples, example_blocks, strict=True)
            ]
            self.counts.examples += len(example_blocks[0])
            if self.counts.passes == 0:
                self._on_taken(example_blocks)
            self._on_block(self.counts)
        for group, count in zip(groups, examples, strict=True):
            _check_count(group, count, self.counts.passes)
        for wanted, _ in trials:
            for trial in wanted:
                trial.end_pass()
        self.counts.passes += 1

    def _example_blocks(self, groups: list[TrialGroup], parsers: ThreadPoolExecutor) -> Iterator[list[ExampleBlock]]:
        """For each block in order, its examples as each group has parsed them; further blocks are parsed meanwhile."""
        waiting: deque[list[Future[ExampleBlock]]] = deque()
        for block in self._source.blocks():
            waiting.append([parsers.submit(group.read, block) for group in groups])
            if len(waiting) > self._parsers + AHEAD:
                yield [parsed.result() for parsed in waiting.popleft()]
        while waiting:
            yield [parsed.result() for parsed in waiting.popleft()]

    def _count_faults(self, example_blocks: list[ExampleBlock]) -> None:
        """Count bad lines: in the first pass only, and a line once even if several groups find it bad."""
        if self.counts.passes:
            return
        worst = max(example_blocks, key=lambda example_block: len(example_block.faults))
        room = self._skip_bad - self.counts.skipped
        self.counts.skipped += len(worst.faults)
        if len(worst.faults) > room:
            raise bad_line(worst, room, self._skip_bad)


def _check_count(group: TrialGroup, examples: int, passes: int) -> None:
    """Raise BadInput if a pass had another number of examples than the first one."""
    if group.examples is None:
        group.examples = examples
    if examples != group.examples:
        raise BadInput(
            f"the data changed while they were read: {count_of(group.examples, 'example')} in the first pass, "
            f"{examples:,} in pass {passes + 1}",
            action="Evaluate a copy that nobody writes to; of a training log, what retention does not take meanwhile.",
        )


def bad_line(example_block: ExampleBlock, place: int, skipped: int) -> BadInput:
    """The error for the bad line at an index of the faults of a block, after `skipped` bad lines were left out."""
    fault = example_block.faults[place]
    before = f" ({count_of(skipped, 'bad line')} before it {'was' if skipped == 1 else 'were'} skipped)"
    return BadInput(
        f"{example_block.file} line {fault.line} column {fault.column}: expected {fault.expected}"
        f"{before if skipped else ''}",
        action="Correct the line, or let so many bad lines be skipped and counted with --skip-bad N.",
    )
