"""The table of ids against a dictionary, through growth, forgetting and crowded places."""

from __future__ import annotations

import ctypes
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.machine.id_table import IdTable, find_entry, put_entry


def get(table: IdTable, key: int) -> int:
    """The value of an id, -1 if there is none."""
    return ctypes.c_int64.from_address(find_entry(table.header, key) + 8).value - 1


def put(table: IdTable, key: int, value: int, floor: int) -> None:
    while not put_entry(table.header, find_entry(table.header, key), key, value):
        table.grow(key, floor)


def signed(word: int) -> int:
    return ctypes.c_int64(word).value


keys = st.one_of(
    st.integers(-3, 3),
    st.integers(0, 200).map(lambda k: signed(k << 40)),
    st.integers(0, 200).map(lambda k: signed((k << 58) | 5)),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(keys, max_size=400), st.integers(1, 50))
def test_it_holds_what_a_dictionary_holds_above_the_floor(stream: list[int], span: int) -> None:
    """Every id above the floor has its last value; one below it has none, or its last."""
    table, known = IdTable(), {}
    for value, key in enumerate(stream):
        floor = max(0, value - span)
        seen = get(table, key)
        assert seen == known.get(key, -1) or (seen == -1 and known[key] < floor)
        put(table, key, value, floor)
        known[key] = value
    for key, value in known.items():
        assert get(table, key) == value or value < max(0, len(stream) - 1 - span)


def test_memory_follows_what_is_alive() -> None:
    """A hundred times as many ids as are alive at a time leave the table at its size; fewer make it smaller."""
    rng = random.Random(1)
    table, sizes, value = IdTable(), [], 0
    for span in (20_000, 20_000, 20_000, 500):
        for _ in range(100_000):
            put(table, signed(rng.getrandbits(64)), value, max(0, value - span))
            value += 1
        sizes.append(table.nbytes)
    assert sizes[0] == sizes[1] == sizes[2] < 20_000 * 100
    assert sizes[3] < sizes[2] / 8
