"""What a line's namespaces become inside kernels: groups by letter, n-grams, constant, interactions, sums of repeats.

In: the state, with a line's features and the segments of its namespaces. Out: its features as the batch has them.
This file must never write beyond the room there is: a line that needs more is read again.

Order, as VW has it: namespaces by the first occurrence of their letter, each with its n-grams; the constant;
interactions.
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
    CROSSES,
    ENDS,
    GRAM_WIDTH,
    GRAMS,
    HASHING,
    KEYS,
    LETTERS,
    MASK,
    MAX_FEATURES,
    N_CROSSES,
    N_ENDS,
    N_GRAMS,
    N_SEGMENTS,
    REPEATS,
    ROOM,
    SEEN,
    SEGMENTS,
    SINGLE,
    SPARE_KEYS,
    SPARE_VALUES,
    STAMP,
    TABLE,
    VALUES,
)
from stream_learner.evaluate.formats.vw.names import cross_three, cross_two, gram_key

FULL = -1
"""In place of the place behind the features: there is no room for more."""

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


@inlined
def _product(state: int, x: float, z: float) -> float:
    """The product in the parser's precision: that of two float32 is exact in float64."""
    product = x * z
    return np.float64(np.float32(product)) if load_i64(state + SINGLE) != 0 else product


@kernel
def unseen_letters(state: int) -> bool:
    """Whether a wildcard has yet to learn of a namespace of this line. Only printable letters are its business."""
    seen = load_i64(state + SEEN)
    if seen == 0:
        return False
    found = False
    for i in range(load_i64(state + N_SEGMENTS)):
        letter = load_i64(load_i64(state + SEGMENTS) + 24 * i)
        if _FIRST_WILD <= letter <= _LAST_WILD and load_byte(seen + letter) == 0:
            store_byte(seen + letter, 1)
            found = True
    return found


@kernel
def arrange(state: int, first: int, m: int, again: bool) -> int:
    """All that follows once the features from place `first` to `m` are read: the place behind the last, or FULL."""
    limit = min(load_i64(state + ROOM), first + MAX_FEATURES)
    if again or load_i64(state + N_GRAMS) > 0:
        m = _regroup(state, first, m, limit)
    elif load_i64(state + ENDS) != 0:
        for i in range(load_i64(state + N_SEGMENTS)):
            _end_namespace(state, load_i64(load_i64(state + SEGMENTS) + 24 * i + 16))
    if m == FULL:
        return FULL
    constant = load_f64(state + CONSTANT_VALUE)
    if constant != 0.0:
        if m >= limit:
            return FULL
        _put(state, m, load_u64(state + CONSTANT_KEY), constant)
        m += 1
        _end_namespace(state, m)
    if load_i64(state + N_CROSSES) > 0:
        before = m
        m = _add_crosses(state, m, limit)
        if m == FULL:
            return FULL
        if m > before:
            _end_namespace(state, m)
    if load_i64(state + HASHING) != 0:
        _mask_keys(state, first, m)
    return m if load_i64(state + REPEATS) != 0 else _sum_repeats(state, first, m)


@inlined
def _end_namespace(state: int, m: int) -> None:
    if load_i64(state + ENDS) != 0:
        n = load_i64(state + N_ENDS)
        store_i64(load_i64(state + ENDS) + 8 * n, m)
        store_i64(state + N_ENDS, n + 1)


@kernel
def _regroup(state: int, first: int, m: int, limit: int) -> int:
    """Bring the segments of each letter together, with the n-grams of each behind them."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    spare_keys = load_i64(state + SPARE_KEYS) - 8 * first
    spare_values = load_i64(state + SPARE_VALUES) - 8 * first
    for j in range(first, m):
        store_u64(spare_keys + 8 * j, load_u64(keys + 8 * j))
        store_f64(spare_values + 8 * j, load_f64(values + 8 * j))
    segments = load_i64(state + SEGMENTS)
    n = load_i64(state + N_SEGMENTS)
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
        _end_namespace(state, m)
    return m


@kernel
def _rest(segments: int, n: int) -> int:
    """How many features the segments have that are not yet placed."""
    features = 0
    for i in range(n):
        if load_i64(segments + 24 * i) >= 0:
            features += load_i64(segments + 24 * i + 16) - load_i64(segments + 24 * i + 8)
    return features


@kernel
def _add_grams(state: int, begin: int, end: int, limit: int) -> int:
    """The n-grams of the features from `begin` to `end`, each of value 1."""
    keys = load_i64(state + KEYS)
    m = end
    for i in range(load_i64(state + N_GRAMS)):
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
    """The interactions of the namespaces of which the line has features."""
    letters = load_i64(state + LETTERS)
    stamp = load_i64(state + STAMP)
    for i in range(load_i64(state + N_CROSSES)):
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
    """Each feature of a with each of b; of the same namespace, each unordered pair, and each with itself."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    for i in range(load_i64(a + 8), load_i64(a + 16)):
        for j in range(i if a == b else load_i64(b + 8), load_i64(b + 16)):
            if m >= limit:
                return FULL
            key = cross_two(state, load_u64(keys + 8 * i), load_u64(keys + 8 * j))
            _put(state, m, key, _product(state, load_f64(values + 8 * i), load_f64(values + 8 * j)))
            m += 1
    return m


@kernel
def _add_triples(state: int, a: int, b: int, c: int, m: int, limit: int) -> int:
    """The same of three."""
    keys = load_i64(state + KEYS)
    values = load_i64(state + VALUES)
    for i in range(load_i64(a + 8), load_i64(a + 16)):
        for j in range(i if a == b else load_i64(b + 8), load_i64(b + 16)):
            product = _product(state, load_f64(values + 8 * i), load_f64(values + 8 * j))
            for k in range(j if b == c else load_i64(c + 8), load_i64(c + 16)):
                if m >= limit:
                    return FULL
                first, second = load_u64(keys + 8 * i), load_u64(keys + 8 * j)
                key = cross_three(state, first, second, load_u64(keys + 8 * k))
                _put(state, m, key, _product(state, product, load_f64(values + 8 * k)))
                m += 1
    return m


@kernel
def _mask_keys(state: int, first: int, m: int) -> None:
    """VW's index of each feature, plus 1: no key is 0."""
    keys = load_i64(state + KEYS)
    mask = load_u64(state + MASK)
    for j in range(first, m):
        store_u64(keys + 8 * j, (load_u64(keys + 8 * j) & mask) + _1)


@kernel
def _sum_repeats(state: int, first: int, m: int) -> int:
    """Leave each key once, where it came first, with the sum of its values.

    The table holds stamp << 16 | place in the line, probed linearly, at most a quarter full, and is never cleared.
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
