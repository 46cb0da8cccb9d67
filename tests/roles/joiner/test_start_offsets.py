"""The offsets at which a partition without a training log begins, against the sentence that defines them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.adapters.kafka import TopicAndPartition
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.roles.joiner.log_beginning import LONG_MS, StartOffsets, StartRule

HOUR_MS = 3_600_000
SHOWN, CLICKED = ("i", 3), ("c", 3)


@dataclass
class Log:
    """The times of records that are held, the first of them at an offset."""

    start: int
    times: list[int]

    def at_time(self, time_ms: int) -> int:
        """The first offset at or after a time, -1 for none."""
        return next((self.start + n for n, at in enumerate(self.times) if at >= time_ms), -1)


class Broker:
    """Answers as `OffsetQueries`."""

    def __init__(self, impressions: Log, clicks: Log) -> None:
        self.logs = {SHOWN: impressions, CLICKED: clicks}

    def earliest(self, places: list[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """First offsets."""
        return {place: self.logs[place].start for place in places}

    def high_watermarks(self, places: list[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """Ends."""
        return {place: self.logs[place].start + len(self.logs[place].times) for place in places}

    def at_time(self, places: list[TopicAndPartition], time_ms: int) -> dict[TopicAndPartition, int]:
        """The first offsets at or after a time."""
        return {place: self.logs[place].at_time(time_ms) for place in places}

    def first_times(self, places: list[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """Times of the first records."""
        return {place: (self.logs[place].times or [-1])[0] for place in places}


def begin(impressions: Log, clicks: Log, where: str | int = "earliest", *, clicks_lost: bool = False) -> StartOffsets:
    """The offsets at which partition 3 begins."""
    rule = StartRule(Broker(impressions, clicks), where)  # type: ignore[arg-type]
    return rule.of("i", "c", 3, clicks_lost=clicks_lost)


TIMES = st.lists(st.integers(0, 5).map(lambda n: n * HOUR_MS), max_size=6).map(sorted)


@given(
    TIMES,
    TIMES,
    st.sampled_from([0, 7]),
    st.sampled_from([0, 9]),
    st.sampled_from(["earliest", 0, 2 * HOUR_MS]),
    st.booleans(),
)
def test_impressions_whose_clicks_were_deleted_are_left_out(
    shown: list[int], clicked: list[int], i: int, c: int, where: str | int, anew: bool
) -> None:
    """Impressions before the first click held are left out; all of them if no click is held; and no others.

    anew: the topic of the clicks was made anew, so that some are lost even if its first offset is 0.
    """
    begins = 0 if where == "earliest" else where
    wanted = [n for n, at in enumerate(shown) if at >= begins]
    first_click = min(clicked, default=None)
    kept = [n for n in wanted if not (c or anew) or (first_click is not None and shown[n] >= first_click)]
    found = begin(Log(i, shown), Log(c, clicked), where, clicks_lost=anew)
    assert found.impression == i + (kept[0] if kept else len(shown))
    assert found.left_out == len(wanted) - len(kept)
    assert found.click == c + len([at for at in clicked if at < begins])


def test_clicks_that_were_collected_from_a_later_day_on_begin_the_log() -> None:
    """Nothing was deleted, but the first click is more than a day behind the first impression."""
    shown = [n * HOUR_MS for n in range(100)]
    for behind_ms, left_out in ((LONG_MS, 0), (LONG_MS + 1, 25)):
        assert begin(Log(0, shown), Log(0, [behind_ms])).left_out == left_out
    assert begin(Log(0, shown), Log(0, [60 * HOUR_MS]), 50 * HOUR_MS) == StartOffsets(50, 0)
    assert begin(Log(0, shown), Log(0, [])) == StartOffsets(0, 0)


def test_latest_is_the_end() -> None:
    """Whatever clicks the topic holds."""
    assert begin(Log(2, [1, 2, 3]), Log(4, [5]), "latest") == StartOffsets(5, 5)


def test_what_is_left_out_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """It says how much is left out, since when there are clicks, and what to do; else nothing is logged."""
    for beginning in (StartOffsets(5, 2), StartOffsets(5, 2, 3, 1_700_000_000_000), StartOffsets(5, 2, 3, -1)):
        beginning.say(get_logger("joiner"))
    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["event"] for line in said] == ["impressions_left_out"] * 2
    assert [line["clicks_since"] for line in said] == ["2023-11-14T22:13:20Z", "none is left"]
    assert all(line["offsets"] == 3 and "Keep clicks" in line["note"] for line in said)
