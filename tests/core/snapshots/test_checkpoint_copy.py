"""Records of copied checkpoints: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from stream_learner.core.errors import DamagedRecord, NewerVersion, RecordError
from stream_learner.core.snapshots.checkpoint_copy import CopyHead, decode_copy, encode_copy, piece_key
from stream_learner.core.snapshots.pages import PageState, shard_prefix
from stream_learner.core.snapshots.records import Stamp, encode_head, encode_version

SHARDS = 2


def copy_of(sequence: int = 7, tick: int = 41, attempt: int = 2**63 - 1) -> CopyHead:
    """The head of a checkpoint with one page in each shard."""
    stamp = Stamp(0, SHARDS, sequence, 0, tick)
    states = [
        PageState(sequence, ((shard_prefix(shard, SHARDS), 3),), np.zeros(4, np.int64)) for shard in range(SHARDS)
    ]
    versions = tuple(encode_version(stamp._replace(shard=s), 99, 0, state) for s, state in enumerate(states))
    head = encode_head(stamp, {"head": {"positions": [1, 2**63]}})
    return CopyHead(stamp._replace(attempt=attempt), "00ff00ff00ff00ff", {"model": "ctr", "shards": 2}, head, versions)


def test_a_head_is_read_as_it_was_written() -> None:
    """With the store's own records, to the byte."""
    copy = copy_of()
    found = decode_copy(encode_copy(copy))
    assert found == copy
    assert (found.sequence, found.tick) == (7, 41)
    assert [record.stamp.shard for record in found.version_records()] == [0, 1]
    assert found.head_record().content["head"] == {"positions": [1, 2**63]}


def test_every_changed_byte_is_noticed() -> None:
    """A flipped bit, a byte left out, a record cut short: an error, never another head."""
    value = encode_copy(copy_of())
    rng = random.Random(1)
    for at in range(len(value)):
        with pytest.raises(RecordError):
            decode_copy(value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :])
        with pytest.raises(RecordError):
            decode_copy(value[:at])


def test_parts_of_two_checkpoints_are_not_a_head() -> None:
    """A version record, a head, or a shard count of another checkpoint."""
    copy, other = copy_of(), copy_of(sequence=8, tick=42)
    mixtures = [
        replace(copy, head=other.head),
        replace(copy, versions=(copy.versions[0], other.versions[1])),
        replace(copy, versions=copy.versions[::-1]),
        replace(copy, versions=copy.versions[:1]),
        replace(copy, stamp=other.stamp),
    ]
    for mixture in mixtures:
        with pytest.raises(DamagedRecord, match="different checkpoints"):
            decode_copy(encode_copy(mixture)).version_records()


@pytest.mark.parametrize("body", [{}, {"copy_format": "1"}, {"copy_format": 1, "lineage": "x", "identity": [1]}])
def test_a_body_that_is_no_head_of_a_copy_is_refused(body: dict[str, object]) -> None:
    """Records of our kind that somebody else has written are refused."""
    with pytest.raises(DamagedRecord):
        decode_copy(encode_head(copy_of().stamp, body))


def test_a_newer_format_is_said_to_be_newer() -> None:
    """So that the operator runs a newer version instead of looking for damage."""
    with pytest.raises(NewerVersion, match="copy format 2"):
        decode_copy(encode_head(copy_of().stamp, {"copy_format": 2}))


def test_keys_of_two_lineages_never_meet() -> None:
    """A piece that two directories have has two keys."""
    assert piece_key("0" * 16, b"p\x00") == b"piece/0000000000000000/7000"
    assert piece_key("0" * 15 + "1", b"p\x00") != piece_key("0" * 16, b"p\x00")
