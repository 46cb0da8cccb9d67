"""Examples for evaluation: the same ones for the oracle, as columns, and as VW text."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from stream_learner.core.log.examples import ExampleBatch
from stream_learner.evaluate.example_block import ExampleBlock, RecordMaker
from tests.oracles.optimizers.base import Example

DIMENSION = 12


def generated(rows: int, seed: int = 1, *, labels: Sequence[float] = (0.0, 1.0), weights: bool = True) -> list[Example]:
    """Sparse examples whose label goes by the first coordinates, with noise; values and importances of few digits."""
    chance = random.Random(seed)
    examples = []
    for _ in range(rows):
        x = {i: round(chance.uniform(-1.0, 1.0), 3) for i in chance.sample(range(DIMENSION), chance.randint(1, 6))}
        x = {i: value for i, value in x.items() if value}
        score = x.get(0, 0.0) - x.get(1, 0.0) + 0.5 * x.get(2, 0.0) + chance.gauss(0.0, 0.3)
        y = labels[-1] if score > 0.0 else labels[0]
        examples.append(Example(x, y, chance.choice([1.0, 1.0, 2.0, 0.5]) if weights else 1.0))
    return examples


def key_of(coordinate: int) -> int:
    """The key of a coordinate where examples do not come from a file."""
    return coordinate + 1


def batch_of(examples: Sequence[Example]) -> ExampleBatch:
    """Examples as columns."""
    n = len(examples)
    return ExampleBatch(
        np.zeros(n, np.int64),
        np.arange(1, n + 1, dtype=np.uint64),
        np.array([example.y for example in examples]),
        np.array([example.h for example in examples]),
        np.cumsum([0, *(len(example.x) for example in examples)]),
        np.array([key_of(i) for example in examples for i in example.x], np.uint64),
        np.array([value for example in examples for value in example.x.values()]),
    )


def example_blocks_of(examples: Sequence[Example], size: int = 7) -> list[ExampleBlock]:
    """Examples cut into blocks."""
    maker = RecordMaker()
    parts = [examples[start : start + size] for start in range(0, len(examples), size)]
    return [ExampleBlock(maker.records(batch_of(part)), np.ones(len(part), np.bool_)) for part in parts]


def vw_text(examples: Sequence[Example]) -> str:
    """Examples as VW text, a feature f<i> for each coordinate."""
    return "".join(
        f"{example.y:g} {example.h:g} |n {' '.join(f'f{i}:{value!r}' for i, value in example.x.items())}\n"
        for example in examples
    )
