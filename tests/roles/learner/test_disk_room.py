"""A learner does not write when its disk has too little room, or has refused a write."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.errors import DiskFull
from stream_learner.roles.common.lifecycle import BrokerOutage
from stream_learner.roles.learner.state_dir import AGAIN_S, LOOK_S, DiskRoom

FLOOR_BYTES = 100 << 20


class Disk:
    """A disk and a clock."""

    def __init__(self) -> None:
        self.free_bytes = 2 * FLOOR_BYTES
        self.now_s = 1_000.0
        self.room = DiskRoom(
            Path("state"),
            FLOOR_BYTES,
            get_logger("test"),
            free_bytes=lambda path: self.free_bytes,
            clock_s=lambda: self.now_s,
        )

    def later(self, seconds: float = LOOK_S) -> bool:
        """Whether it may write after so long."""
        self.now_s += seconds
        return self.room.may_write()


def test_below_the_floor_nothing_is_written_and_it_is_said_once() -> None:
    """When there is room again it is said too."""
    disk = Disk()
    with capture_logs() as lines:
        assert disk.room.may_write() and disk.room.reason == ""
        disk.free_bytes = FLOOR_BYTES - 1
        assert [disk.later() for _ in range(50)] == [False] * 50
        assert "99 MiB free" in disk.room.reason or "100 MiB free" in disk.room.reason
        disk.free_bytes = FLOOR_BYTES
        assert disk.later() and disk.room.reason == ""
    assert [line["event"] for line in lines] == ["disk_full", "disk_has_room"]


def test_a_small_floor_is_told_as_what_it_is(tmp_path: Path) -> None:
    """Half a MiB is not said to be none."""
    room = DiskRoom(tmp_path, 512 << 10, get_logger("test"), free_bytes=lambda path: 300 << 10)
    assert not room.may_write()
    assert room.reason.endswith("300 KiB free, learner.min_free is 512 KiB")


def test_a_refusal_lasts_until_a_checkpoint_is_written() -> None:
    """Free bytes alone do not end it."""
    disk = Disk()
    with capture_logs() as lines:
        for _ in range(3):
            disk.room.refused(DiskFull("s: No space left on device"))
            assert not disk.later(AGAIN_S / 2)
            assert disk.later(AGAIN_S)
            assert disk.room.reason
        disk.room.wrote()
        assert disk.room.reason == ""
    assert [line["event"] for line in lines] == ["disk_full", "disk_has_room"]


def test_what_rocksdb_does_not_recover_from_ends_the_learner() -> None:
    """After a quota was reached, the process must begin anew."""
    with pytest.raises(DiskFull):
        Disk().room.refused(DiskFull("s: Disk quota exceeded"))


def test_an_outage_is_said_at_its_beginning_and_its_end_only() -> None:
    """However often it is reported; an answer from before the last report ends nothing."""
    now_s = [10.0]
    outage = BrokerOutage(get_logger("test"), "away", "back", clock_s=lambda: now_s[0])
    with capture_logs() as lines:
        assert outage.since_s is None
        for _ in range(100):
            outage.report("nobody answers")
            outage.answered(now_s[0])
            now_s[0] += 10
        assert outage.since_s == 10.0
        outage.answered(now_s[0] - 10)
        assert outage.since_s is not None
        outage.answered(now_s[0])
        outage.answered(now_s[0] + 1)
        assert outage.since_s is None
    assert [line["event"] for line in lines] == ["away", "back"]
