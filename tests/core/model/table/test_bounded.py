"""A table of bounded memory is the table without a bound, whatever leaves it and comes back."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from numpy.typing import NDArray

from stream_learner.core.model.table.bounded import BoundedWeightTable
from stream_learner.core.model.table.eviction import rows_within
from stream_learner.core.model.table.rows import StateRows
from stream_learner.core.model.table.table import PUBLICATION, WeightTable
from tests.core.model.table.test_table import as_model, assert_same, change, keys_of, load

Row = tuple[tuple[float, ...], int]
LIMIT_ROWS = 256 * 16


def random_keys(count: int) -> list[int]:
    rng = random.Random(1)
    return [rng.randrange(1, 1 << 64) for _ in range(count)]


POOL = [*random_keys(12_000), *range(1, 200)]


class DictRows:
    """Cold rows in a dictionary."""

    def __init__(self, ncols: int) -> None:
        self.ncols = ncols
        self.rows: dict[int, Row] = {}
        self.tick = -1
        self._ordered: list[int] | None = None

    def _as_rows(self, keys: list[int]) -> StateRows:
        columns = np.array([self.rows[key][0] for key in keys], np.float64).reshape(-1, self.ncols)
        return StateRows(keys_of(keys), columns, np.array([self.rows[key][1] for key in keys], np.int64))

    def fetch(self, keys: NDArray[np.uint64]) -> StateRows:
        assert len(set(keys.tolist())) == len(keys) and 0 not in keys
        return self._as_rows([key for key in keys.tolist() if key in self.rows])

    def between(self, low: int, high: int) -> StateRows:
        if self._ordered is None:
            self._ordered = sorted(self.rows)
        return self._as_rows(self._ordered[bisect_left(self._ordered, low) : bisect_right(self._ordered, high)])

    def changed_after(self, tick: int) -> NDArray[np.uint64]:
        return keys_of(sorted(key for key, row in self.rows.items() if row[1] > tick))

    def take(self, rows: StateRows) -> None:
        self.rows |= as_model(rows)
        self._ordered = None


def limit_bytes(ncols: int, rows: int = LIMIT_ROWS) -> int:
    """The least memory of a table that holds so many rows."""
    low = next(size for size in range(1 << 18, 1 << 30, 1 << 12) if rows_within(size, ncols) >= rows)
    assert rows_within(low - (1 << 12), ncols) < rows
    return low


class TwoTables(RuleBasedStateMachine):
    """Does the same folds, checkpoints, publications and restarts on both tables."""

    def __init__(self) -> None:
        super().__init__()
        self.evicted = 0

    @initialize(ncols=st.integers(1, 5), seed=st.integers(0, 2**32))
    def begin(self, ncols: int, seed: int) -> None:
        self.ncols, self.rng = ncols, random.Random(seed)
        self.cold = DictRows(ncols)
        self.plain: WeightTable = WeightTable(ncols)
        self.bounded = self._new_bounded()
        self.tick = self.published = 0
        self.waiting: StateRows | None = None
        self.waiting_tick = -1
        self.checkpoint: tuple[dict[int, Row], int] = ({}, 0)

    def _new_bounded(self) -> BoundedWeightTable:
        return BoundedWeightTable(self.ncols, self.cold, limit_bytes=limit_bytes(self.ncols), most_changed=1500)

    @precondition(lambda self: not self.bounded.must_checkpoint)
    @rule(count=st.integers(0, 900), old=st.booleans())
    def fold(self, count: int, old: bool) -> None:
        """A tick: some rows change, some are only looked at, some become zero, some were never seen."""
        self.tick += 1
        pool = POOL[: 3000 if old else None]
        keys = self.rng.sample(pool, count)
        before = self.plain.rows_of(keys_of(keys))
        rows = {}
        for key, columns in zip(keys, before.columns.tolist(), strict=True):
            fate = self.rng.random()
            new = [0.0] * self.ncols if fate < 0.1 else [self.rng.gauss(0, 1) for _ in columns]
            rows[key] = (tuple(columns if fate > 0.9 else new), 0)
        change(self.plain, rows, self.tick)
        change(self.bounded, rows, self.tick)

    @precondition(lambda self: self.waiting is None and self.tick > self.checkpoint[1])
    @rule()
    def begin_checkpoint(self) -> None:
        """Compare the changed rows; they are written later, while the fold goes on."""
        ours = self.bounded.take_changed_for_checkpoint(self.tick)
        assert_same(self.plain.take_changed_for_checkpoint(self.tick), ours)
        self.waiting, self.waiting_tick = ours, self.tick
        self.next_state = ({k: r for part in self.plain.items() for k, r in as_model(part).items()}, self.tick)
        self.next_totals = (self.bounded.count, self.bounded.rows_digest)

    @precondition(lambda self: self.waiting is not None)
    @rule()
    def write_a_part(self) -> None:
        """Some of the rows have arrived at the cold rows, whose tick does not say so."""
        assert self.waiting is not None
        half = self.rng.randrange(len(self.waiting) + 1)
        self.cold.take(self.waiting.part(0, half))

    @precondition(lambda self: self.waiting is not None)
    @rule()
    def commit_checkpoint(self) -> None:
        assert self.waiting is not None
        self.cold.take(self.waiting)
        self.cold.tick = self.waiting_tick
        self.checkpoint, self.totals = self.next_state, self.next_totals
        self.waiting = None

    @precondition(lambda self: self.tick > self.published)
    @rule(fails=st.booleans())
    def publish(self, fails: bool) -> None:
        """Both take the same rows; where a publication fails, they are listed anew."""
        theirs, ours = (t.take_changed_for_publication(self.tick) for t in (self.plain, self.bounded))
        assert_same(theirs, ours)
        if not fails:
            self.published = self.tick
            return
        for table in (self.plain, self.bounded):
            table.restart_changes(self.checkpoint[1] if self.waiting is None else self.waiting_tick, self.published)

    @precondition(lambda self: self.cold.tick >= 0 and self.waiting is None)
    @rule()
    def restart(self) -> None:
        """A crash after a checkpoint: the bounded table reads no row at the start."""
        rows, self.tick = self.checkpoint
        self.evicted += self.bounded.evicted
        self.plain, self.bounded = WeightTable(self.ncols), self._new_bounded()
        load(self.plain, rows)
        self.bounded.adopt(*self.totals)
        self.published = min(self.published, self.tick)
        for table in (self.plain, self.bounded):
            table.restart_changes(self.tick, self.published)
        assert self.bounded.resident == 0

    @rule()
    def compare(self) -> None:
        """Every way to read the tables gives the same."""
        assert self.bounded.rows_digest == self.plain.rows_digest == self.bounded.rows_digest_full()
        for nbits in (0, 3, 8, 13):
            prefix = self.rng.randrange(1 << nbits)
            assert_same(self.plain.rows_with_prefix(prefix, nbits), self.bounded.rows_with_prefix(prefix, nbits))
        keys = keys_of([*self.rng.choices(POOL, k=300), 0])
        assert_same(self.plain.rows_of(keys), self.bounded.rows_of(keys))

    def teardown(self) -> None:
        if not hasattr(self, "plain"):
            return
        self.compare()
        for part in zip(self.plain.items(), self.bounded.items(), strict=True):
            assert_same(*part)
        assert self.bounded.count == self.plain.count
        assert self.bounded.changed_for_checkpoint == self.plain.changed_for_checkpoint
        assert self.bounded.changed_for_publication == self.plain.changed_for_publication


TestTwoTables = TwoTables.TestCase
TestTwoTables.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("ncols", [1, 2, 5])
def test_a_bounded_table_drops_rows_and_ends_equal(ncols: int) -> None:
    """Sixty ticks with checkpoints over five times what fits: memory stays bounded, rows really leave and return."""
    machine: Any = TwoTables()
    machine.begin(ncols, 7)
    for tick in range(60):
        machine.fold(700, tick % 2 == 0)
        if tick % 2:
            machine.begin_checkpoint()
            machine.write_a_part()
            machine.commit_checkpoint()
        assert machine.bounded.bytes <= limit_bytes(ncols)
    machine.publish(True)
    machine.publish(False)
    machine.restart()
    machine.fold(900, False)
    machine.teardown()
    assert machine.evicted > 5 * LIMIT_ROWS
    assert machine.bounded.fetched > 500


def test_rows_that_must_stay_do_stay_beyond_the_bound() -> None:
    """Without a checkpoint nothing may leave: the table says so, and grows rather than forget."""
    table = BoundedWeightTable(2, DictRows(2), limit_bytes=limit_bytes(2), most_changed=1000)
    plain = WeightTable(2)
    for tick in range(12):
        rows: dict[int, Row] = {key: ((1.0, float(tick)), 0) for key in POOL[tick * 1000 : tick * 1000 + 1000]}
        change(table, rows, tick)
        change(plain, rows, tick)
        assert table.must_checkpoint
    assert table.rows_digest_full() == plain.rows_digest
    assert (table.evicted, table.resident) == (0, 12_000)


def test_what_nobody_publishes_is_not_listed_without_end() -> None:
    """Twenty times what may be listed changes, much of it leaves memory: the list stays short, and none is missed."""
    cold, most = DictRows(2), 1000
    table = BoundedWeightTable(2, cold, limit_bytes=limit_bytes(2), most_changed=most)
    plain = WeightTable(2)
    for tick in range(1, 25):
        rows: dict[int, Row] = {key: ((1.0, float(tick)), 0) for key in POOL[tick * 450 : tick * 450 + 900]}
        change(table, rows, tick)
        change(plain, rows, tick)
        cold.take(table.take_changed_for_checkpoint(tick))
        cold.tick = tick
        if tick == 3:
            for each in (table, plain):
                each.take_changed_for_publication(3)
        assert len(table._changes[PUBLICATION]) <= most and len(table._changes[PUBLICATION]._keys) <= 2 * most + 1800
    assert table.evicted > 3000
    assert table.changed_for_publication == plain.changed_for_publication > 9 * most
    for tick in (24, 25):
        assert_same(*(each.take_changed_for_publication(tick) for each in (plain, table)))
        change(table, {POOL[0]: ((3.0, 1.0), 0)}, 25)
        change(plain, {POOL[0]: ((3.0, 1.0), 0)}, 25)


def test_the_rows_touched_longest_ago_leave_first() -> None:
    """After many clean ticks what is left in memory is what changed last."""
    cold = DictRows(2)
    table = BoundedWeightTable(2, cold, limit_bytes=limit_bytes(2), most_changed=1000)
    for tick in range(12):
        change(table, {key: ((1.0, float(tick)), 0) for key in POOL[tick * 900 : tick * 900 + 900]}, tick)
        cold.take(table.take_changed_for_checkpoint(tick))
        cold.tick = tick
    missed = table.missed
    change(table, dict.fromkeys(POOL[11 * 900 : 12 * 900], ((2.0, 0.0), 0)), 12)
    assert table.missed <= missed + 60, "a row counts as incoming where it is there already, so a few may leave"
    change(table, dict.fromkeys(POOL[:900], ((2.0, 0.0), 0)), 12)
    assert table.missed > missed + 800


def test_what_cannot_be_is_refused() -> None:
    """A bound that holds nothing, rows that are cold rows, a table that is not empty."""
    cold = DictRows(2)
    with pytest.raises(ValueError, match="cannot be bounded by"):
        BoundedWeightTable(2, cold, limit_bytes=1 << 16, most_changed=10)
    table = BoundedWeightTable(2, cold, limit_bytes=limit_bytes(2), most_changed=10)
    cold.tick = 5
    with pytest.raises(ValueError, match="are cold rows"):
        load(table, {1: ((1.0, 1.0), 5)})
    load(table, {1: ((1.0, 1.0), 6)})
    with pytest.raises(ValueError, match="only an empty table"):
        table.adopt(1, 1)
