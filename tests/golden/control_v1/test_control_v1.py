"""Format 1 of the control topic: these bytes are read for ever, and written as long as format 1 is written.

The files beside this one hold a value each. A change that makes this test fail needs a new format, with golden files of
its own, and a reader that still passes this test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_learner.core.control.records import (
    DELETE,
    PROMOTE,
    ROLLBACK,
    Alias,
    Change,
    Pin,
    Publication,
    Record,
    decode,
    encode,
)

FOLDER = Path(__file__).parent
FIRST = Change("0123456789abcdef", PROMOTE, "ann@host", 1_700_000_000_000, None, "ctr-v1")
SECOND = Change(
    "00000000000000ff", PROMOTE, "bob", 1_700_000_100_000, "ctr-v1", "ctr-v2", forced=True, note="no slices"
)
THIRD = Change("ffffffffffffffff", ROLLBACK, "ann@host", 1_700_000_200_000, "ctr-v2", "ctr-v1", note="calibration é")
LAST = Change("0000000000000001", DELETE, "ann@host", 1_700_000_300_000, "ctr-v1", None)

GOLDEN: dict[str, tuple[bytes, Record]] = {
    "alias.json": (b"alias/ctr", Alias("ctr", (FIRST, SECOND, THIRD))),
    "alias_deleted.json": (b"alias/ctr", Alias("ctr", (FIRST, SECOND, THIRD, LAST))),
    "publication.json": (b"publication/ctr-v2", Publication("ctr-v2", True, "bob", 1_700_000_000_000, "spike")),
    "pin.json": (b"pin/ctr", Pin("ctr", "ctr-v2", True, 1_700_000_000, "bob", 1_700_000_000_000)),
    "pin_as_served.json": (b"pin/ctr", Pin("ctr", "ctr-v2", True, None, "bob", 1_700_000_000_000, "hold")),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_what_they_were(name: str) -> None:
    """Read to the same record, and written to the same bytes."""
    key, record = GOLDEN[name]
    value = (FOLDER / name).read_bytes()
    assert decode(key, value) == record
    assert encode(record) == value
    assert record.key == key
