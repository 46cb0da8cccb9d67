"""What one learner keeps, on a real state directory: after a crash, with a short disk, and after it was taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.rocksdb.history import kept_in
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import DiskFull
from stream_learner.roles.learner import history as module
from stream_learner.roles.learner.history import History
from tests.roles.learner.kept_model import Kept, MakeKept, Started, undisturbed

PLENTY = 1 << 40
AGES = {"history": ["10s"]}
"""Of ten ticks: a boundary every five, three of them kept."""


@contextmanager
def learning(kept: Kept, free_bytes: int = PLENTY, **learner: Any) -> Iterator[tuple[Started, History]]:
    """A learner that has recovered, and its history."""
    config = kept.config
    if learner:
        config = config.with_values({("learner", name): value for name, value in learner.items()})
    with kept.started() as started:
        found = History(config, Metrics("m"), get_logger("test"), free_bytes=lambda path: free_bytes)
        found.begin(started.checkpoints)
        yield started, found


def learn(started: Started, history: History, tick: int, *, crash_at: int = -1) -> None:
    """Fold up to a tick, as a learner does; with `crash_at` its checkpoint is written there, but not kept."""
    while started.tick < tick:
        started.fold_to(min(history.last_before(tick, folded=started.tick, known=tick), started.tick + 1))
        if history.is_due(started.tick, known=started.tick):
            started.checkpoint()
            if started.tick == crash_at:
                return
            history.keep(started.checkpoints)


def ticks(path: Path) -> list[int]:
    return [one.tick for one in kept_in(path)]


def test_a_learner_keeps_the_same_whatever_happened(make_kept: MakeKept) -> None:
    """Without a break, and with a crash before each of those that are kept; each has the digest of its tick."""
    whole, broken = make_kept(learner=AGES), make_kept(learner=AGES)
    digests = undisturbed(whole.config)
    with learning(whole) as (started, history):
        learn(started, history, 31)
    for crash in (4, 9, 14, 24, 29):
        with learning(broken) as (started, history):
            learn(started, history, 31, crash_at=crash)
    with learning(broken) as (started, history):
        learn(started, history, 31)
    assert ticks(whole.path) == ticks(broken.path) == [19, 24, 29]
    for kept in (whole, broken):
        assert [one.note["digest"] for one in kept_in(kept.path)] == [digests[tick] for tick in (19, 24, 29)]


def test_the_oldest_go_where_the_disk_is_short(make_kept: MakeKept) -> None:
    """And none is kept; the learner goes on, and keeps again once there is room."""
    kept = make_kept(learner=AGES)
    with learning(kept) as (started, history):
        learn(started, history, 16)
        assert ticks(kept.path) == [4, 9, 14]
    with capture_logs() as logged, learning(kept, free_bytes=0) as (started, history):
        learn(started, history, 20)
        assert ticks(kept.path) == [19], "the one that was just made is not deleted for itself"
    assert [event["tick"] for event in logged if event["event"] == "history_dropped"] == [4, 9, 14]
    with learning(kept) as (started, history):
        history.give_room()
        assert ticks(kept.path) == []
        history.give_room()
        learn(started, history, 31)
    assert ticks(kept.path) == [24, 29]


def test_one_that_cannot_be_kept_is_said_once_and_ends_nothing(
    make_kept: MakeKept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is logged; those there are stay."""
    kept = make_kept(learner=AGES)

    def full(*_: object) -> None:
        raise DiskFull("no room")

    with capture_logs() as logged, learning(kept) as (started, history):
        learn(started, history, 6)
        monkeypatch.setattr(module, "keep", full)
        learn(started, history, 16)
    assert ticks(kept.path) == [4]
    assert [event["reason"] for event in logged if event["event"] == "history_not_kept"] == ["no room"]


def test_what_is_later_than_the_state_is_deleted(make_kept: MakeKept) -> None:
    """It is of a course that was left; so is everything where no ages are asked for."""
    kept = make_kept(learner=AGES)
    with learning(kept) as (started, history):
        learn(started, history, 16)
        early = kept_in(kept.path)[0]
        early.path.rename(early.path.with_name(f"{40:020d}"))
    with learning(kept):
        assert ticks(kept.path) == [9, 14]
    with learning(kept, history=[]):
        assert ticks(kept.path) == []


def test_an_empty_model_is_not_kept(make_kept: MakeKept) -> None:
    kept = make_kept(learner=AGES)
    with learning(kept) as (_, history):
        assert history.last_before(10**9, folded=-1, known=10**9) == 10**9
    assert ticks(kept.path) == []
