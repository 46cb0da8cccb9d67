"""Arranges the features of a line in VW's order: groups by letter, n-grams, constant, interactions, sums of repeats.

Namespaces come in the order of the first occurrence of their letter, each followed by its n-grams; then the constant;
then interactions. A line that does not fit into the room there is is read again after the room has grown.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.kernels import inlined, kernel
from stream_learner.core.machine.memory import (
    load_byte,
    load_f64,
    load_i64,
    load_u64,
    store_byte,
    store_f64,
    store_i64,
    store_u64,
)
from stream_learner.evaluate.formats.vw.layout import (
    CONSTANT_KEY,
    CONSTANT_VALUE,
    CROSS_COUNT,
    CROSSES,
    GRAM_COUNT,
    GRAM_WIDTH,
    GRAMS,
    HASHING,
    KEYS,
    LETTERS,
    MASK,
    MAX_FEATURES,
    REPEATS,
    ROOM,
    SEEN,
    SEGMENT_COUNT,
    SEGMENTS,
    SPARE_KEYS,
    SPARE_VALUES,
    STAMP,
    TABLE,
    VALUES,
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
def _put(state: int, m: int, key: np.uint64, value: float) -> None:
    store_u64(load_i64(state + KEYS) + 8 * m, key)
    store_f64(load_i64(state + VALUES) + 8 * m, value)


@kernel
def unseen_letters(state: int) -> bool:
    """Whether wildcards must be expanded again, because the line has a printable letter that is new. Marks it as
    seen."""
    seen = load_i64(state + SEEN)
    if seen == 0:
        return False
    found = False
    for i in range(load_i64(state + SEGMENT_COUNT)):
        letter = load_i64(load_i64(state + SEGMENTS) + 24 * i)
        if _FIRST_WILD <= letter <= _LAST_WILD and load_byte(seen + letter) == 0:
            store_byte(seen + letter, 1)
            found = True
    return found


@kernel
def arrange(state: int, first: int, m: int, again: bool) -> int:
    """Arrange the features read into [first, m). Returns the index behind the last feature, or FULL."""
    limit = min(load_i64(state + ROOM), first + MAX_FEATURES)
    if again or load_i64(state + GRAM_COUNT) > 0:
        m = _regroup(state, first, m, limit)
    if m != FULL:
        m = add_constant(state, first, m)
    if m != FULL and load_i64(state + CROSS_COUNT) > 0:
        m = _add_crosses(state, m, limit)
    if m == FULL:
        return FULL
    if load_i64(state + HASHING) != 0:
        _mask_keys(state, first, m)
    return m if load_i64(state + REPEATS) != 0 else sum_repeats(state, first, m)


@inlined
def add_constant(state: int, first: int, m: int) -> int:
    """Add the constant feature, if there is one, behind [first, m). Returns the index behind it, or FULL."""
    constant = load_f64(state + CONSTANT_VALUE)
    if constant == 0.0:
        return m
    if m >= min(load_i64(state + ROOM), first + MAX_FEATURES):
        return FULL
    _put(state, m, load_u64(state + CONSTANT_KEY), constant)
    return m + 1


@kernel
def _regroup(state: int, first: int, m: int, limit: int) -> int:
    """Bring the segments of each letter together, and add the n-grams of each letter behind them."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    spare_keys = load_i64(state + SPARE_KEYS) - 8 * first
    spare_values = load_i64(state + SPARE_VALUES) - 8 * first
    for j in range(first, m):
        store_u64(spare_keys + 8 * j, load_u64(keys + 8 * j))
        store_f64(spare_values + 8 * j, load_f64(values + 8 * j))
    segments = load_i64(state + SEGMENTS)
    n = load_i64(state + SEGMENT_COUNT)
    m = first
    for i in range(n):
        letter = load_i64(segments + 24 * i)
        if letter < 0:
            continue
        begin = m
        for k in range(i, n):
            segment = segments + 24 * k
            if load_i64(segment) == letter:
                for j in range(load_i64(segment + 8), load_i64(segment + 16)):
                    _put(state, m, load_u64(spare_keys + 8 * j), load_f64(spare_values + 8 * j))
                    m += 1
                store_i64(segment, -1)
        m = _add_grams(state, begin, m, limit - _rest(segments, n))
        if m == FULL:
            return FULL
        group = load_i64(state + LETTERS) + 24 * letter
        store_i64(group + 8, begin)
        store_i64(group + 16, m)
    return m


@kernel
def _rest(segments: int, n: int) -> int:
    """How many features the segments hold that are not regrouped yet."""
    features = 0
    for i in range(n):
        if load_i64(segments + 24 * i) >= 0:
            features += load_i64(segments + 24 * i + 16) - load_i64(segments + 24 * i + 8)
    return features


@kernel
def _add_grams(state: int, begin: int, end: int, limit: int) -> int:
    """Add the n-grams of the features in [begin, end), each with value 1."""
    keys = load_i64(state + KEYS)
    m = end
    for i in range(load_i64(state + GRAM_COUNT)):
        gram = load_i64(state + GRAMS) + 8 * GRAM_WIDTH * i
        more = load_i64(gram)
        for j in range(begin, end - load_i64(gram + 8 * more)):
            if m >= limit:
                return FULL
            key = load_u64(keys + 8 * j)
            for k in range(1, more + 1):
                key = gram_key(state, key, load_u64(keys + 8 * (j + load_i64(gram + 8 * k))))
            _put(state, m, key, 1.0)
            m += 1
    return m


@kernel
def _add_crosses(state: int, m: int, limit: int) -> int:
    """Add the interactions of the namespaces that the line has features of."""
    letters = load_i64(state + LETTERS)
    stamp = load_i64(state + STAMP)
    for i in range(load_i64(state + CROSS_COUNT)):
        cross = load_i64(state + CROSSES) + 24 * i
        a = letters + 24 * load_i64(cross)
        b = letters + 24 * load_i64(cross + 8)
        if load_i64(a) != stamp or load_i64(b) != stamp:
            continue
        third = load_i64(cross + 16)
        if third < 0:
            m = _add_pairs(state, a, b, m, limit)
        elif load_i64(letters + 24 * third) == stamp:
            m = _add_triples(state, a, b, letters + 24 * third, m, limit)
        if m == FULL:
            return FULL
    return m


@kernel
def _add_pairs(state: int, a: int, b: int, m: int, limit: int) -> int:
    """Add the products of each feature of a with each of b; within one namespace, of each unordered pair, itself
    included."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    for i in range(load_i64(a + 8), load_i64(a + 16)):
        for j in range(i if a == b else load_i64(b + 8), load_i64(b + 16)):
            if m >= limit:
                return FULL
            key = cross_two(state, load_u64(keys + 8 * i), load_u64(keys + 8 * j))
            _put(state, m, key, load_f64(values + 8 * i) * load_f64(values + 8 * j))
            m += 1
    return m


@kernel
def _add_triples(state: int, a: int, b: int, c: int, m: int, limit: int) -> int:
    """Add the products of three features, one of each namespace; within one namespace, of unordered triples."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    for i in range(load_i64(a + 8), load_i64(a + 16)):
        for j in range(i if a == b else load_i64(b + 8), load_i64(b + 16)):
            product = load_f64(values + 8 * i) * load_f64(values + 8 * j)
            for k in range(j if b == c else load_i64(c + 8), load_i64(c + 16)):
                if m >= limit:
                    return FULL
                first, second = load_u64(keys + 8 * i), load_u64(keys + 8 * j)
                key = cross_three(state, first, second, load_u64(keys + 8 * k))
                _put(state, m, key, product * load_f64(values + 8 * k))
                m += 1
    return m


@kernel
def _mask_keys(state: int, first: int, m: int) -> None:
    """Make each key VW's index plus 1: no key may be 0."""
    keys = load_i64(state + KEYS)
    mask = load_u64(state + MASK)
    for j in range(first, m):
        store_u64(keys + 8 * j, (load_u64(keys + 8 * j) & mask) + _1)


@kernel
def sum_repeats(state: int, first: int, m: int) -> int:
    """Keep each key once, where it came first, with the sum of its values.

    The hash table holds stamp << 16 | index in the line. It is probed linearly, at most a quarter full, and never
    cleared: entries with another stamp are free.
    """
    keys = load_i64(state + KEYS) + 8 * first
    values = load_i64(state + VALUES) + 8 * first
    table = load_i64(state + TABLE)
    tag = np.uint64(load_i64(state + STAMP)) << _INDEX_BITS
    power = _FEWEST_SLOTS_POWER
    while (1 << power) < 4 * (m - first):
        power += 1
    shift = np.uint64(64 - power)
    mask = (_1 << np.uint64(power)) - _1
    n = 0
    for j in range(m - first):
        key = load_u64(keys + 8 * j)
        slot = (key * _SPREAD) >> shift
        while True:
            entry = load_u64(table + 8 * np.int64(slot))
            if (entry ^ tag) > _INDEX_MASK:
                store_u64(table + 8 * np.int64(slot), tag | np.uint64(n))
                store_u64(keys + 8 * n, key)
                store_f64(values + 8 * n, load_f64(values + 8 * j))
                n += 1
                break
            known = np.int64(entry & _INDEX_MASK)
            if load_u64(keys + 8 * known) == key:
                store_f64(values + 8 * known, load_f64(values + 8 * known) + load_f64(values + 8 * j))
                break
            slot = (slot + _1) & mask
    return first + n
