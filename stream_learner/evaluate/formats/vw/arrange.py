"""Arranges the features of a line in VW's order: groups by letter, n-grams, constant, interactions, sums of repeats.

Namespaces come in the order of the first occurrence of their letter, each followed by its n-grams; then the constant;
then interactions. A line that does not fit into the room there is is read again after the room has grown.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.words import (
    inlined,
    load_byte,
    load_float,
    load_int,
    load_word,
    store_byte,
    store_float,
    store_int,
    store_word,
)
from stream_learner.evaluate.formats.vw.layout import (
    GRAM_WIDTH,
    MAX_FEATURES,
    State,
)
from stream_learner.evaluate.formats.vw.names import cross_three, cross_two, gram_key

FULL = -1
"""Returned instead of the index behind the last feature: there is no room for more."""

_1 = np.uint64(1)
_INDEX_BITS = np.uint64(16)
_INDEX_MASK = np.uint64(0xFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FEWEST_SLOTS_POWER = 8
_FIRST_WILD, _LAST_WILD = 0x20, 0x7E


@inlined
def _put(state: State, m: int, key: np.uint64, value: float) -> None:
    store_word(state.keys + 8 * m, key)
    store_float(state.values + 8 * m, value)


@inlined
def _product(state: State, x: float, z: float) -> float:
    """The product in the parser's precision: that of two float32 is exact in float64."""
    product = x * z
    return np.float64(np.float32(product)) if state.is_single != 0 else product


@kernel
def unseen_letters(state: State) -> bool:
    """Whether wildcards must be expanded again, because the line has a printable letter that is new. Marks it as
    seen."""
    seen = state.seen_letters
    if seen == 0:
        return False
    found = False
    for i in range(state.segment_count):
        letter = load_int(state.segments + 24 * i)
        if _FIRST_WILD <= letter <= _LAST_WILD and load_byte(seen + letter) == 0:
            store_byte(seen + letter, 1)
            found = True
    return found


@kernel
def arrange(state: State, first: int, m: int, again: bool) -> int:
    """Arrange the features read into [first, m). Returns the index behind the last feature, or FULL."""
    limit = min(state.room, first + MAX_FEATURES)
    if again or state.gram_count > 0:
        m = _regroup(state, first, m, limit)
    elif state.namespace_ends != 0:
        for i in range(state.segment_count):
            _end_namespace(state, load_int(state.segments + 24 * i + 16))
    if m == FULL:
        return FULL
    constant = state.constant_value
    if constant != 0.0:
        if m >= limit:
            return FULL
        _put(state, m, state.constant_key, constant)
        m += 1
        _end_namespace(state, m)
    if state.cross_count > 0:
        before = m
        m = _add_crosses(state, m, limit)
        if m == FULL:
            return FULL
        if m > before:
            _end_namespace(state, m)
    if state.hashing != 0:
        _mask_keys(state, first, m)
    return m if state.keeps_repeats != 0 else _sum_repeats(state, first, m)


@inlined
def _end_namespace(state: State, m: int) -> None:
    if state.namespace_ends != 0:
        n = state.end_count
        store_int(state.namespace_ends + 8 * n, m)
        state.end_count = n + 1


@kernel
def _regroup(state: State, first: int, m: int, limit: int) -> int:
    """Bring the segments of each letter together, and add the n-grams of each letter behind them."""
    keys = state.keys
    values = state.values
    spare_keys = state.spare_keys - 8 * first
    spare_values = state.spare_values - 8 * first
    for j in range(first, m):
        store_word(spare_keys + 8 * j, load_word(keys + 8 * j))
        store_float(spare_values + 8 * j, load_float(values + 8 * j))
    segments = state.segments
    n = state.segment_count
    m = first
    for i in range(n):
        letter = load_int(segments + 24 * i)
        if letter < 0:
            continue
        begin = m
        for k in range(i, n):
            segment = segments + 24 * k
            if load_int(segment) == letter:
                for j in range(load_int(segment + 8), load_int(segment + 16)):
                    _put(state, m, load_word(spare_keys + 8 * j), load_float(spare_values + 8 * j))
                    m += 1
                store_int(segment, -1)
        m = _add_grams(state, begin, m, limit - _rest(segments, n))
        if m == FULL:
            return FULL
        group = state.letters + 24 * letter
        store_int(group + 8, begin)
        store_int(group + 16, m)
        _end_namespace(state, m)
    return m


@kernel
def _rest(segments: int, n: int) -> int:
    """How many features the segments hold that are not regrouped yet."""
    features = 0
    for i in range(n):
        if load_int(segments + 24 * i) >= 0:
            features += load_int(segments + 24 * i + 16) - load_int(segments + 24 * i + 8)
    return features


@kernel
def _add_grams(state: State, begin: int, end: int, limit: int) -> int:
    """Add the n-grams of the features in [begin, end), each with value 1."""
    keys = state.keys
    m = end
    for i in range(state.gram_count):
        gram = state.grams + 8 * GRAM_WIDTH * i
        more = load_int(gram)
        for j in range(begin, end - load_int(gram + 8 * more)):
            if m >= limit:
                return FULL
            key = load_word(keys + 8 * j)
            for k in range(1, more + 1):
                key = gram_key(state, key, load_word(keys + 8 * (j + load_int(gram + 8 * k))))
            _put(state, m, key, 1.0)
            m += 1
    return m


@kernel
def _add_crosses(state: State, m: int, limit: int) -> int:
    """Add the interactions of the namespaces that the line has features of."""
    letters = state.letters
    stamp = state.line_stamp
    for i in range(state.cross_count):
        cross = state.crosses + 24 * i
        a = letters + 24 * load_int(cross)
        b = letters + 24 * load_int(cross + 8)
        if load_int(a) != stamp or load_int(b) != stamp:
            continue
        third = load_int(cross + 16)
        if third < 0:
            m = _add_pairs(state, a, b, m, limit)
        elif load_int(letters + 24 * third) == stamp:
            m = _add_triples(state, a, b, letters + 24 * third, m, limit)
        if m == FULL:
            return FULL
    return m


@kernel
def _add_pairs(state: State, a: int, b: int, m: int, limit: int) -> int:
    """Add the products of each feature of a with each of b; within one namespace, of each unordered pair, itself
    included."""
    keys = state.keys
    values = state.values
    for i in range(load_int(a + 8), load_int(a + 16)):
        for j in range(i if a == b else load_int(b + 8), load_int(b + 16)):
            if m >= limit:
                return FULL
            key = cross_two(state, load_word(keys + 8 * i), load_word(keys + 8 * j))
            _put(state, m, key, _product(state, load_float(values + 8 * i), load_float(values + 8 * j)))
            m += 1
    return m


@kernel
def _add_triples(state: State, a: int, b: int, c: int, m: int, limit: int) -> int:
    """Add the products of three features, one of each namespace; within one namespace, of unordered triples."""
    keys = state.keys
    values = state.values
    for i in range(load_int(a + 8), load_int(a + 16)):
        for j in range(i if a == b else load_int(b + 8), load_int(b + 16)):
            product = _product(state, load_float(values + 8 * i), load_float(values + 8 * j))
            for k in range(j if b == c else load_int(c + 8), load_int(c + 16)):
                if m >= limit:
                    return FULL
                first, second = load_word(keys + 8 * i), load_word(keys + 8 * j)
                key = cross_three(state, first, second, load_word(keys + 8 * k))
                _put(state, m, key, _product(state, product, load_float(values + 8 * k)))
                m += 1
    return m


@kernel
def _mask_keys(state: State, first: int, m: int) -> None:
    """Make each key VW's index plus 1: no key may be 0."""
    keys = state.keys
    mask = state.mask
    for j in range(first, m):
        store_word(keys + 8 * j, (load_word(keys + 8 * j) & mask) + _1)


@kernel
def _sum_repeats(state: State, first: int, m: int) -> int:
    """Keep each key once, where it came first, with the sum of its values.

    The hash table holds stamp << 16 | index in the line. It is probed linearly, at most a quarter full, and never
    cleared: entries with another stamp are free.
    """
    keys = state.keys + 8 * first
    values = state.values + 8 * first
    table = state.repeat_table
    tag = np.uint64(state.line_stamp) << _INDEX_BITS
    power = _FEWEST_SLOTS_POWER
    while (1 << power) < 4 * (m - first):
        power += 1
    shift = np.uint64(64 - power)
    mask = (_1 << np.uint64(power)) - _1
    n = 0
    for j in range(m - first):
        key = load_word(keys + 8 * j)
        slot = (key * _SPREAD) >> shift
        while True:
            entry = load_word(table + 8 * np.int64(slot))
            if (entry ^ tag) > _INDEX_MASK:
                store_word(table + 8 * np.int64(slot), tag | np.uint64(n))
                store_word(keys + 8 * n, key)
                store_float(values + 8 * n, load_float(values + 8 * j))
                n += 1
                break
            known = np.int64(entry & _INDEX_MASK)
            if load_word(keys + 8 * known) == key:
                store_float(values + 8 * known, load_float(values + 8 * known) + load_float(values + 8 * j))
                break
            slot = (slot + _1) & mask
    return first + n
