"""Damaged records of the training log are refused, and never taken for others."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where
from stream_learner.core.log.examples import ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.header import open_record
from stream_learner.core.log.marks import Mark, ResumePoint, detach_codes, encode_mark
from tests.core.log.record_layouts import header_bytes, make_batch


def sample_records() -> list[bytes]:
    """One record of every shape."""
    plain = make_batch([{1: 1.0, 2: 1.0}, {2: 1.0}, {}])
    rich = make_batch([{1: 0.5, 2: 1.0}, {3: -2.0}], [0.25, 1.0], [1.0, 3.0])
    codes = np.tile(np.arange(4, dtype=np.uint8), 20)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 4, 9, -1, 0, -1, codes)
    mark = Mark(0, 7, 0, 3, 5, 6, 99, 1, 0, -1, resume=resume)
    bare, parts = detach_codes(mark, 280)
    return [
        *encode_examples(0, 3, 7, plain),
        *encode_examples(0, 3, 7, rich),
        encode_mark(replace(mark, resume=None)),
        encode_mark(mark),
        encode_mark(bare),
        *parts,
    ]


SAMPLES = sample_records()


@pytest.mark.parametrize("value", SAMPLES)
def test_every_flipped_bit_and_every_missing_or_added_byte_is_noticed(value: bytes) -> None:
    """No single change of a record passes; it is foreign, newer or damaged, and the error says where."""
    where = Where(41, 2, "ctr.examples")
    changed = [value[:length] for length in range(len(value))] + [value + b"\0", b"\0" + value]
    for bit in range(8 * len(value)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        changed.append(bytes(flipped))
    for wrong in changed:
        with pytest.raises(RecordError, match=r"topic ctr\.examples, partition 2, offset 41: ") as caught:
            decode(wrong, where=where)
        assert caught.value.offset == 41


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_bytes_that_pass_the_checksums_but_make_no_sense_are_refused_or_harmless(
    value: bytes, data: st.DataObject
) -> None:
    """Any body under valid checksums either decodes to a record whose every index holds, or is damaged."""
    body = bytearray(value[40:])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.sampled_from([0, 1, 2, 255, body[place] ^ 128]))
    if data.draw(st.booleans()):
        body = body[: data.draw(st.integers(0, len(body)))]
    header = open_record(value).header
    flags = data.draw(st.one_of(st.just(header.flags), st.integers(0, 255)))
    wrong = header_bytes(
        header.kind, flags, header.partition, header.sequence, header.attempt, header.tick, bytes(body)
    )
    try:
        found = decode(wrong)
    except DamagedRecord:
        return
    if isinstance(found, ExampleRecord):
        assert int(found.row_len.sum()) == len(found.indices)
        assert not len(found.indices) or int(found.indices.max()) < len(found.keys)
        assert not len(found.positions) or int(found.positions.max()) < len(found.indices)
        assert (found.keys != 0).all()
        to_batch(found)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=120), st.binary(max_size=120).map(lambda tail: b"SLTL\1\0" + tail)))
def test_random_bytes_are_never_taken_for_a_record(value: bytes) -> None:
    """Foreign, or damaged where they begin like one of ours; never a crash."""
    with pytest.raises(DamagedRecord if value[:6] == b"SLTL\1\0" else (ForeignRecord, NewerVersion, DamagedRecord)):
        decode(value)


def reseal(value: bytes, at: int, field: bytes) -> bytes:
    """The record with `field` written at byte `at`, under fresh checksums."""
    changed = bytearray(value)
    changed[at : at + len(field)] = field
    changed[36:40] = struct.pack("<I", zlib.crc32(changed[40:]))
    changed[32:36] = struct.pack("<I", zlib.crc32(changed[:32]))
    return bytes(changed)


# A record of the examples {1: 1, 2: 5} and {2: 1}: keys at 64, ids 80, values 96, log times 104, places 112,
# features 116, lengths 122, labels 126.
TWO = encode_examples(0, 3, 7, make_batch([{1: 1.0, 2: 5.0}, {2: 1.0}]))[0]


@pytest.mark.parametrize(
    ("at", "field", "says"),
    [
        (122, struct.pack("<H", 3), "do not add up"),
        (116, struct.pack("<H", 2), "names no key"),
        (112, struct.pack("<I", 3), "belongs to no feature"),
        (72, struct.pack("<Q", 0), "a key that is 0"),
        (104, struct.pack("<II", 1, 0), "go back"),
        (104, struct.pack("<I", 1), "go back"),
        (127, b"\2", "neither 0 nor 1"),
        (40, struct.pack("<I", 3), "bytes for 3 examples"),
        (44, struct.pack("<I", 2**32 - 1), "4294967295 keys"),
        (7, b"\4", "flags 4"),
        (6, b"\4", "unknown kind"),
    ],
)
def test_a_record_that_contradicts_itself_is_damaged(at: int, field: bytes, says: str) -> None:
    """What the fold trusts is checked, whatever the checksums say."""
    assert len(TWO) == 128
    with pytest.raises(DamagedRecord, match=says):
        decode(reseal(TWO, at, field))


@pytest.mark.parametrize(
    ("at", "field", "says"),
    [
        (56, struct.pack("<q", 4), "ticks 4..3"),
        (48, struct.pack("<q", -2), "after -2"),
        (64, struct.pack("<q", -1), "out of order"),
        (96, struct.pack("<q", -1), "out of order"),
        (72, struct.pack("<q", 100), "out of order"),
        (72, struct.pack("<q", 90), "80 codes for fewer clicks"),
        (208, struct.pack("<q", -2), "out of order"),
        (208, struct.pack("<q", 1 << 40), "stream time"),
        (216, struct.pack("<q", -1), "out of order"),
        (312, struct.pack("<Q", 81), "81 codes in 30 bytes"),
        (312, struct.pack("<Q", 79), "codes after the last click"),
        (324, struct.pack("<I", 65), "65 steps"),
        (7, b"\2", "unknown flags"),
        (7, b"\4", "unknown flags"),
        (7, b"\0", "a mark of 358 bytes"),
    ],
)
def test_a_mark_that_contradicts_itself_is_damaged(at: int, field: bytes, says: str) -> None:
    """Positions, counts, ticks and codes must make sense together."""
    with pytest.raises(DamagedRecord, match=says):
        decode(reseal(SAMPLES[3], at, field))


def test_a_newer_version_is_named_even_if_nothing_else_can_be_read() -> None:
    """Magic and version lie at the same place for ever; the rest may change."""
    with pytest.raises(NewerVersion, match="version 6; this program knows up to 5"):
        decode(b"SLTL\6\0" + b"anything")


def test_places_of_values_must_rise() -> None:
    """Two values for one feature, or in the wrong order, are damage."""
    (value,) = encode_examples(0, 3, 7, make_batch([{1: 4.0, 2: 5.0}]))
    for places in ((0, 0), (1, 0)):
        with pytest.raises(DamagedRecord, match="out of order"):
            decode(reseal(value, 64 + 16 + 8 + 16 + 4, struct.pack("<II", *places)))
