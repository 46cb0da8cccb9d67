"""Version 1 of the snapshots: these bytes are read for ever, and written as long as version 1 is written.

The files beside this one hold a record each. A change that makes this test fail needs a new version of the layout, with
golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stream_learner.core.events.features import FeatureEncoder, FeatureSpec
from stream_learner.core.snapshots.pages import PageState, Prefix
from stream_learner.core.snapshots.records import (
    DeltaRecord,
    HeadRecord,
    ModelRecord,
    PageRecord,
    Record,
    Stamp,
    VersionRecord,
    decode,
    encode_delta,
    encode_head,
    encode_model,
    encode_page,
    encode_version,
)
from stream_learner.core.snapshots.rows import StateRows, WeightRows

FOLDER = Path(__file__).parent
STAMP = Stamp(shard=1, shards=2, sequence=9, attempt=0xFEDCBA9876543210, version=1_700_000_000)
FIRST = STAMP._replace(shard=0)
DIGEST = 0x0123456789ABCDEF
HALF = 1 << 63
KEYS = np.array([HALF, HALF + 1, 2**64 - 2], np.uint64)
WEIGHTS = WeightRows(KEYS, np.array([0.5, 0.0, -1e-20], np.float32))
STATES = StateRows(KEYS, np.array([[0.1, 2.0], [0.0, 0.0], [-1e300, 3.0]]), np.array([5, -1, 2**40]))
CONTENT = {
    "name": "ctr",
    "tick_ms": 1000,
    "features": {"bias": True},
    "optimizer": {"name": "ftrl", "alpha": 0.1},
    "inputs": ["impressions", "clicks"],
    "metrics": {"log_loss": 0.25},
}
HEAD = {"positions": {"0": [1, 2, 3]}, "loss": 0.1, "examples": 2**63}
STATE = PageState(
    9, ((Prefix(HALF, 2), 9), (Prefix(HALF + (1 << 62), 3), 7), (Prefix(7 << 61, 3), 8)), np.array([1, 0, 0, 2])
)

GOLDEN: dict[str, tuple[bytes, Callable[[], bytes]]] = {
    "model.bin": (b"model", lambda: encode_model(FIRST, DIGEST, CONTENT)),
    "version.bin": (b"version", lambda: encode_version(STAMP, DIGEST, 3, STATE)),
    "delta.bin": (b"delta/1/0", lambda: encode_delta(STAMP, 0, 2, WEIGHTS)),
    "page.bin": (b"page/1", lambda: encode_page(STAMP, Prefix(HALF, 1), WEIGHTS)),
    "checkpoint_head.bin": (b"head", lambda: encode_head(FIRST, HEAD)),
    "checkpoint_delta.bin": (b"delta/1/0", lambda: encode_delta(STAMP, 0, 2, STATES)),
    "checkpoint_page.bin": (b"page/1", lambda: encode_page(STAMP, Prefix(HALF, 1), STATES)),
}


UNUSUAL = {"": 5, "a=b": 1, "a:missing": 2, "a\\": "x", "site": "news"}
"""An event whose names a later rule writes otherwise, and one that it does not."""
UNUSUAL_ROW = {
    0xEF46DB3751D8E999: 6.0,
    0x78C2980B3F84E8DF: 1.0,
    0xF19A5CE32D821E32: 2.0,
    0x6E4162FAF1D29144: 1.0,
    0x028349D7C5929EA6: 1.0,
}
"""Its keys and values for a model whose record has no `key_rule`; the first is the bias, which is 5 too much."""


def golden(name: str) -> Record:
    return decode(GOLDEN[name][0], (FOLDER / name).read_bytes())


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_bytes_are_written(name: str) -> None:
    """Encoding what a golden file holds gives the file, byte by byte."""
    assert GOLDEN[name][1]() == (FOLDER / name).read_bytes()


def test_the_model_record_is_read() -> None:
    """The content comes back with format, shards and digest."""
    record = golden("model.bin")
    assert isinstance(record, ModelRecord) and record.stamp == FIRST
    assert record.content == {**CONTENT, "format": 1, "shards": 2, "digest": "0123456789abcdef"}


def test_events_are_encoded_as_the_model_was_learned() -> None:
    """A record from before there was a second rule of keys: names as they are, though two features share one key."""
    record = golden("model.bin")
    assert isinstance(record, ModelRecord)
    row = FeatureEncoder(FeatureSpec.from_dict(record.content["features"])).encode([UNUSUAL])
    assert dict(zip(row.keys.tolist(), row.values.tolist(), strict=True)) == UNUSUAL_ROW


def test_the_version_record_is_read() -> None:
    """Digest, count, pages and slots come back."""
    record = golden("version.bin")
    assert isinstance(record, VersionRecord)
    assert (record.stamp, record.digest, record.records) == (STAMP, DIGEST, 3)
    assert (record.state.sequence, record.state.pages) == (9, STATE.pages)
    assert record.state.slot_parts.tolist() == [1, 0, 0, 2]


@pytest.mark.parametrize("name", ["delta.bin", "page.bin", "checkpoint_delta.bin", "checkpoint_page.bin"])
def test_rows_are_read(name: str) -> None:
    """Keys, and weights or columns with their last tick, come back to the bit."""
    record = golden(name)
    assert isinstance(record, DeltaRecord | PageRecord) and record.stamp == STAMP
    rows = record.rows
    np.testing.assert_array_equal(rows.keys, KEYS)
    if isinstance(rows, StateRows):
        np.testing.assert_array_equal(rows.columns, STATES.columns)
        np.testing.assert_array_equal(rows.touched, STATES.touched)
    else:
        np.testing.assert_array_equal(rows.weights, WEIGHTS.weights)
    place = (record.part, record.parts) if isinstance(record, DeltaRecord) else record.prefix
    assert place in ((0, 2), Prefix(HALF, 1))


def test_the_head_of_a_checkpoint_is_read() -> None:
    """The content comes back as it was given."""
    record = golden("checkpoint_head.bin")
    assert isinstance(record, HeadRecord) and (record.stamp, record.content) == (FIRST, HEAD)
