"""Checkpoints are copied at their pace, without making the fold wait, and again after failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import BrokerUnreachable, Fenced, RetryLater
from stream_learner.roles.learner.copies import schedule
from stream_learner.roles.learner.copies.schedule import CopySchedule
from stream_learner.roles.learner.copies.writer import CopyWriter
from tests.adapters.kafka.kafka_help import VisiblePublisher
from tests.cli_e2e.scraped import values_of
from tests.roles.learner.kept_model import MakeKept, Started, undisturbed
from tests.waiting import wait_until

PLENTY = 1e12


@contextmanager
def copying(
    started: Started,
    metrics: Metrics | None = None,
    *,
    publisher: Callable[..., Any] = VisiblePublisher,
    interval_s: float = 0.0,
    rate: float = PLENTY,
) -> Iterator[CopySchedule]:
    """Copies of a learner's checkpoints, from the beginning to the end of the block."""
    model = started.model
    copies = CopySchedule(
        lambda before: CopyWriter(
            model.settings,
            model.admin,
            started.checkpoints.store,
            topic=model.config.checkpoints_topic,
            new_publisher=partial(publisher, model.settings, model.config.copier_id),
            before_sending=before,
        ),
        metrics or Metrics(model.config.model),
        get_logger("learner"),
        interval_s=interval_s,
        rate_bytes_per_s=rate,
    )
    copies.begin()
    try:
        yield copies
    finally:
        copies.close()


def failing(errors: list[Exception]) -> Callable[..., Any]:
    """A publisher that first fails with these errors, one after the other."""

    class Publisher(VisiblePublisher):
        def publish(self, records: Any) -> Any:
            if errors:
                raise errors.pop(0)
            return super().publish(records)

    return Publisher


def test_a_failure_is_logged_once_and_the_copy_tried_again(
    make_kept: MakeKept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that are away, and a bug of ours, do not reach the fold, and the copy is made in the end."""
    monkeypatch.setattr(schedule, "AGAIN_S", 0.01)
    kept, metrics = make_kept(), Metrics("m")
    digests = undisturbed(kept.config)
    away = [RetryLater("no broker"), BrokerUnreachable("silence"), RetryLater("a leader changes")]
    errors: list[Exception] = [*away, ZeroDivisionError("a bug")]
    with (
        capture_logs() as logged,
        kept.started() as learner,
        copying(learner, metrics, publisher=failing(errors)) as copies,
    ):
        learner.fold_to(5).checkpoint()
        copies.committed(5)
        wait_until(lambda: copies.tick == 5, "the copy is made")
        copies.check()
    said = [event["reason"] for event in logged if event["event"] == "checkpoint_copy_failed"]
    assert len(said) == 2 and said[0] == "no broker" and "ZeroDivisionError: a bug" in said[1]
    assert [event["tick"] for event in logged if event["event"] == "checkpoint_copied_again"] == [5]
    assert kept.restored() == (5, digests[5])
    values = values_of(metrics.text().decode())
    assert values["learner_copies_total", ""] == 1.0
    assert values["learner_copied_version", ""] == 5.0
    assert values["learner_copied_bytes_total", ""] > 0.0


def test_whoever_is_taken_over_stops(make_kept: MakeKept) -> None:
    """The next `check` raises Fenced, and no copy of the former learner counts any more."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    with kept.started() as former, kept.started(kept.folder / "other") as later, copying(former) as copies:
        later.fold_to(3).checkpoint().copy_writer().copy()
        former.fold_to(9).checkpoint()
        copies.committed(9)
        wait_until(lambda: raises(copies, Fenced), "it is fenced")
        copies.finish()
    assert kept.restored() == (3, digests[3])


def raises(copies: CopySchedule, kind: type[Exception]) -> bool:
    """Whether `check` raises an error of this kind."""
    try:
        copies.check()
    except kind:
        return True
    return False


def test_the_end_does_not_wait_for_the_interval(make_kept: MakeKept) -> None:
    """A checkpoint that is to wait an hour for its copy is copied when the learner ends."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    with kept.started() as learner, copying(learner, interval_s=3_600.0) as copies:
        learner.fold_to(2).checkpoint()
        copies.committed(2)
        wait_until(lambda: copies.tick == 2, "the first copy is made at once")
        learner.fold_to(4).checkpoint()
        copies.committed(4)
        assert copies.tick == 2
        copies.finish(limit_s=60.0)
        assert copies.tick == 4
    assert kept.restored() == (4, digests[4])


def test_a_copy_that_is_cut_short_leaves_the_one_before(make_kept: MakeKept) -> None:
    """If it is ended while it waits for its rate, the copy before counts, and the next one leaves nothing over."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    with kept.started() as learner, copying(learner) as copies:
        learner.fold_to(2).checkpoint()
        copies.committed(2)
        wait_until(lambda: copies.tick == 2, "the first copy is made")
    metrics = Metrics("m")
    with kept.started() as learner, copying(learner, metrics, rate=0.001) as copies:
        learner.fold_to(6).checkpoint()
        copies.committed(6)
        sent = ("learner_copied_bytes_total", "")
        wait_until(lambda: values_of(metrics.text().decode()).get(sent, 0.0) > 0.0, "it has sent something")
    assert kept.restored() == (2, digests[2])
    with kept.started() as learner, copying(learner) as copies:
        copies.committed(learner.tick)
        wait_until(lambda: copies.tick == 6, "the copy is made")
    assert kept.restored() == (6, digests[6])
    kept.assert_nothing_left_over()
