"""From blocks to trials: order, bad lines, predictions, several readings, passes."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_learner.errors import BadInput
from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.formats.base import Fault
from stream_learner.evaluate.models import LearnerModel, Trial
from stream_learner.evaluate.outputs import PredictionFile
from stream_learner.evaluate.pipeline import Pipeline, TrialGroup
from stream_learner.evaluate.request import PassPlan
from tests.core.model.optimizers.optimizer_help import learner_for
from tests.evaluate.evaluation_help import example_blocks_of, generated
from tests.oracles.optimizers.base import Example
from tests.waiting import patience

SETTINGS = [("ftrl_proximal", {"alpha": 0.3, "l1": 0.1}), ("adagrad", {"eta": 0.2}), ("ogd", {"eta": 0.1})]


class Memory:
    """Example blocks as a source; a block is the number of one."""

    bytes_total = None
    bytes_read = 0

    def __init__(self, blocks: int) -> None:
        self.count = blocks
        self.passes = 0

    def blocks(self) -> Iterator[int]:
        self.passes += 1
        yield from range(self.count)


def trials(plan: PassPlan | None = None) -> list[Trial]:
    """One of each."""
    made = [LearnerModel(learner_for(name, "logistic", hyper)) for name, hyper in SETTINGS]
    names = [name for name, _ in SETTINGS]
    return [Trial(name, model, plan or PassPlan()) for name, model in zip(names, made, strict=True)]


def reading(
    example_blocks: Sequence[ExampleBlock], work: Callable[[int], None] = lambda block: None
) -> Callable[[], Any]:
    """A function that makes readers of these blocks of examples."""

    def read(block: int) -> ExampleBlock:
        work(block)
        return example_blocks[block]

    return lambda: read


def digests(done: Sequence[Trial]) -> list[int]:
    """The bits of their models."""
    return [trial.model.learner.digest() for trial in done]  # type: ignore[attr-defined]


def alone(example_blocks: Sequence[ExampleBlock], plan: PassPlan | None = None) -> list[Trial]:
    """The results of the trials one after the other, without threads."""
    found = trials(plan)
    for trial in found:
        while not trial.done:
            for example_block in example_blocks:
                trial.take(example_block)
            trial.end_pass()
    return found


def test_parsers_that_take_different_times_change_nothing() -> None:
    """Each trial sees the examples in their order, bit for bit as if it were alone; several threads did parse."""
    example_blocks = example_blocks_of(generated(200), 5)
    parsed = [threading.Event() for _ in example_blocks]
    used = set()

    def work(block: int) -> None:
        used.add(threading.get_ident())
        if block % 2 == 0 and block + 1 < len(example_blocks):
            assert parsed[block + 1].wait(patience()), "the next one is parsed before this one"
        parsed[block].set()

    found = trials()
    pipeline = Pipeline(Memory(len(example_blocks)), [TrialGroup(reading(example_blocks, work), found)], threads=4)
    pipeline.run()
    assert digests(found) == digests(alone(example_blocks))
    assert len(used) > 1
    assert (pipeline.counts.examples, pipeline.counts.passes) == (200, 1)


def test_trials_with_plans_of_their_own_end_when_each_is_done() -> None:
    """One pass, four passes, passes with holdout that end early: side by side as alone."""
    example_blocks = example_blocks_of(generated(90), 8)
    plans = [PassPlan(), PassPlan(4, holdout_off=True), PassPlan(12)]
    found = [trial for plan in plans for trial in trials(plan)]
    source = Memory(len(example_blocks))
    Pipeline(source, [TrialGroup(reading(example_blocks), found)]).run()
    expected = [trial for plan in plans for trial in alone(example_blocks, plan)]
    assert digests(found) == digests(expected)
    without_time = [[{**trial.figures(), "seconds": 0.0} for trial in side] for side in (found, expected)]
    assert without_time[0] == without_time[1]
    assert 4 <= source.passes <= 12


def test_readings_are_kept_apart() -> None:
    """Two groups read the same blocks in two ways; each trial sees its own."""
    examples = generated(60)
    other = [Example({i + 20: v for i, v in e.x.items()}, e.y, e.h) for e in examples]
    ways = [example_blocks_of(side, 9) for side in (examples, other)]
    found = [trials(), trials()]
    Pipeline(Memory(7), [TrialGroup(reading(way), side) for way, side in zip(ways, found, strict=True)]).run()
    for way, side in zip(ways, found, strict=True):
        assert digests(side) == digests(alone(way))


def test_bad_lines_are_counted_and_one_too_many_is_named() -> None:
    """File, line, column, what was expected; counted once, though there are several readings and passes."""
    example_blocks = example_blocks_of(generated(40), 10)
    example_blocks[1].faults = [Fault(11, 3, "a number")]
    example_blocks[3].faults = [Fault(35, 1, "a label"), Fault(38, 9, "a bar")]
    for example_block in example_blocks:
        example_block.file = "clicks.vw"
    plan = PassPlan(3, holdout_off=True)
    groups = [TrialGroup(reading(example_blocks), trials(plan)), TrialGroup(reading(example_blocks), trials(plan))]
    pipeline = Pipeline(Memory(4), groups, skip_bad=3)
    pipeline.run()
    assert pipeline.counts.skipped == 3
    for skip, words in [
        (0, "clicks.vw line 11 column 3: expected a number"),
        (1, "clicks.vw line 35 column 1: expected a label (1 bad line before it was skipped)"),
        (2, "clicks.vw line 38 column 9: expected a bar (2 bad lines before it were skipped)"),
    ]:
        with pytest.raises(BadInput) as caught:
            Pipeline(Memory(4), [TrialGroup(reading(example_blocks), trials())], skip_bad=skip).run()
        assert caught.value.message == words


def test_an_error_in_a_reader_ends_it() -> None:
    """The error is raised as it is, and no thread is left behind."""
    example_blocks = example_blocks_of(generated(40), 4)

    def work(block: int) -> None:
        if block == 5:
            raise BadInput("the file ends in the middle of a block")

    before = threading.active_count()
    with pytest.raises(BadInput, match="in the middle"):
        Pipeline(Memory(10), [TrialGroup(reading(example_blocks, work), trials())]).run()
    assert threading.active_count() == before


def test_predictions_are_those_of_the_first_pass_in_order() -> None:
    """One configuration: prediction and tag as Vowpal Wabbit writes them; several: CSV, a column each."""
    example_blocks = example_blocks_of(generated(30), 7)
    for start, example_block in zip(range(0, 30, 7), example_blocks, strict=True):
        example_block.tags = [f"t{start + i}".encode() if i % 2 else b"" for i in range(len(example_block))]
    texts = []
    for chosen in (slice(0, 1), slice(0, 3)):
        found = trials(PassPlan(2, holdout_off=True))[chosen]
        text = io.StringIO()
        sink = PredictionFile(text, found)
        Pipeline(Memory(5), [TrialGroup(reading(example_blocks), found)], on_taken=sink.write).run()
        texts.append(text.getvalue().splitlines())
    expected = trials()[0]
    margins = []
    for example_block in example_blocks:
        expected.take(example_block)
        margins += expected.margins.tolist()
    first = [line.split(" ") for line in texts[0]]
    assert [float(line[0]) for line in first] == pytest.approx([1 / (1 + np.exp(-p)) for p in margins], rel=1e-8)
    assert [line[1:] for line in first] == [[f"t{i}"] if (i % 7) % 2 else [] for i in range(30)]
    assert texts[1][0] == "tag,ftrl_proximal,adagrad,ogd"
    assert [line.split(",")[1] for line in texts[1][1:]] == [line[0] for line in first]


def test_predictions_of_readings_with_other_lines_are_refused() -> None:
    """As many examples of a block, but not of the same lines: nothing would show it in the file."""
    example_blocks = [*example_blocks_of(generated(10), 10), *example_blocks_of(generated(10), 10)]
    example_blocks[1].records[0] = replace(
        example_blocks[1].records[0], id_hash=example_blocks[1].records[0].id_hash + np.uint64(1)
    )
    found = trials()[:2]
    groups = [
        TrialGroup(reading([example_block]), [trial])
        for example_block, trial in zip(example_blocks, found, strict=True)
    ]
    sink = PredictionFile(io.StringIO(), found)
    with pytest.raises(BadInput, match="do not read the same lines"):
        Pipeline(Memory(1), groups, on_taken=sink.write).run()


def test_data_that_change_between_passes_are_noticed() -> None:
    """A file that grew or shrank since the first pass would hold out other examples."""
    source = Memory(2)
    example_blocks = example_blocks_of(generated(30), 10)

    def grow(block: int) -> None:
        source.count = 3

    with pytest.raises(BadInput, match="20 examples in the first pass, 30 in pass 2"):
        Pipeline(source, [TrialGroup(reading(example_blocks, grow), trials(PassPlan(4)))]).run()
