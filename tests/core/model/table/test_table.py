"""The weight table: a dictionary by key, in key order by prefix, with lists of what changed."""

from __future__ import annotations

import ctypes
import mmap
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.table import regions
from stream_learner.core.model.table.rows import StateRows
from stream_learner.core.model.table.table import WeightTable
from tests.oracles.arithmetic import mix

Model = dict[int, tuple[tuple[float, ...], int]]


def keys_of(values: list[int]) -> NDArray[np.uint64]:
    """Keys as the table takes them."""
    return np.array(values, np.uint64)


def change(table: WeightTable, rows: Model, tick: int) -> None:
    """Change rows as a fold does: resolve, set local columns, write back."""
    keys = keys_of(list(rows))
    places, local = np.empty(len(keys), np.int64), np.zeros((len(keys), 1 + table.ncols))
    width = local.strides[0]
    table.resolve(address_of(keys), len(keys), address_of(places), address_of(local), width)
    for i, (columns, _) in enumerate(rows.values()):
        local[i, 1:] = columns
    table.write_back(address_of(places), len(keys), address_of(local), width, tick)


def load(table: WeightTable, rows: Model) -> None:
    """Load a model's rows at once."""
    columns = np.array([c for c, _ in rows.values()], np.float64).reshape(-1, table.ncols)
    table.load(StateRows(keys_of(list(rows)), columns, np.array([t for _, t in rows.values()], np.int64)))


def as_model(rows: StateRows) -> Model:
    """Rows as a dictionary."""
    return {
        int(key): (tuple(columns.tolist()), int(tick))
        for key, columns, tick in zip(rows.keys, rows.columns, rows.touched, strict=True)
    }


def assert_same(theirs: StateRows, ours: StateRows) -> None:
    """Assert that both have equal rows in equal order, to the bit."""
    for name in ("keys", "columns", "touched"):
        np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))


def all_rows(table: WeightTable) -> Model:
    """Every changed row; parts must rise by key, over all parts."""
    parts = list(table.items())
    keys = [int(key) for part in parts for key in part.keys]
    assert keys == sorted(keys)
    return {key: row for part in parts for key, row in as_model(part).items()}


def random_model(count: int, seed: int, ncols: int = 2, *, bits: int = 64) -> Model:
    """Rows of keys below 2^bits, spread over their range."""
    rng = random.Random(seed)
    keys = {rng.randrange(1, 1 << bits) for _ in range(count)}
    return {key: (tuple(rng.gauss(0, 1) for _ in range(ncols)), rng.randrange(50)) for key in keys}


@given(st.integers(1, 5), st.integers(0, 3000), st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_the_table_is_a_dictionary(ncols: int, count: int, seed: int) -> None:
    """Rows that went in come out, whatever the number of columns, and through every growth."""
    model = random_model(count, seed, ncols)
    table = WeightTable(ncols)
    items = list(model.items())
    for start in range(0, count, 100):
        load(table, dict(items[start : start + 100]))
    assert all_rows(table) == model
    assert table.count == len(model)
    some = items[::7]
    assert as_model(table.rows_of(keys_of([key for key, _ in some]))) == dict(some)


def test_absent_and_merely_resolved_keys_are_no_rows() -> None:
    """A key that no example has changed has zeros, is not counted and not handed out."""
    table = WeightTable(2)
    change(table, {5: ((0.0, 0.0), 0)}, 3)
    assert table.count == 0
    assert all_rows(table) == {}
    assert as_model(table.rows_of(keys_of([5, 6]))) == {5: ((0.0, 0.0), -1), 6: ((0.0, 0.0), -1)}
    assert table.rows_digest == 0
    assert len(table.take_changed_for_checkpoint(3)) == 0


@pytest.mark.parametrize("nbits", [0, 1, 7, 8, 9, 13, 40, 64])
def test_a_prefix_is_every_row_that_begins_with_it(nbits: int) -> None:
    """All prefixes of a length part the table; dense keys share slots and still come in order."""
    rng = random.Random(nbits)
    model = random_model(4000, 1)
    dense = rng.randrange(1 << 40) << 24
    model |= {dense + i: ((float(i), 1.0), 2) for i in range(1, 300)}
    table = WeightTable(2)
    load(table, model)
    for key in [*rng.sample(list(model), 40), dense]:
        prefix = key >> (64 - nbits)
        rows = table.rows_with_prefix(prefix, nbits)
        expected = sorted(k for k in model if k >> (64 - nbits) == prefix)
        assert [int(k) for k in rows.keys] == expected
        assert as_model(rows) == {k: model[k] for k in expected}


def test_a_prefix_that_does_not_fit_its_bits_is_refused() -> None:
    """Bits outside the prefix, or more of them than a key has."""
    for bits, nbits in ((2, 1), (-1, 4), (0, 65), (1, 0)):
        with pytest.raises(ValueError, match="prefix"):
            WeightTable(2).rows_with_prefix(bits, nbits)


def test_keys_that_all_share_their_slot_only_cost_time() -> None:
    """A thousand keys equal in their first 40 bits outgrow the spare slots of the last home of a sub-table."""
    model: Model = {(0xFFFFFFFFFF << 24) + i: ((float(i), 1.0), 1) for i in range(1000)}
    model |= random_model(2000, 4)
    table = WeightTable(2)
    load(table, model)
    assert all_rows(table) == model
    load(table, random_model(20_000, 9))
    assert as_model(table.rows_of(keys_of(list(model)))) == model


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 5000))
@settings(max_examples=10, deadline=None)
def test_a_hint_of_what_will_be_loaded_changes_no_row(before: int, after: int, expected: int) -> None:
    """Too small or too large, with rows in the table or none."""
    first, second = random_model(before, 1), random_model(after, 2)
    table = WeightTable(2)
    load(table, first)
    table.expect(expected)
    assert all_rows(table) == first
    load(table, second)
    assert all_rows(table) == {**first, **second}


@pytest.mark.parametrize("size_bytes", [regions.HUGE_PAGE_BYTES, 3 * regions.HUGE_PAGE_BYTES + mmap.PAGESIZE])
def test_a_large_region_begins_with_a_huge_page(size_bytes: int) -> None:
    """All of it is zero, and what is given back is zero again."""
    region = regions.Region(size_bytes)
    assert region.address % regions.HUGE_PAGE_BYTES == 0
    numbers = np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(region.address))
    assert not numbers.any()
    numbers[:] = 1
    half = size_bytes // mmap.PAGESIZE // 2 * mmap.PAGESIZE
    region.release(region.address, half)
    assert not numbers[:half].any()
    assert numbers[half:].all()


def test_growth_keeps_memory_in_proportion() -> None:
    """Rows that come in small batches, in random order, hold at most 56 bytes each; the load never passes 0.8."""
    table = WeightTable(2)
    keys = np.random.default_rng(3).permutation(np.unique(np.random.default_rng(2).integers(1, 2**63, 300_000)))
    for part in np.array_split(keys.astype(np.uint64) * np.uint64(2), 150):
        table.load(StateRows(part, np.ones((len(part), 2)), np.zeros(len(part), np.int64)))
    assert table.count == len(keys)
    assert table.bytes / table.count < 56
    assert regions.MAX_LOAD == 0.8


@given(st.lists(st.dictionaries(st.integers(1, 12), st.integers(0, 2), max_size=8), max_size=12), st.data())
@settings(max_examples=40, deadline=None)
def test_changes_are_listed_once_until_they_are_taken(ticks: list[dict[int, int]], data: st.DataObject) -> None:
    """Against sets kept beside: a row is taken if its columns changed since the last taking, in rising order."""
    table = WeightTable(1)
    values: dict[int, int] = {}
    checkpoint, publication = set(), set()
    for tick, changes in enumerate(ticks):
        changed = {key for key, value in changes.items() if values.get(key, 0) != value}
        change(table, {key: ((float(value),), 0) for key, value in changes.items()}, tick)
        values |= changes
        checkpoint |= changed
        publication |= changed
        assert table.changed_for_checkpoint == len(checkpoint)
        if data.draw(st.booleans()):
            rows = table.take_changed_for_checkpoint(tick)
            assert [int(k) for k in rows.keys] == sorted(checkpoint)
            assert rows.columns[:, 0].tolist() == [values[int(k)] for k in rows.keys]
            checkpoint = set()
        if data.draw(st.booleans()):
            assert {int(k) for k in table.take_changed_for_publication(tick).keys} == publication
            publication = set()


def test_a_restart_lists_again_what_a_crash_forgot() -> None:
    """After a load, both lists are made by a scan of `touched`, and go on from there."""
    model: Model = {key: ((1.0, 2.0), tick) for key, tick in ((3, 1), (1 << 60, 5), (7, 9))}
    table = WeightTable(2)
    load(table, model)
    table.restart_changes(9, 4)
    change(table, {3: ((2.0, 2.0), 0), 11: ((1.0, 1.0), 0)}, 10)
    assert table.take_changed_for_checkpoint(10).keys.tolist() == [3, 11]
    assert table.take_changed_for_publication(10).keys.tolist() == [3, 7, 11, 1 << 60]


def test_what_was_published_before_a_crash_is_not_published_again() -> None:
    """A publication may be ahead of the last checkpoint: the ticks up to it are folded again, and list nothing."""
    table = WeightTable(1)
    load(table, {3: ((1.0,), 2), 4: ((1.0,), 2)})
    table.restart_changes(2, 5)
    for tick in (3, 4, 5):
        change(table, {3: ((float(tick),), 0), 7: ((float(tick),), 0)}, tick)
    assert table.changed_for_publication == 0
    assert table.changed_for_checkpoint == 2
    change(table, {3: ((9.0,), 0), 4: ((2.0,), 0)}, 6)
    change(table, {3: ((8.0,), 0)}, 7)
    assert table.take_changed_for_publication(7).keys.tolist() == [3, 4]
    assert table.take_changed_for_checkpoint(7).keys.tolist() == [3, 4, 7]


def test_changes_are_taken_only_between_ticks() -> None:
    """Not up to a tick before one taken or written; nor may a tick change that was taken."""
    table = WeightTable(2)
    change(table, {3: ((1.0, 1.0), 0)}, 4)
    with pytest.raises(ValueError, match="tick 3"):
        table.take_changed_for_checkpoint(3)
    table.take_changed_for_checkpoint(5)
    with pytest.raises(ValueError, match="tick 4"):
        table.take_changed_for_checkpoint(4)
    with pytest.raises(ValueError, match="tick 5"):
        table.check_tick(5)
    table.check_tick(6)


@given(st.lists(st.dictionaries(st.integers(1, 9), st.sampled_from([0.0, -0.0, 1.5, -2.0]), max_size=5), max_size=9))
@settings(max_examples=40, deadline=None)
def test_the_digest_kept_is_the_digest_of_all_rows(ticks: list[dict[int, float]]) -> None:
    """Incremental, from a scan, and written out; rows of zeros of either sign do not count."""
    table = WeightTable(1)
    values: dict[int, float] = {}
    for tick, changes in enumerate(ticks):
        change(table, {key: ((value,), 0) for key, value in changes.items()}, tick)
        values |= changes
    expected = sum(
        mix(mix(key) ^ int(np.float64(value).view(np.uint64))) for key, value in values.items() if value != 0.0
    )
    assert table.rows_digest == table.rows_digest_full() == expected % (1 << 64)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("ncols", [1, 2, 5])
def test_the_digest_covers_every_row_that_a_record_changes(count: int, ncols: int) -> None:
    """Whatever the number of rows; among them some that stay as they are, and some that go back to zero."""
    table = WeightTable(ncols)
    first = {key << 40: (tuple(float(key + c) for c in range(ncols)), 0) for key in range(1, count + 1)}
    change(table, first, 1)
    assert table.rows_digest == table.rows_digest_full() != 0
    second = {
        key: ((0.0,) * ncols if i % 5 == 1 else columns, 0) for i, (key, (columns, _)) in enumerate(first.items())
    }
    second |= dict.fromkeys(list(first)[2::3], ((0.5,) * ncols, 0))
    change(table, second, 2)
    assert table.rows_digest == table.rows_digest_full()


def test_loading_a_row_again_replaces_it() -> None:
    """The digest follows, the count does not grow."""
    table, once = WeightTable(2), WeightTable(2)
    load(table, {5: ((1.0, 2.0), 3)})
    load(table, {5: ((4.0, 2.0), 4)})
    load(once, {5: ((4.0, 2.0), 4)})
    assert table.count == 1
    assert table.rows_digest == once.rows_digest


def test_rows_that_are_there_take_no_more_memory_when_they_are_loaded_again() -> None:
    """As deltas are loaded over pages: a table that was told how many rows come neither grows nor counts them twice."""
    first = random_model(20_000, 3)
    table = WeightTable(2)
    table.expect(len(first))
    load(table, first)
    held = table.bytes
    again = {key: ((2.0, float(tick)), tick) for tick, key in enumerate(sorted(first)[::2])}
    load(table, again)
    assert (table.bytes, table.count) == (held, len(first))
    assert all_rows(table) == {**first, **again}
    assert table.rows_digest == table.rows_digest_full()


@pytest.mark.parametrize(
    ("keys", "columns", "touched"),
    [([0], [[1.0, 1.0]], [1]), ([1], [[1.0, 1.0]], [-1]), ([1], [[1.0]], [1]), ([1, 2], [[1.0, 1.0]], [1])],
)
def test_rows_that_cannot_be_are_not_loaded(keys: list[int], columns: list[list[float]], touched: list[int]) -> None:
    """Key 0, a row never touched, or columns of another shape."""
    with pytest.raises(ValueError, match=r"row|agree"):
        WeightTable(2).load(StateRows(keys_of(keys), np.array(columns), np.array(touched)))
