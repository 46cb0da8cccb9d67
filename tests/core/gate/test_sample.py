"""The sample that is predicted, and the counts of slices."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest

from stream_learner.core.gate.sample import LEAST, cut_rows, sampled, slice_counts
from stream_learner.core.log.examples import to_batch
from stream_learner.core.log.field_bound import FieldBound
from tests.core.gate.log_ticks import Example, example, record

RNG = random.Random(9)
EXAMPLES = [example(RNG, 0.3) for _ in range(3_000)]


def ids(examples: list[Example], most: int, cuts: list[int]) -> set[int]:
    parts = [examples[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(examples)], strict=True) if begin < end]
    chosen = sampled([record(part) for part in parts], most)
    return {int(one) for part, rows in chosen for one in part.id_hash[rows]}


@pytest.mark.parametrize("count", [1, 5, 16, 17, 200, 3_000])
@pytest.mark.parametrize("most", [0, 1, 16, 128, 65_536])
def test_the_sample_is_bounded_and_goes_by_ids_alone(count: int, most: int) -> None:
    """All of a small tick, about one in 32 of a large one."""
    examples = EXAMPLES[:count]
    found = ids(examples, most, [])
    wanted = min(most, max(LEAST, count // 32))
    assert len(found) == count if count <= wanted else len(found) <= 4 * wanted
    assert ids(random.Random(1).sample(examples, count), most, [count // 3, count // 2]) == found
    if count == 3_000 and most >= 128:
        assert 60 < len(found) < 130


def test_ids_that_repeat_do_not_make_the_sample_large() -> None:
    """With `dedupe: 0` one id may come any number of times."""
    same = [(77, label, weight, keys) for _, label, weight, keys in EXAMPLES]
    assert len(sampled([record(same)], 64)) == 0 or sum(len(rows) for _, rows in sampled([record(same)], 64)) <= 256


@pytest.mark.parametrize("numbered", [False, True], ids=["", "numbered"])
@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_cut_out_are_those_rows(seed: int, numbered: bool) -> None:
    """Keys, values, labels, weights and numbers of keys of each, with a dictionary of their own."""
    rng = random.Random(seed)
    whole = record(EXAMPLES[seed * 40 : seed * 40 + rng.randrange(1, 40)])
    if numbered:
        whole.bound, whole.counted = FieldBound(9, (50, 60)), (whole.keys % np.uint64(3)).astype(np.uint8)
    rows = np.array(sorted(rng.sample(range(len(whole)), rng.randrange(1, len(whole) + 1))))
    mine, all_of_them = to_batch(cut_rows(whole, rows)), to_batch(whole)
    for number, row in enumerate(rows):
        ours = slice(mine.row_start[number], mine.row_start[number + 1])
        theirs = slice(all_of_them.row_start[row], all_of_them.row_start[row + 1])
        assert mine.keys[ours].tolist() == all_of_them.keys[theirs].tolist()
        assert mine.values[ours].tolist() == all_of_them.values[theirs].tolist()
        if numbered:
            assert mine.counted[ours].tolist() == all_of_them.counted[theirs].tolist()
    for name in ("id_hash", "label", "weight", "log_time_ms"):
        assert getattr(mine, name).tolist() == getattr(all_of_them, name)[rows].tolist()
    assert len(fields(mine)) == 8


def test_slices_count_the_examples_that_have_the_key() -> None:
    """And those of them with a label above 0."""
    wanted = np.array([3, 7, 30, 10_000], np.uint64)
    parts = [EXAMPLES[:700], EXAMPLES[700:701], EXAMPLES[701:1_500]]
    found = slice_counts([record(part) for part in parts], wanted).tolist()
    have = [[one for one in EXAMPLES[:1_500] if key in one[3]] for key in wanted.tolist()]
    assert found == [[len(part), sum(label > 0 for _, label, *_ in part)] for part in have]
