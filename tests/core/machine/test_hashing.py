"""Hashes: XXH64 as everybody else computes it, and the mixing step."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.feature_keys import KEY_RULES, name_in_keys, size_text
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec
from stream_learner.core.events.local_time import value_in_zone
from stream_learner.core.events.reference import read_time
from stream_learner.core.machine import hashing
from stream_learner.core.machine.memory import address_of
from tests.oracles.arithmetic import size

VECTORS = Path(__file__).parents[3] / "docs" / "hash-vectors.md"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_xxh64_agrees_with_the_reference_library(data: bytes) -> None:
    """Any bytes hash as xxhash hashes them."""
    assert hashing.xxh64(data) == xxhash.xxh64_intdigest(data)


def test_every_length_and_alignment_agrees() -> None:
    """All lengths around the stripes, at all alignments of the first byte."""
    data = bytes(range(256)) * 2
    array = np.frombuffer(data, np.uint8)
    for start in range(8):
        for length in (*range(70), 255, 256, 257):
            got = int(hashing.xxh64_at(address_of(array) + start, length))
            assert got == xxhash.xxh64_intdigest(data[start : start + length])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=20))
def test_many_texts_hash_as_one_by_one(texts: list[bytes]) -> None:
    """The batch form gives each text its own hash."""
    assert hashing.hash_texts(texts) == [xxhash.xxh64_intdigest(text) or 1 for text in texts]


def test_the_bias_key_is_the_hash_of_nothing() -> None:
    """BIAS_KEY is XXH64 of no bytes."""
    assert hashing.BIAS_KEY == xxhash.xxh64_intdigest(b"") == hashing.xxh64(b"")


def test_zero_is_never_a_key() -> None:
    """The hash 0 becomes 1, every other stays."""
    assert int(hashing.not_zero(np.uint64(0))) == 1
    assert int(hashing.not_zero(np.uint64(2**64 - 1))) == 2**64 - 1


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_mix_is_the_splitmix64_finalizer(z: int) -> None:
    """The kernel agrees with the formula in plain integers."""
    expected = z ^ (z >> 30)
    expected = expected * 0xBF58476D1CE4E5B9 % 2**64
    expected ^= expected >> 27
    expected = expected * 0x94D049BB133111EB % 2**64
    expected ^= expected >> 31
    assert int(hashing.mix(np.uint64(z))) == expected


def test_published_vectors_of_texts_hold() -> None:
    """Every text of docs/hash-vectors.md has the hash printed beside it, by the reference library and by ours."""
    rows = re.findall(r"^\| `(.*)` \| `([0-9a-f]{16})` \|$", VECTORS.read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 20
    for text, digits in rows:
        assert f"{xxhash.xxh64_intdigest(text.encode()):016x}" == digits
        assert f"{hashing.xxh64(text.encode()):016x}" == digits


def test_published_names_hold() -> None:
    """Every name of docs/hash-vectors.md stands in texts as it is printed beside it, by each rule."""
    rows = re.findall(r"^\| `(.*)` \| `(.*)` \| `(.*)` \|$", VECTORS.read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 9
    for name, first, second in rows:
        assert [name_in_keys(name, rule) for rule in KEY_RULES] == [first, second, second]


def test_published_sizes_hold() -> None:
    """Every number of docs/hash-vectors.md has the size printed beside it, by the oracle and by ours."""
    rows = re.findall(r"^\| (\S+) \| `(b\d{4})` \|", VECTORS.read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 10
    for number, text in rows:
        assert f"b{size(float(number)):04d}" == size_text(float(number)) == text


def test_published_times_hold() -> None:
    """Every time of docs/hash-vectors.md has the hour and weekday printed beside it."""
    rows = re.findall(r"^\| `(\S+)` \| (\S+) \| (\d+) \| (\d) \| (\d+) \|$", VECTORS.read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 9
    for text, zone, *values in rows:
        found = [value_in_zone(kind, zone, read_time(text, "iso")) for kind in ("hour", "weekday", "hour_of_week")]
        assert found == [int(value) for value in values]


def test_published_vectors_of_events_hold() -> None:
    """Every event of docs/hash-vectors.md has the features printed below it, under the specification above it."""
    import orjson

    blocks = re.findall(r"```json (\w+)\n(.*?)\n```", VECTORS.read_text(encoding="utf-8"), re.S)
    spec = FeatureSpec()
    raw, checked = b"", 0
    for label, body in blocks:
        if label == "spec":
            spec = FeatureSpec.from_dict(orjson.loads(body))
        elif label == "event":
            raw = body.encode()
        else:
            rows = FeatureEncoder(spec).encode_json(raw, np.array([0, len(raw)]))
            got = [[f"{key:016x}", value] for key, value in zip(rows.keys.tolist(), rows.values.tolist(), strict=True)]
            assert got == orjson.loads(body)
            checked += 1
    assert checked >= 10
