"""A learner whose table is bounded folds to the same bits, whatever the optimizer keeps in its rows."""

from __future__ import annotations

import pytest

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import sample_optimizer
from stream_learner.core.model.table.bounded import BoundedWeightTable, MemoryBudget
from tests.core.model.example_records import as_record, random_examples
from tests.core.model.table.test_bounded import DictRows, limit_bytes


@pytest.mark.parametrize("name", ["ftrl_proximal", "adagrad", "averaged", "coin"])
def test_any_optimizer_has_the_bits_of_a_learner_without_a_bound(name: str) -> None:
    """Rows with one to several columns, with weights that move by themselves: margins, digest, scalars, non-zeros."""
    whole, bounded = (Learner(sample_optimizer(name)) for _ in range(2))
    ncols = len(whole.optimizer.columns)
    cold = DictRows(ncols)
    size = limit_bytes(ncols)
    budget = MemoryBudget(size, size, 0, 0, 1_000)
    table = bounded.bound_memory(cold, budget)
    examples = random_examples(3_000, 4, keys=9_000, longest=60)
    for tick, start in enumerate(range(0, len(examples), 60)):
        record = as_record(examples[start : start + 60], shuffle=tick)
        margins = whole.fold(record, tick).copy()
        assert bounded.fold(record, tick).tobytes() == margins.tobytes()
        if tick % 3 == 0:
            cold.take(table.take_changed_for_checkpoint(tick))
            cold.tick = tick
    assert table.evicted > 1_000 and table.fetched > 1_000
    assert bounded.count_nonzero() == whole.count_nonzero()
    assert bounded.state_scalars() == whole.state_scalars()
    assert bounded.digest_full() == whole.digest_full() == whole.digest()


def test_a_learner_goes_on_from_the_cold_side_with_no_row_in_memory() -> None:
    """State without loss: digest, count and non-zeros are those of the checkpoint, and of the fold without a stop."""
    straight = Learner(sample_optimizer("ftrl_proximal"))
    examples = random_examples(1_000, 9, keys=4_000, longest=40)
    for tick in range(10):
        straight.fold(as_record(examples[tick * 100 : tick * 100 + 100]), tick)
        if tick == 4:
            cold = DictRows(2)
            cold.take(straight.table.take_changed_for_checkpoint(tick))
            cold.tick, state, count = tick, straight.state_scalars(), straight.table.count
    size = limit_bytes(2)
    again = Learner(sample_optimizer("ftrl_proximal"))
    table = again.bound_memory(cold, MemoryBudget(size, size, 0, 0, 1_000))
    table.adopt(count, int(state["rows_digest"], 16))
    again.restore(state)
    table.restart_changes(4, 4)
    assert table.resident == 0
    for tick in range(5, 10):
        again.fold(as_record(examples[tick * 100 : tick * 100 + 100]), tick)
    assert again.state_scalars() == straight.state_scalars()
    assert again.digest_full() == straight.digest_full()


def test_memory_is_bounded_before_anything_is_learned() -> None:
    """Rows that are in a table already would be lost."""
    learner = Learner(sample_optimizer("ftrl_proximal"))
    assert not isinstance(learner.table, BoundedWeightTable)
    learner.fold(as_record(random_examples(20, 1)), 0)
    with pytest.raises(ValueError, match="cannot be bounded any more"):
        learner.bound_memory(DictRows(2), MemoryBudget.of(1 << 30, 2))
