"""Large batches of JSON like a click log's, made fast, to measure decode, join, fold and the whole loop.

Records lie back to back as `(data, bounds)`: record i is `data[bounds[i]:bounds[i + 1]]`. An impression has about 600
bytes: an id, integers (to be listed as categorical) and strings of 8 hex digits. `first` is the number of the first
impression of a batch, so that batch b of a longer run can be asked for.

All work is NumPy over whole columns; no event is built in Python.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

INTEGERS = 13
CHUNK = 8_192
ID_BYTES = 16
HEX_BYTES = 8

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def benchmark_fields(features: int = 39) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the integer and the string fields, in their order in an impression; a third are integers."""
    integers = min(INTEGERS, features // 3)
    return (
        tuple(f"I{i:02d}" for i in range(1, integers + 1)),
        tuple(f"C{i:02d}" for i in range(1, features - integers + 1)),
    )


def benchmark_impressions(
    n: int, features: int = 39, zipf: float = 1.05, keys: int = 1_000_000, seed: int = 0, first: int = 0
) -> tuple[bytes, NDArray[np.int64]]:
    """Impressions `first` to `first + n - 1`, as `(data, bounds)` with bounds int64[n + 1].

    Each field draws from `keys // features` values, the k-th about as often as k**-zipf (a power law cut
    into steps). The same arguments give the same bytes. Raises ValueError for arguments that make no event.
    """
    if n < 0 or features < 3 or keys < features or zipf <= 0 or first < 0:
        raise ValueError("n and first must not be negative, features at least 3, keys at least features, zipf above 0")
    parts, lengths = [], []
    for start in range(first, first + n, CHUNK):
        part, length = _impressions_chunk(min(CHUNK, first + n - start), features, zipf, keys, seed, start)
        parts.append(part)
        lengths.append(length)
    return b"".join(parts), _bounds(lengths, n)


def benchmark_clicks(
    n: int, share: float = 0.02, seed: int = 0, first: int = 0
) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    """Clicks on a `share` of the impressions `first` to `first + n - 1` that `benchmark_impressions` makes
    with this seed.

    Returns `(data, bounds, index)`: index int64[clicks] is the impression of the batch that each click is on,
    ascending.
    """
    identity = _ids(seed, first, n)
    chosen = (_mixed(identity) >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    index = np.flatnonzero(chosen).astype(np.int64)
    prefix, suffix = b'{"id":"', b'"}'
    row = np.empty((index.size, len(prefix) + ID_BYTES + len(suffix)), np.uint8)
    row[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    row[:, len(prefix) : len(prefix) + ID_BYTES] = _hex(identity[index].byteswap(), ID_BYTES)
    row[:, len(prefix) + ID_BYTES :] = np.frombuffer(suffix, np.uint8)
    return row.tobytes(), np.arange(index.size + 1, dtype=np.int64) * row.shape[1], index


def benchmark_id(number: int, seed: int = 0) -> str:
    """The id of impression `number`."""
    return f"{int(_ids(seed, number, 1)[0]):016x}"


def _impressions_chunk(
    n: int, features: int, zipf: float, keys: int, seed: int, start: int
) -> tuple[bytes, NDArray[np.int64]]:
    """Some impressions as bytes, and their lengths: rows of one width, unused bytes cut out."""
    values = keys // features
    integers, strings = benchmark_fields(features)
    template, slots = _template(integers, strings, len(str(values)))
    rows = np.tile(np.frombuffer(template, np.uint8), (n, 1))
    rng = np.random.default_rng([seed, start])
    rank = _power_law(rng, (features, n), zipf, values)
    rows[:, slots[0] : slots[0] + ID_BYTES] = _hex(_ids(seed, start, n).byteswap(), ID_BYTES)
    digits = _decimal(values)
    for field, slot in enumerate(slots[1:]):
        if field < len(integers):
            rows[:, slot : slot + digits.shape[1]] = digits[rank[field]]
        else:
            named = rank[field].astype(np.uint64) + (np.uint64(field) << np.uint64(40))
            hashed = (_mixed(named * _GOLDEN) >> np.uint64(32)).astype(np.uint32)
            rows[:, slot : slot + HEX_BYTES] = _hex(hashed, HEX_BYTES)
    there = rows != 0
    return rows[there].tobytes(), there.sum(axis=1, dtype=np.int64)


@lru_cache(maxsize=8)
def _template(integers: tuple[str, ...], strings: tuple[str, ...], width: int) -> tuple[bytes, tuple[int, ...]]:
    """An impression with zero bytes for its values, and the offsets of the values: id, integers, strings."""
    text, slots = bytearray(b'{"id":"'), [7]
    text += bytes(ID_BYTES) + b'"'
    for name in integers:
        text += f',"{name}":'.encode()
        slots.append(len(text))
        text += bytes(width)
    for name in strings:
        text += f',"{name}":"'.encode()
        slots.append(len(text))
        text += bytes(HEX_BYTES) + b'"'
    return bytes(text + b"}"), tuple(slots)


@lru_cache(maxsize=4)
def _decimal(values: int) -> NDArray[np.uint8]:
    """The digits of 0 .. values - 1, padded with zero bytes: uint8[values, width]."""
    texts = np.arange(values).astype(f"S{len(str(values))}")
    return texts.view(np.uint8).reshape(values, -1)


@lru_cache(maxsize=1)
def _hex_pairs() -> NDArray[np.uint16]:
    """The two hex digits of each byte, as a 16-bit number in memory order."""
    return np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint16)


def _hex(numbers: NDArray[np.unsignedinteger], width: int) -> NDArray[np.uint8]:
    """The hex digits of the bytes of unsigned integers in memory order: uint8[n, width]."""
    return _hex_pairs()[numbers.view(np.uint8)].view(np.uint8).reshape(numbers.size, width)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def _ids(seed: int, first: int, n: int) -> NDArray[np.uint64]:
    """Distinct numbers for impressions `first` to `first + n - 1` of a seed."""
    numbers = np.arange(first, first + n, dtype=np.uint64) + (np.uint64(seed) << np.uint64(40))
    return _mixed(numbers * _GOLDEN + _GOLDEN)


def _power_law(rng: np.random.Generator, shape: tuple[int, int], zipf: float, values: int) -> NDArray[np.int64]:
    """Ranks 0 .. values - 1, drawn from a density that falls as (rank + 1)**-zipf."""
    u = rng.random(shape)
    top = values + 1.0
    if abs(zipf - 1.0) < 1e-9:
        drawn = np.exp(u * math.log(top))
    else:
        power = 1.0 - zipf
        drawn = (1.0 + u * (top**power - 1.0)) ** (1.0 / power)
    return np.minimum(drawn.astype(np.int64) - 1, values - 1)


def _bounds(lengths: list[NDArray[np.int64]], n: int) -> NDArray[np.int64]:
    bounds = np.zeros(n + 1, np.int64)
    if lengths:
        np.cumsum(np.concatenate(lengths), out=bounds[1:])
    return bounds
