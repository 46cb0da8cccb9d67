"""Two ticks compared: against a slow oracle that goes through the examples one by one."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from stream_learner.core.log.compare import COLUMNS, compare, together
from tests.core.model.example_records import Example, as_record, random_examples


class Named(NamedTuple):
    """An example with the hash of its id."""

    id_hash: int
    example: Example


def batch(named: list[Named], cuts: int = 1):  # type: ignore[no-untyped-def]
    """The batch of these examples, from as many records."""
    if not named:
        return together([])
    edges = [len(named) * n // cuts for n in range(cuts + 1)]
    records = []
    for begin, end in pairwise(edges):
        some = named[begin:end]
        record = as_record([n.example for n in some])
        records.append(replace(record, id_hash=np.array([n.id_hash for n in some], np.uint64)))
    return together(records)


def oracle(
    first: list[Named], second: list[Named]
) -> tuple[list[int], list[int], dict[tuple[int, int], set[str]], bool]:
    """Rows without a partner on each side, differing columns by pair, and whether pairs are in another order."""
    free = list(range(len(second)))
    pairs: list[tuple[int, int]] = []
    for row, named in enumerate(first):
        partner = next((other for other in free if second[other].id_hash == named.id_hash), None)
        if partner is not None:
            free.remove(partner)
            pairs.append((row, partner))
    differing = {pair: _columns(first[pair[0]].example, second[pair[1]].example) for pair in pairs}
    paired = {row for row, _ in pairs}
    partners = [partner for _, partner in pairs]
    return (
        [row for row in range(len(first)) if row not in paired],
        free,
        {pair: columns for pair, columns in differing.items() if columns},
        partners != sorted(partners),
    )


def _columns(a: Example, b: Example) -> set[str]:
    differing = {"label": a.label != b.label, "weight": a.weight != b.weight, "features": a.features != b.features}
    return {name for name, differs in {**differing, "log_time": a.log_time_ms != b.log_time_ms}.items() if differs}


def named(count: int, seed: int, ids: int) -> list[Named]:
    rng = random.Random(seed)
    finite = [
        e
        for e in random_examples(2 * count, seed)
        if np.isfinite([e.label, e.weight, *dict(e.features).values()]).all()
    ]
    return [Named(rng.randrange(1, ids), e) for e in finite[:count]]


def changed(examples: list[Named], rng: random.Random, changes: int) -> list[Named]:
    """The examples after some random changes of each kind."""
    out = list(examples)
    for _ in range(changes):
        at = rng.randrange(len(out))
        e = out[at].example
        edit = rng.randrange(7)
        if edit == 0:
            del out[at]
        elif edit == 1:
            out.insert(at, Named(rng.randrange(1, 200), e))
        elif edit == 2:
            other = rng.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        else:
            features = e.features[:-1] if edit == 3 else tuple((k, 2.5) for k, _ in e.features)
            new = (replace(e, features=features), replace(e, label=0.5), replace(e, weight=3.0, log_time_ms=7))
            out[at] = Named(out[at].id_hash, new[max(edit - 4, 0)])
    return out


@pytest.mark.parametrize("ids", [10, 10**9])
@pytest.mark.parametrize("changes", [0, 1, 3, 40])
@pytest.mark.parametrize("seed", range(5))
def test_differences_are_those_that_going_through_the_examples_finds(seed: int, changes: int, ids: int) -> None:
    """With repeated ids and without, whatever was changed, and however the records were cut."""
    first = named(120, seed, ids)
    second = changed(first, random.Random(seed), changes)
    only_first, only_second, pairs, reordered = oracle(first, second)
    found = compare(batch(first, cuts=3), batch(second))
    if found is None:
        assert (only_first, only_second, pairs, reordered) == ([], [], {}, False)
        return
    assert (found.only_first.tolist(), found.only_second.tolist()) == (only_first, only_second)
    assert found.reordered == reordered
    columns = {
        pair: {name for name in COLUMNS if found.columns[name][i]}
        for i, pair in enumerate(zip(found.first.tolist(), found.second.tolist(), strict=True))
    }
    assert columns == pairs
    assert found.count == len(only_first) + len(only_second) + len(pairs) + reordered > 0


def test_a_tick_is_compared_with_nothing() -> None:
    """All of its examples are on one side only; nothing and nothing are the same."""
    examples = named(5, 1, 100)
    assert compare(batch(examples), batch([])).only_first.tolist() == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
    assert compare(batch([]), batch(examples)).only_second.tolist() == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
    assert compare(batch([]), batch([])) is None
