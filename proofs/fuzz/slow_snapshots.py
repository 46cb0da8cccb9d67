"""Records of the snapshots and checkpoints, read slowly: from the table in the docstring of `snapshots`.

Results are plain tuples, or the name of the error. This file must never import the code under test, nor be changed to
agree with it without a sentence in that table.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
import zlib
from typing import Any, NamedTuple

FOREIGN, NEWER, DAMAGED = "ForeignRecord", "NewerVersion", "DamagedRecord"
MODEL, VERSION, DELTA, PAGE, HEAD = 1, 2, 3, 4, 5
NEEDED = {"name", "tick_ms", "features", "optimizer", "inputs", "metrics", "digest", "format", "shards"}
ALL_KEYS = 1 << 64


class Bad(Exception):
    """The record must not be used; the message is the name of the error."""


class SlowRecord(NamedTuple):
    """stamp: shard, shards, sequence, attempt, version. about: of a delta part and parts; of a page first key and bits;
    of a version digest, records, pages (first key, bits, publication) and slots; of a model or head its JSON.
    rows: of a delta or page (key, weight) as bytes, or (key, touched, columns)."""

    kind: int
    stamp: tuple[int, int, int, int, int]
    about: Any
    rows: list[tuple[Any, ...]]


def _need(holds: bool) -> None:
    if not holds:
        raise Bad(DAMAGED)


def span_of(shard: int, shards: int) -> tuple[int, int]:
    """The first and the last key of a shard. Raises Bad."""
    _need(1 <= shards <= 256 and shards & (shards - 1) == 0 and shard < shards)
    width = ALL_KEYS // shards
    return shard * width, (shard + 1) * width - 1


def read(key: bytes | None, value: bytes) -> SlowRecord:
    """The content of a record. Raises Bad."""
    if value[:4] != b"SLsn":
        raise Bad(FOREIGN)
    if len(value) >= 6 and int.from_bytes(value[4:6], "little") > 1:
        raise Bad(NEWER)
    _need(len(value) >= 64)
    fields = struct.unpack("<4sHBBIIHHIIIQQqQ", value[:64])
    (_, version_of_format, kind, ncols, crc, count, shard, shards, part, parts, bits, sequence, attempt, tick, word) = (
        fields
    )
    _need(version_of_format == 1 and crc == zlib.crc32(value[:8] + value[12:]) and MODEL <= kind <= HEAD)
    _need(sequence < 1 << 62)
    stamp = (shard, shards, sequence, attempt, tick)
    body = value[64:]
    rows: list[tuple[Any, ...]] = []
    if kind in (MODEL, HEAD):
        about, name = _content(kind, shard, count, body), {MODEL: b"model", HEAD: b"head"}[kind]
    elif kind == VERSION:
        about, name = _version(shard, shards, sequence, count, parts, body), b"version"
        about = (word, part, *about)
    elif kind == DELTA:
        _need(part < parts)
        about, name = (part, parts), None
        rows = _rows(body, count, ncols, *span_of(shard, shards))
        _need(key is None or _is_delta(key, part))
    else:
        first, last = span_of(shard, shards)
        _need(bits <= 64 and word % (1 << (64 - bits)) == 0)
        end = word + (1 << (64 - bits)) - 1
        _need(first <= word and end <= last)
        about = (word, bits)
        name = b"page/" + (format(word >> (64 - bits), f"0{bits}b").encode() if bits else b"")
        rows = _rows(body, count, ncols, word, end)
    _need(key is None or name is None or key == name)
    return SlowRecord(kind, stamp, about, rows)


def _is_delta(key: bytes, part: int) -> bool:
    pieces = key.split(b"/")
    return len(pieces) == 3 and pieces[0] == b"delta" and pieces[1].isdigit() and pieces[2] == str(part).encode()


def _content(kind: int, shard: int, count: int, body: bytes) -> Any:
    _need(len(body) == count and shard == 0)
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_refuse, parse_int=_number, parse_float=_finite)
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise Bad(DAMAGED) from None
    _need(isinstance(content, dict) and (kind == HEAD or content.keys() >= NEEDED))
    return content


def _number(text: str) -> int | float:
    number = int(text)
    return number if -(2**63) <= number < 2**64 else _finite(text)


def _finite(text: str) -> float:
    """A number that float64 can hold, as every number of JSON must be."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _refuse(text: str) -> None:
    raise ValueError(text)


def _rows(body: bytes, count: int, ncols: int, first: int, last: int) -> list[tuple[Any, ...]]:
    size = 8 + (8 + 8 * ncols if ncols else 4)
    _need(len(body) == count * size)
    keys = [int.from_bytes(body[8 * i : 8 * i + 8], "little") for i in range(count)]
    _need(all(a < b for a, b in itertools.pairwise(keys)))
    _need(not keys or (first <= keys[0] and keys[-1] <= last))
    if not ncols:
        return [(key, body[8 * count + 4 * i :][:4]) for i, key in enumerate(keys)]
    touched = struct.unpack(f"<{count}q", body[8 * count : 16 * count])
    wide = 8 * ncols
    return [(key, touched[i], body[16 * count + wide * i :][:wide]) for i, key in enumerate(keys)]


def _version(shard: int, shards: int, sequence: int, count: int, ring: int, body: bytes) -> tuple[Any, ...]:
    _need(len(body) == 17 * count + 4 * ring)
    firsts = struct.unpack(f"<{count}Q", body[: 8 * count])
    written = struct.unpack(f"<{count}Q", body[8 * count : 16 * count])
    slots = struct.unpack(f"<{ring}I", body[16 * count : 16 * count + 4 * ring])
    _need(sum(slots) <= 1 << 20)
    bits = body[16 * count + 4 * ring :]
    at, last = span_of(shard, shards)
    for first, nbits in zip(firsts, bits, strict=True):
        _need(first == at and int(math.log2(shards)) <= nbits <= 64)
        at += 1 << (64 - nbits)
    _need(at == last + 1 and all(1 <= number <= sequence for number in written))
    return tuple(zip(firsts, bits, written, strict=True)), slots
