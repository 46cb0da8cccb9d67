"""Reports: what the metrics show is what the roles counted, once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.join.spec import Cut
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, MarkId, TickCounts
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import make_optimizer
from stream_learner.roles.joiner.progress import Appended, Progress
from stream_learner.roles.joiner.report import FieldReport, forget_partition, report_partitions
from stream_learner.roles.joiner.retention import Headroom
from stream_learner.roles.joiner.watches import AheadWatch, OrphanShare, likely_causes
from stream_learner.roles.learner.report import LearnerReport
from tests.cli_e2e.scraped import values_of
from tests.core.model.example_records import Example
from tests.core.model.test_field_rows import NAME_HASHES, bounded_record

COUNTS = TickCounts(ImpressionCounts(30, 20, 5, 4, 3, 3), ClickCounts(15, 5, 4, 3, 2, 1, 7))


@dataclass
class Joined:
    """The attributes of a partition's joiner that reports read."""

    log_time: int
    partition: int = 3
    progress: Progress = field(default_factory=lambda: Progress(hint=None))

    @property
    def join(self) -> Joined:
        return self

    @property
    def impression_log_time(self) -> int:
        return self.log_time

    @property
    def click_log_time(self) -> int:
        return -1


class Mock:
    """An administration of brokers whose topics nobody can ask about."""

    def is_mock(self) -> bool:
        return True


@dataclass
class Followed:
    """The attributes of the log that reports read."""

    read_bytes: int = 0
    ignored: int = 0
    waiting_bytes: int = 0
    foreign: int = 0
    left_out: int = 0


def values(metrics: Metrics) -> dict[tuple[str, str], float]:
    """The values shown."""
    return values_of(metrics.text().decode())


def a_config(**learner: Any) -> Config:
    return Config.model_validate(
        {
            "model": "m",
            "kafka": {"bootstrap.servers": "b:1"},
            "input": {"impressions": {"topic": "imp"}, "clicks": {"topic": "clk"}},
            "learner": learner,
        }
    )


def durable(joined: Joined, first: int, last: int) -> None:
    """A mark of these ticks has become durable."""
    at_s, mark, before = 0.0, MarkId(1, last), MarkId(1, first - 1)
    joined.progress.note(Appended(at_s, mark, before, Cut(first, last, 9, 9), first, COUNTS, (first, last)), at_s)


def test_a_partition_is_reported_once() -> None:
    """Counts of marks are summed by outcome; a second report without news adds nothing; gauges can be taken back."""
    metrics, joined = Metrics("m"), Joined(log_time=5_000)
    joined.progress.lost["other_writer"] = 2
    joined.progress.recovery_s.append(0.5)
    joined.progress.log_bytes, joined.progress.attempts = 77, 3
    durable(joined, 10, 14)
    durable(joined, 15, 15)
    for _ in range(2):
        report_partitions(metrics, [joined], now_ms=20_000, tick_ms=1_000)  # type: ignore[arg-type]
    found = values(metrics)
    expected = {
        ("joiner_read_total", "impressions"): 60,
        ("joiner_read_total", "clicks"): 30,
        ("joiner_impressions_total", "example"): 40,
        ("joiner_impressions_total", "duplicate"): 8,
        ("joiner_impressions_total", "sampled_out"): 6,
        ("joiner_impressions_total", "dead_lettered"): 6,
        ("joiner_clicks_total", "matched"): 10,
        ("joiner_clicks_total", "duplicate"): 8,
        ("joiner_clicks_total", "orphan"): 6,
        ("joiner_clicks_total", "late"): 4,
        ("joiner_clicks_total", "dead_lettered"): 2,
        ("joiner_positives_total", ""): 10,
        ("joiner_marks_total", ""): 2,
        ("joiner_ticks_total", ""): 6,
        ("joiner_resume_points_total", ""): 2,
        ("joiner_attempts_total", ""): 3,
        ("joiner_attempts_lost_total", "other_writer"): 2,
        ("joiner_log_bytes_total", ""): 77,
        ("joiner_append_seconds_count", ""): 2,
        ("joiner_recovery_seconds_sum", ""): 0.5,
        ("joiner_lag_beyond_window_seconds", "3"): 4,
        ("joiner_log_time_seconds", "impressions,3"): 5,
    }
    assert {name: found.get(name) for name in expected} == expected
    headroom = Headroom(a_config(), metrics, Mock(), list, lambda: 20_000, get_logger("t"))  # type: ignore[arg-type]
    assert headroom.needed_of(joined) == {("imp", 3): 15, ("clk", 3): 15}  # type: ignore[arg-type]
    headroom._watch.trimmed_at_ms = {("imp", 3): 27_500, ("m.examples", 3): 19_000, ("clk", 4): 90_000}
    headroom.report([3])
    found = values(metrics)
    assert found["joiner_retention_headroom_seconds", "impressions,3"] == 7.5
    assert found["joiner_retention_headroom_seconds", "log,3"] == 0
    headroom._watch.trimmed_at_ms = {("imp", 3): 27_500}
    headroom.report([3])
    assert ("joiner_retention_headroom_seconds", "log,3") not in values(metrics)
    forget_partition(metrics, 3)
    assert not [name for name, labels in values(metrics) if labels.endswith("3")]


def test_log_time_ahead_of_the_clock_is_said_once_and_its_end_too() -> None:
    """From ten seconds on, for each input, with the partition; it ends when the clock has come up."""
    metrics = Metrics("m")
    watch = AheadWatch(metrics, get_logger("joiner"))
    said = []
    for ahead_s in [0, 9, 10, 11, 60, 5, 0, 0, 30]:
        with capture_logs() as logged:
            watch.look([Joined(log_time=1000 * ahead_s)], 0)  # type: ignore[list-item]
        said.append([(line["event"], line["input"], line["partition"], line["seconds"]) for line in logged])
    first, over, again = ("log_time_ahead", 11), ("log_time_ahead_no_more", 0), ("log_time_ahead", 30)
    lines = {3: first, 6: over, 8: again}
    assert said == [[(lines[i][0], "impressions", 3, lines[i][1])] if i in lines else [] for i in range(9)]
    ahead = {side: values(metrics)["joiner_log_time_ahead_seconds", side] for side in ("impressions", "clicks")}
    assert ahead == {"impressions": 30, "clicks": 0}


def test_many_orphans_are_noticed() -> None:
    """More than half of a thousand clicks without an impression, once, with the share that was matched and causes; over
    at a quarter, and not at a third."""
    share, orphan = OrphanShare(get_logger("joiner"), 4), TickCounts(clicks=ClickCounts(orphans=300))
    matched, other = TickCounts(clicks=ClickCounts(matched=300)), TickCounts(clicks=ClickCounts(late=5_000))
    two_thirds = TickCounts(clicks=ClickCounts(matched=800, orphans=400))
    begins, over = ("many_orphans", 0.25, True), ("many_orphans_no_more", 0.75, False)
    said = []
    for taken in (
        [other, orphan, matched, orphan, matched],
        [orphan, orphan, orphan],
        [matched],
        [orphan] * 8,
        [two_thirds],
        [matched, matched, matched, orphan],
        [orphan, orphan, orphan, matched],
    ):
        with capture_logs() as logged:
            for counts in taken:
                share.note(counts)
        said.append([(line["event"], line["matched_share"], "note" in line) for line in logged])
    assert said == [[], [], [begins], [], [], [over], [begins]]


@pytest.mark.parametrize(
    ("matched_share", "partitions", "says"),
    [
        (0.26, 4, "about one click in 4"),
        (0.005, 200, "about one click in 200"),
        (0.0, 4, "hardly any click"),
        (0.0, 1, "hardly any click"),
        (0.45, 4, "most clicks"),
        (0.45, 1, "most clicks"),
    ],
)
def test_partitioners_are_blamed_only_where_the_share_is_theirs(
    matched_share: float, partitions: int, says: str
) -> None:
    """With a partitioner that differs one id in so many lies in the same partition all the same; any other share has
    other causes, which are named."""
    text = likely_causes(matched_share, partitions)
    assert text.startswith(says)
    assert ("murmur2" in text) == says.startswith("about one")
    assert says.startswith("about one") or "before the model began" in text


def example(*labels: float, key: int = 1, log_time_ms: int = 0) -> ExampleRecord:
    """A record of examples with these labels and the same feature."""
    n = len(labels)
    return ExampleRecord(
        partition=0,
        tick=0,
        attempt=1,
        sequence=0,
        log_time_ms=np.full(n, log_time_ms),
        id_hash=np.ones(n, np.uint64),
        label=np.array(labels),
        weight=np.ones(n),
        keys=np.array([key], np.uint64),
        indices=np.zeros(n, np.uint16),
        row_len=np.ones(n, np.uint16),
        positions=np.zeros(0, np.uint32),
        values=np.zeros(0),
    )


def test_a_learner_is_reported_from_where_the_process_began() -> None:
    """What was folded before is not counted again; refused examples and bytes are; gauges are the learner's."""
    metrics, learner, log = Metrics("m"), Learner(make_optimizer({"name": "ftrl_proximal"})), Followed()
    report = LearnerReport(metrics, tick_ms=200)
    for _ in range(5):
        learner.fold(example(1.0), 0)
    report.begin(learner)
    learner.fold(example(0.0), 1)
    learner.fold(example(float("nan")), 1)
    log.read_bytes, log.ignored, log.waiting_bytes = 100, 2, 50
    with capture_logs() as logged:
        for _ in range(2):
            report.update(learner, log, tick=1, now_ms=1_000)  # type: ignore[arg-type]
    assert [(line["event"], line["since_start"]) for line in logged] == [("examples_refused", 1)]
    found = values(metrics)
    summary = learner.progress.slices()[-1]
    expected = {
        "learner_examples_total": 1,
        "learner_examples_refused_total": 1,
        "learner_log_bytes_total": 100,
        "learner_log_records_ignored_total": 2,
        "learner_buffer_bytes": 50,
        "learner_features": 1,
        "learner_features_nonzero": learner.nonzero,
        "learner_tick_time_seconds": 0.4,
        "learner_lag_seconds": 0.6,
        "learner_log_loss": summary["log_loss"],
        "learner_calibration_ratio": summary["calibration"],
    }
    assert {name: found[name, ""] for name in expected} == pytest.approx(expected)


def test_a_figure_that_a_slice_does_not_define_vanishes() -> None:
    """Without positives there is no calibration, no entropy, no AUC: the last good figures must not stand there."""
    metrics = Metrics("m")
    learner = Learner(make_optimizer({"name": "ftrl_proximal"}), slice_ms=1_000)
    report = LearnerReport(metrics, tick_ms=200)
    defined = ("learner_normalized_entropy", "learner_calibration_ratio", "learner_auc")
    learner.fold(example(1.0, 0.0), 0)
    report.update(learner, Followed(), tick=0, now_ms=1_000)  # type: ignore[arg-type]
    assert not any(math.isnan(values(metrics)[name, ""]) for name in defined)
    for second in (1, 2):
        learner.fold(example(0.0, 0.0, log_time_ms=1_000 * second), second)
    report.update(learner, Followed(), tick=2, now_ms=3_000)  # type: ignore[arg-type]
    assert all(math.isnan(values(metrics)[name, ""]) for name in defined)
    assert values(metrics)["learner_log_loss", ""] > 0


def test_features_that_are_held_back_are_counted() -> None:
    """Those of this process, beside the bound; without a bound the bound shows as 0."""
    metrics = Metrics("m")
    learner = Learner(make_optimizer({"name": "ftrl_proximal"}), max_rows=1)
    report = LearnerReport(metrics, tick_ms=200)
    for key in (1, 2):
        learner.fold(example(1.0, key=key), 0)
    report.begin(learner)
    for key in (1, 2, 3):
        learner.fold(example(1.0, key=key), 1)
    report.update(learner, Followed(), tick=1, now_ms=1_000)  # type: ignore[arg-type]
    found = values(metrics)
    assert found["learner_features_held_back_total", ""] == 2
    assert found["learner_rows_limit", ""] == found["learner_features", ""] == 1
    report.update(Learner(make_optimizer({"name": "ftrl_proximal"})), Followed(), 1, 1_000)  # type: ignore[arg-type]
    assert values(metrics)["learner_rows_limit", ""] == 0


def test_the_rows_of_fields_are_shown() -> None:
    """The largest by name, and what was left out in this process; nothing but zeros without a bound."""
    metrics = Metrics("m")
    learner = Learner(make_optimizer({"name": "ftrl_proximal"}))
    report = LearnerReport(metrics, tick_ms=200)
    report.update_rows(learner, {})
    found = values(metrics)
    assert found["learner_field_rows_limit", ""] == found["learner_field_features_held_back_total", ""] == 0
    assert not [series for series in found if series[0] == "learner_field_rows"]
    for key in range(4, 44, 4):
        learner.fold(bounded_record([Example(((key, 1.0),), 1.0)], 7, 0), 0)
    report.begin(learner)
    for key in (4, 44, 48):
        learner.fold(bounded_record([Example(((key, 1.0), (5, 1.0)), 1.0)], 7, 0), 1)
    report.update_rows(learner, {NAME_HASHES["site"]: "site"})
    found = values(metrics)
    assert (found["learner_field_rows", "site"], found["learner_field_rows", "0xffffffffffffffff"]) == (7, 1)
    assert (found["learner_field_rows_limit", ""], found["learner_field_features_held_back_total", ""]) == (7, 2)
    report.update_rows(learner, {NAME_HASHES["site"]: "site", 2**64 - 1: "user"})
    assert ("learner_field_rows", "0xffffffffffffffff") not in values(metrics)


def test_what_a_learner_depends_on_is_reported(tmp_path: Path) -> None:
    """Room on the disk of its state; how long its log keeps what it needs; how long publication is paused."""
    metrics, config = Metrics("m"), a_config(state_dir=str(tmp_path))
    report = LearnerReport(metrics, tick_ms=200)
    report.update_surroundings(config, {("m.examples", 0): 9_000, ("m.examples", 1): 1_000}, 12.5, now_ms=2_000)
    found = values(metrics)
    assert (
        found["learner_retention_headroom_seconds", "0"] == 7 and found["learner_retention_headroom_seconds", "1"] == 0
    )
    assert found["learner_publication_paused_seconds", ""] == 12.5
    assert found["learner_state_free_bytes", ""] > 0
    report.update_surroundings(config, {("m.examples", 1): 9_000}, 0.0, now_ms=2_000)
    assert ("learner_retention_headroom_seconds", "0") not in values(metrics)
    (gone := tmp_path / "gone").mkdir()
    gone.rmdir()
    report.update_surroundings(a_config(state_dir=str(gone)), None, 0.0, now_ms=2_000)
    assert math.isnan(values(metrics)["learner_state_free_bytes", ""])


def test_the_fields_with_most_features_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of those with a hundred or more; one that is no longer among them goes; names stay short."""
    metrics = Metrics("m")
    report = FieldReport(a_config(), metrics)
    counts = {"user": 5_000, "n" * 300: 400, "site": 100, "os": 99}
    monkeypatch.setattr(report.counts, "counts", lambda: dict(counts))
    report.update()
    found = {labels: value for (name, labels), value in values(metrics).items() if "field_distinct" in name}
    assert found == {"user": 5_000, "n" * 100: 400, "site": 100}
    assert values(metrics)["joiner_distinct_features", ""] == 5_599
    counts = {f"f{i}": 1_000 - i for i in range(30)}
    report.update()
    found = {labels: value for (name, labels), value in values(metrics).items() if "field_distinct" in name}
    assert found == {f"f{i}": 1_000 - i for i in range(20)}


def test_a_field_is_shown_once_enough_of_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One feature of a coarse sample stands for thousands: no series is made of so few; the next call looks on."""
    metrics = Metrics("m")
    report = FieldReport(a_config(), metrics)
    looks: list[str] = []
    monkeypatch.setattr(report.counts, "catch_up", lambda: looks.append("look"))
    monkeypatch.setattr(type(report.counts), "share", property(lambda counts: 1_000.0))
    counts = {"user": 4_000, "ad": 3_000}
    monkeypatch.setattr(report.counts, "counts", lambda: dict(counts))
    report.update()
    found = {labels: value for (name, labels), value in values(metrics).items() if "field_distinct" in name}
    assert found == {"user": 4_000} and looks == ["look"]
