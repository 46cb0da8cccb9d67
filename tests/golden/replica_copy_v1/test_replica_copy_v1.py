"""Version 1 of the copies of scorers, byte for byte.

These files must never change: copies like these are on disks. A change of the layout gets a new version number, golden
files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from stream_learner.core.snapshots.replica import Served
from stream_learner.core.snapshots.replica_copy import WholeVersion, encode_copy, read_copy

GOLDEN = Path(__file__).parent / "copy.bin"
MODEL = {
    "name": "ctr",
    "tick_ms": 1000,
    "features": {},
    "optimizer": {},
    "inputs": {},
    "metrics": {},
    "digest": "0123456789abcdef",
    "format": 1,
    "shards": 2,
}
VERSION = WholeVersion(
    Served(1_795_258_632, 0x0123456789ABCDEF, 12, MODEL),
    2,
    np.array([7, 2**40, 2**63 + 5], np.uint64),
    np.array([0.5, -1.25, 3.0], np.float32),
)
APPLIED_MS = 1_795_258_640_123


def test_a_golden_copy_is_read_and_written_the_same() -> None:
    """Byte for byte, and to the same version."""
    golden = GOLDEN.read_bytes()
    assert b"".join(encode_copy(VERSION, APPLIED_MS)) == golden
    copy = read_copy(io.BytesIO(golden), len(golden))
    assert (copy.replica.served, copy.published_ms) == (VERSION.served, APPLIED_MS)
    keys, weights = copy.replica.all_rows()
    assert keys.tolist() == VERSION.keys.tolist() and weights.tolist() == VERSION.weights.tolist()
