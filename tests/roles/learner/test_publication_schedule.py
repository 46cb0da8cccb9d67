"""When a publication is due; those that fail are counted, each attempt, the first is logged, a success ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import RetryLater
from stream_learner.roles.learner import publication_schedule
from stream_learner.roles.learner.leadership import Term
from stream_learner.roles.learner.publication_schedule import AGAIN_S, PublicationSchedule
from tests.cli_e2e.scraped import values_of
from tests.roles.learner.test_optimizers_kept import config_of
from tests.roles.learner.test_row_brake import Said


class Publishes:
    """A publication whose first transactions the brokers do not take."""

    def __init__(self, failures: int) -> None:
        self.failures, self.version, self.sequence = failures, -1, 0

    def may_publish(self, tick: int) -> bool:
        return tick > max(self.version, 0)

    def publish(self, tick: int, checkpoint_tick: int, description: Any) -> int:
        if self.failures:
            self.failures -= 1
            raise RetryLater("no leader")
        self.version, self.sequence = tick, self.sequence + 1
        return 7


class Leads:
    """A learner that leads."""

    def __init__(self, publication: Publishes) -> None:
        self.term = Term(publication)  # type: ignore[arg-type]

    def waited_for_brokers(self) -> None:
        pass

    def check_course(self) -> None:
        pass


class Kept:
    """Checkpoints of a learner without rows or examples."""

    tick = -1
    examples = 0

    @property
    def learner(self) -> Kept:
        return self

    def count_nonzero(self) -> int:
        return 0


class Open:
    """A gate that lets everything through."""

    trouble = ""
    holding = None

    def __init__(self) -> None:
        self.asked: list[int] = []

    def lacks(self, tick: int, learner: Any) -> None:
        self.asked.append(tick)

    def follow(self, tick: int, learner: Any) -> None:
        pass

    def lets(self, tick: int, learner: Any, version: int, *, ends: bool) -> bool:
        return True

    def published(self) -> None:
        pass


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by the monotonic clock."""
    found = [100.0]
    monkeypatch.setattr(publication_schedule.time, "monotonic", lambda: found[0])
    return found


def schedule_of(
    folder: Path, leads: Leads, metrics: Metrics, said: Said, *paused: str, gate: Open | None = None
) -> PublicationSchedule:
    """The schedule of a learner; `paused` are models."""
    return PublicationSchedule(
        config_of(folder, {"name": "ftrl_proximal"}),
        metrics,
        said,  # type: ignore[arg-type]
        leads,  # type: ignore[arg-type]
        None,
        gate=gate or Open(),  # type: ignore[arg-type]
        describe=dict,
        is_paused=lambda model: model in paused,
    )


def test_a_publication_is_due_an_interval_after_the_last(tmp_path: Path, now_s: list[float]) -> None:
    """Not before a tick that may be published; after a failure, a second later; never without leadership or paused."""
    leads = Leads(Publishes(0))
    schedule = schedule_of(tmp_path, leads, Metrics("m"), Said())
    interval_s = config_of(tmp_path, {"name": "ftrl_proximal"}).snapshots.interval_ms / 1000
    assert schedule.due_in_s(5) == pytest.approx(interval_s)
    now_s[0] += interval_s
    assert schedule.due_in_s(5) == 0
    schedule.publish_when_due(5, Kept(), at_end=False)  # type: ignore[arg-type]
    assert schedule.due_in_s(5) is None, "nothing is new"
    now_s[0] += 0.4 * interval_s
    assert schedule.due_in_s(6) == pytest.approx(0.6 * interval_s)
    now_s[0] += 2 * interval_s
    leads.term.publication.failures = 1  # type: ignore[attr-defined]
    schedule.publish_when_due(6, Kept(), at_end=False)  # type: ignore[arg-type]
    assert schedule.due_in_s(6) == pytest.approx(AGAIN_S)
    leads.term = None  # type: ignore[assignment]
    assert schedule.due_in_s(6) is None
    paused = schedule_of(tmp_path, Leads(Publishes(0)), Metrics("m"), Mock(), "m")
    paused.publish_when_due(5, Kept(), at_end=False)  # type: ignore[arg-type]
    assert paused.paused and paused.due_in_s(5) is None


@pytest.mark.parametrize(("published", "asked"), [(-1, [-1, 0]), (7, [])])
def test_the_gate_is_asked_before_anything_is_learned(
    tmp_path: Path, now_s: list[float], published: int, asked: list[int]
) -> None:
    """Also before the first tick, which does not come while the joiner reads nothing; not where scorers have a
    version and the log is folded again.
    """
    leads, gate = Leads(Publishes(0)), Open()
    leads.term.publication.version = published
    schedule = schedule_of(tmp_path, leads, Metrics("m"), Said(), gate=gate)
    for tick in (-1, 0):
        now_s[0] += 3_600
        schedule.publish_when_due(tick, Kept(), at_end=False)  # type: ignore[arg-type]
    assert gate.asked == asked


def test_every_failure_is_counted_and_the_first_is_logged(tmp_path: Path, now_s: list[float]) -> None:
    """Two attempts fail, a second apart, the third succeeds; before any, the counter stands at 0."""
    metrics, said, leads = Metrics("m"), Said(), Leads(Publishes(2))
    schedule = schedule_of(tmp_path, leads, metrics, said)

    def failed() -> float:
        return values_of(metrics.text().decode())["learner_publication_failures_total", ""]

    assert failed() == 0
    for expected in (1, 1, 2, 2):
        schedule.publish_when_due(5, Kept(), at_end=True)  # type: ignore[arg-type]
        assert failed() == expected and "no leader" in schedule.trouble
        now_s[0] += 0.6
    now_s[0] += 0.6
    schedule.publish_when_due(5, Kept(), at_end=True)  # type: ignore[arg-type]
    assert failed() == 2 and not schedule.trouble and leads.term.publication.version == 5
    assert [event for event, _ in said.events] == ["publication_failed"]
