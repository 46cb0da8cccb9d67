"""What a backfill says of its progress: share, pace, time left, and what it waits for."""

from __future__ import annotations

import io

from rich.console import Console

from stream_learner.cli.backfill_view import page
from stream_learner.operations.backfill.progress import BackfillProgress, BackfillStatus, Goal, as_fields, clock
from stream_learner.roles.joiner.report import PartitionView

HOUR_MS = 3_600_000
START_MS = 500_000 * HOUR_MS
GOAL = Goal(START_MS, START_MS + HOUR_MS, (START_MS + HOUR_MS + 60_000) // 1000 - 1, 60_000, 1_000)


def tick_of(passed_ms: int) -> int:
    """The tick that closes the windows of all impressions before `passed_ms`."""
    return (passed_ms + 60_000) // 1000 - 1


def view(partition: int, tick: int, impressions: int = 0, shown_ms: int = -1, clicked_ms: int = -1) -> PartitionView:
    return PartitionView(partition, tick, impressions, shown_ms, clicked_ms)


def test_share_pace_and_time_left_follow_event_time() -> None:
    """A quarter of the hour in 15 s: 45 s are left; impressions are counted over all partitions, also when one is
    begun again by another joiner."""
    progress = BackfillProgress(GOAL, 100.0)
    first = progress.status([view(0, -1)], -1, 0, 100.0, START_MS + 5 * HOUR_MS)
    assert (first.passed_ms, first.share, first.left_s, first.impressions) == (None, 0.0, None, 0)
    for second in range(16):
        passed = START_MS + second * HOUR_MS // 60
        views = [view(0, 0, 100 * second), view(1, 0, 50 * (second if second < 8 else second - 8))]
        moment = progress.status(views, tick_of(passed), 1 + 140 * second, 101.0 + second, START_MS + 5 * HOUR_MS)
    assert moment.passed_ms == START_MS + HOUR_MS // 4
    assert moment.share == 0.25
    assert moment.left_s is not None and round(moment.left_s) == 45
    assert moment.impressions == 100 * 15 + 50 * 7 + 50 * 7
    assert round(moment.examples_per_s) == 140
    assert moment.lag_s == (5 * HOUR_MS - 60_000 - HOUR_MS // 4) / 1000
    assert moment.waits == ""


def waits(views: list[PartitionView], goal: Goal = GOAL, tick: int = 0) -> str:
    """The reason for waiting that it tells when nothing has moved for three seconds."""
    progress = BackfillProgress(goal, 0.0)
    assert progress.status(views, tick, 1, 1.0, START_MS).waits == ""
    return progress.status(views, tick, 1, 4.0, START_MS).waits


def test_it_says_what_it_waits_for() -> None:
    """The partition furthest behind, and its input that holds it back."""
    end = START_MS // 1000 + 90
    ahead = view(1, end + 5, 0, START_MS + 10**6, START_MS + 10**6)
    past = f"to pass {clock(START_MS + 91_000)}"
    assert waits([ahead, view(3, end, 0, START_MS + 90_000, START_MS)]) == f"waits for the clicks of partition 3 {past}"
    behind = view(3, end, 0, START_MS, START_MS + 200_000)
    assert waits([ahead, behind]) == f"waits for the impressions of partition 3 to pass {clock(START_MS + 31_000)}"
    assert "partition 3, whose last ticks are made again" in waits([ahead, view(3, -1)])
    assert "the group" in waits([])
    assert GOAL.until_tick is not None
    assert "last ticks to be folded" in waits([view(0, GOAL.until_tick + 1)])
    assert waits([view(0, GOAL.until_tick + 1)], tick=GOAL.until_tick) == ""
    assert "training log" in waits([], Goal(None, None, None, 60_000, 1_000, joins=False))


def test_it_says_at_once_which_commands_resume_the_publication_of_models_at_their_end() -> None:
    """In the page and in the log line, as it would be typed."""
    assert GOAL.until_tick is not None
    progress = BackfillProgress(GOAL, 0.0)
    moment = progress.status([], GOAL.until_tick, 9, 1.0, START_MS + HOUR_MS, ["ctr-a", "ctr-b"])
    commands = "`stream-learner resume --model ctr-a` and `stream-learner resume --model ctr-b`"
    assert str(as_fields(moment)["waits"]).endswith(f"waits for {commands}")
    out = io.StringIO()
    Console(file=out, width=200).print(page(moment, "ctr-a"))
    assert commands in out.getvalue()
    assert progress.status([], GOAL.until_tick, 9, 2.0, START_MS + HOUR_MS).waits == ""


def test_a_moment_is_a_page_and_a_log_line() -> None:
    """With and without an end in sight."""
    moment = BackfillStatus(12.0, START_MS, 0.25, 45.0, 90.0, 1_000, 5_000.0, 900, 4_000.0, "waits for partition 3")
    out = io.StringIO()
    Console(file=out, width=100).print(page(moment, "ctr-v2"))
    for words in ("ctr-v2", "25.0 %", "0:00:45 left", clock(START_MS), "5,000 impressions/s", "waits for partition 3"):
        assert words in out.getvalue()
    assert as_fields(moment)["left_s"] == 45
    nothing = BackfillStatus(0.0, None, None, None, None, 0, 0.0, 0, 0.0)
    Console(file=out, width=100).print(page(nothing, "ctr-v2"))
    assert "waits" not in as_fields(nothing) and as_fields(nothing)["passed"] is None
