"""Examples for tests of the fold: random ones, and records cut from them in any way."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from stream_learner.core.log.examples import ExampleRecord


@dataclass(frozen=True)
class Example:
    """Distinct (key, value) pairs, label, importance, log time in ms."""

    features: tuple[tuple[int, float], ...]
    label: float
    weight: float = 1.0
    log_time_ms: int = 0


def random_examples(count: int, seed: int, *, keys: int = 60, longest: int = 20) -> list[Example]:
    """Examples with repeated and rare keys, values of many sizes, soft labels, importances, and hopeless ones."""
    rng = random.Random(seed)
    universe = [rng.randrange(1, 1 << 64) for _ in range(keys)]
    chances = [1.0 / (i + 1) for i in range(keys)]
    examples = []
    for i in range(count):
        chosen = dict.fromkeys(rng.choices(universe, chances, k=rng.randrange(longest + 1)))
        values = (1.0, 1.0, 1.0, -1.0, 0.25, rng.gauss(0.0, 3.0), 10.0 ** rng.randrange(-170, 5))
        features = tuple((key, rng.choice(values)) for key in chosen)
        label = rng.choice((0.0, 0.0, 0.0, 1.0, rng.random()))
        weight = rng.choice((1.0, 1.0, 1.0, 0.0, 0.5, 7.25))
        if rng.random() < 0.05:
            bad = rng.choice((float("nan"), float("inf"), -1.0, 1e300))
            label, weight = rng.choice(((bad, weight), (label, bad)))
        if features and rng.random() < 0.03:
            bad = rng.choice((float("nan"), float("inf"), 1e200))
            features = ((features[0][0], bad), *features[1:])
        examples.append(Example(features, label, weight, 1_000_000 + 250 * i + rng.randrange(-400, 400)))
    return examples


def as_record(examples: list[Example], *, tick: int = 0, shuffle: int | None = None) -> ExampleRecord:
    """One record of these examples; the dictionary in order of first occurrence, or shuffled by a seed."""
    keys = list(dict.fromkeys(key for e in examples for key, _ in e.features))
    if shuffle is not None:
        random.Random(shuffle).shuffle(keys)
    place = {key: i for i, key in enumerate(keys)}
    values = np.array([x for e in examples for _, x in e.features], np.float64)
    positions = np.flatnonzero(values != 1.0)
    return ExampleRecord(
        partition=0,
        tick=tick,
        attempt=1,
        sequence=0,
        log_time_ms=np.array([e.log_time_ms for e in examples], np.int64),
        id_hash=np.arange(1, len(examples) + 1, dtype=np.uint64),
        label=np.array([e.label for e in examples], np.float64),
        weight=np.array([e.weight for e in examples], np.float64),
        keys=np.array(keys, np.uint64),
        indices=np.array([place[key] for e in examples for key, _ in e.features], np.uint16),
        row_len=np.array([len(e.features) for e in examples], np.uint16),
        positions=positions.astype(np.uint32),
        values=values[positions],
    )
