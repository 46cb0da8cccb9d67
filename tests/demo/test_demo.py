"""The demo: a short run of the whole loop as a user starts it, and the figures and pages by themselves."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.config import load_config
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, TickCounts
from stream_learner.core.model.progress import entropy
from stream_learner.demo.freshness import Freshness
from stream_learner.demo.plan import DemoPlan, make_config, make_traffic
from stream_learner.demo.report import DemoLocation, as_object, as_text, balance, problems
from stream_learner.demo.scoreboard import Score, Scoreboard
from stream_learner.demo.system import DemoResult, DemoStatus
from stream_learner.demo.view import Rates, bars, line, make_view, page
from stream_learner.errors import ConfigError
from stream_learner.roles.common.lifecycle import Task
from stream_learner.traffic import BestPossible
from tests.waiting import patience

PROJECT = Path(__file__).resolve().parents[2]
FIRST_START_S = 240
"""Compiling the kernels on a busy machine included."""

COUNTS = TickCounts(
    ImpressionCounts(read=900, examples=880, positives=90, duplicates=12, sampled_out=0, dead=5, late=3),
    ClickCounts(read=100, matched=60, duplicates=4, orphans=6, late=3, dead=2, waiting=25),
)
SCORE = Score(880, 0.3, 0.28, 0.9, 0.84, 1.01, 0.8)
MOMENT = DemoStatus(
    seconds=12.5,
    sent_impressions=1_000,
    sent_clicks=110,
    counts=COUNTS,
    learned=880,
    version=61,
    features=50,
    nonzero=40,
    total=SCORE,
    recent=SCORE,
    curve=[0.2, 0.1, 0.05],
    freshness_ms=[400, 600],
)
EMPTY = replace(
    MOMENT,
    counts=TickCounts(ImpressionCounts(), ClickCounts()),
    sent_impressions=0,
    sent_clicks=0,
    learned=0,
    version=-1,
    total=Score(0, None, None, None, None, None, None),
    recent=Score(0, None, None, None, None, None, None),
    curve=[],
    freshness_ms=None,
)
HERE = DemoLocation("demo", None, "demo.yaml")


def command(*options: str) -> list[str]:
    return [sys.executable, "-c", "from stream_learner.cli import main; main()", "demo", *options]


def started(*options: str, **environ: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1", **environ}
    return subprocess.Popen(
        command(*options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture(scope="module", autouse=True)
def under_way() -> Iterator[subprocess.Popen[str]]:
    """A short run, which goes on beside the first tests."""
    with started("--duration", "10", "--window", "2s", "--json") as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def run(under_way: subprocess.Popen[str]) -> dict[str, Any]:
    """The object of that run; nothing else may be on stdout, and the exit code is 0."""
    process = under_way
    out, err = process.communicate(timeout=patience(FIRST_START_S))
    assert process.returncode == 0, err
    assert "clock_differs" not in err and "log_time_ahead" not in err, "the embedded broker's time is not a clock"
    assert out.count("\n") == 1, out
    found: dict[str, Any] = json.loads(out)
    return found


def test_an_interrupted_run_ends_with_its_summary() -> None:
    """The first Ctrl-C ends the demo early, with everything accounted for and the usual exit code."""
    process = started("--duration", "100", "--window", "1s", "--rate", "500", "--partitions", "2")
    assert process.stdout is not None
    lines = []
    too_late = threading.Timer(patience(FIRST_START_S), process.kill)
    too_late.start()
    while not any("impressions/s" in shown for shown in lines):
        lines.append(process.stdout.readline())
        assert lines[-1], "it has ended"
    too_late.cancel()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 130, err
    assert "Every record is accounted for" in out
    assert "What to do next" in out
    assert "\x1b" not in "".join(lines) + out


def test_it_runs_on_a_cluster(kafka: str, tmp_path: Path) -> None:
    """On a real Kafka it makes topics of its own, keeps the balance, and leaves a configuration to go on with."""
    options = ("--duration", "4", "--window", "1s", "--rate", "500", "--partitions", "2", "--json")
    process = started(*options, "--bootstrap-servers", kafka, TMPDIR=str(tmp_path))
    out, err = process.communicate(timeout=patience(FIRST_START_S))
    assert process.returncode == 0, err
    found = json.loads(out)
    for side in ("impressions", "clicks"):
        counts = dict(found[side])
        assert counts.pop("read") == sum(counts.values()) > 0, side
    assert found["metrics"]["normalized_entropy"] is not None
    (file,) = tmp_path.glob("*/demo.yaml")
    config = load_config(file)
    assert config.model == found["model"]["name"] != "demo"
    topics = (config.examples_topic, config.snapshots_topic, config.input.clicks.topic)
    assert set(Admin(KafkaSettings(config.kafka_options())).describe(topics)) == set(topics)


def test_the_object_has_the_promised_shape(run: dict[str, Any]) -> None:
    """--json prints these names, in these groups, with numbers."""
    assert {name: list(value) if isinstance(value, dict) else None for name, value in run.items()} == {
        "impressions": ["read", "examples", "duplicates", "late", "sampled_out", "dead_lettered", "waiting"],
        "clicks": ["read", "matched", "duplicates", "orphans", "late", "dead_lettered", "waiting"],
        "model": ["name", "version", "features", "nonzero", "digest"],
        "metrics": ["log_loss", "best_log_loss", "normalized_entropy", "auc", "calibration"],
        "freshness_ms": ["p50", "p99"],
        "seconds": None,
    }
    assert run["model"]["name"] == "demo"
    assert len(run["model"]["digest"]) == 16
    assert 0 < run["model"]["nonzero"] <= run["model"]["features"]
    assert run["seconds"] >= 10


def test_every_record_of_the_run_is_accounted_for(run: dict[str, Any]) -> None:
    """What was read is the sum of what became of it, and all kinds of traffic were there."""
    for side in ("impressions", "clicks"):
        counts = dict(run[side])
        assert counts.pop("read") == sum(counts.values()), side
    assert run["impressions"]["read"] > 10_000
    assert run["impressions"]["examples"] > 5_000
    assert run["impressions"]["duplicates"] > 0
    assert run["impressions"]["waiting"] > 0
    assert run["clicks"]["matched"] > 300
    assert run["clicks"]["orphans"] > 0


def test_the_run_learns(run: dict[str, Any]) -> None:
    """Within seconds the model is far better than the click rate alone, and near the best possible."""
    metrics = run["metrics"]
    assert metrics["normalized_entropy"] < 0.95
    assert metrics["best_log_loss"] < metrics["log_loss"] < 1.15 * metrics["best_log_loss"]
    assert 0.7 < metrics["auc"] < 0.95
    assert metrics["calibration"] == pytest.approx(1.0, abs=0.1)
    assert 0 < run["freshness_ms"]["p50"] <= run["freshness_ms"]["p99"]


def test_too_much_traffic_for_the_embedded_broker_is_refused(tmp_path: Path) -> None:
    """It would drop records that still wait, so the options that help are named before anything starts."""
    with pytest.raises(ConfigError) as refused:
        make_config(DemoPlan(rate_per_s=20_000), "demo", "localhost:1", tmp_path)
    assert "--partitions 19, --rate 4369 or less" in refused.value.action
    with pytest.raises(ConfigError) as refused:
        make_config(DemoPlan(rate_per_s=1_000_000), "demo", "localhost:1", tmp_path)
    assert "--partitions" not in refused.value.action


@pytest.mark.parametrize("option", ["duration_s", "rate_per_s", "window_s", "partitions"])
def test_options_must_be_above_0(option: str) -> None:
    """Nothing is started for a demo of no time, no traffic or no partitions."""
    with pytest.raises(ConfigError, match="must be above 0"):
        DemoPlan(**{option: 0})


def test_settings_may_be_overridden(tmp_path: Path) -> None:
    """--set reaches the configuration, and the traffic follows the window that is really used."""
    config = make_config(DemoPlan(overrides=("join.window=3s",)), "demo", "localhost:1", tmp_path)
    assert config.join.window_ms == 3_000
    traffic = make_traffic(DemoPlan(), config.join.window_ms)
    assert traffic.shape.window_ms == 3_000
    assert tuple(config.features.categorical) == traffic.categorical


EXAMPLES = st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(0, 300), min_size=1, max_size=4)), max_size=12)


@settings(deadline=None)
@given(EXAMPLES, st.lists(st.integers(1, 5), max_size=10), st.randoms(use_true_random=False))
def test_freshness_is_the_wait_for_the_first_version_with_the_example(
    examples: list[tuple[int, list[int]]], steps: list[int], random: Any
) -> None:
    """Whatever comes first, an example's delay ends when the first version at or beyond its tick is applied."""
    versions = [(version, 300 + 10 * i) for i, version in enumerate(np.cumsum(steps).tolist())]
    freshness = Freshness()
    calls = [lambda v=v: freshness.applied(*v) for v in versions]
    for tick, closed_ms in examples:
        call = lambda t=tick, c=closed_ms: freshness.closed(t, np.array(c, np.int64))  # noqa: E731
        calls.insert(random.randint(0, len(calls)), call)
    for call in calls:
        call()
    delays = []
    for tick, closed_ms in examples:
        at_ms = next((at for version, at in versions if version >= tick), None)
        delays += [at_ms - closed for closed in closed_ms if at_ms is not None]
    if not delays:
        assert freshness.percentiles(0.5) is None
    else:
        assert freshness.percentiles(1e-9, 1.0) == [min(delays), max(delays)]


def progress(losses: list[float], labels: list[float], predictions: list[float]) -> dict[str, Any]:
    """The metrics of `core.model.progress` for examples of importance 1."""
    n = len(losses)
    return {
        "examples": n,
        "importance": float(n),
        "label_rate": sum(labels) / n if n else None,
        "prediction_rate": sum(predictions) / n if n else None,
        "log_loss": sum(losses) / n if n else None,
        "auc": 0.75,
    }


def test_recent_figures_are_those_of_the_latest_examples_alone() -> None:
    """Differences of totals give what would have been measured on the latest stretch by itself."""
    rng = np.random.default_rng(1)
    losses, best = rng.random(3_000), rng.random(3_000)
    labels, predictions = (rng.random(3_000) < 0.2).astype(float), rng.random(3_000)
    board = Scoreboard(recent_examples=1_000)
    for end in range(250, 3_001, 250):
        shown = progress(losses[:end].tolist(), labels[:end].tolist(), predictions[:end].tolist())
        board.add(shown, BestPossible(end, 0, float(best[:end].mean()), 0.0, 0.0))
    recent = board.recent
    assert recent.examples == 1_000
    assert recent.log_loss == pytest.approx(losses[-1_000:].mean())
    assert recent.best_log_loss == pytest.approx(best[-1_000:].mean())
    assert recent.calibration == pytest.approx(predictions[-1_000:].sum() / labels[-1_000:].sum())
    assert recent.normalized_entropy == pytest.approx(losses[-1_000:].mean() / entropy(labels[-1_000:].mean()))
    assert board.total.log_loss == pytest.approx(losses.mean())
    assert board.total.excess == pytest.approx(losses.mean() / best.mean() - 1.0)
    assert board.curve == [pytest.approx(losses[:2_000].mean() / best[:2_000].mean() - 1.0)]


def test_a_model_that_has_learned_nothing_has_no_figures() -> None:
    """Before the first example there is nothing to divide by."""
    board = Scoreboard()
    board.add(progress([], [], []), BestPossible(0, 0, float("nan"), float("nan"), float("nan")))
    assert board.total == board.recent == Score(0, None, None, None, None, None, None)


def test_the_balance_counts_what_no_mark_has_seen_as_waiting() -> None:
    """Sent and not yet in a mark is read and waiting, so both sums are complete at any status."""
    counts = balance(MOMENT)
    assert counts["impressions"]["read"] == 1_000
    assert counts["impressions"]["waiting"] == 100
    assert counts["clicks"]["waiting"] == 25 + 10
    assert problems(DemoResult(MOMENT, "0" * 16, [])) == []


def test_what_does_not_add_up_is_said() -> None:
    """One record too few or too many on either side is a problem, in the summary too."""
    lost = replace(MOMENT, counts=COUNTS._replace(clicks=COUNTS.clicks._replace(matched=59)))
    result = DemoResult(lost, "0" * 16, [])
    assert len(problems(result)) == 1
    assert "NOT IN ORDER: clicks that were read: 110, accounted for: 109" in as_text(result, HERE)
    invented = replace(MOMENT, sent_impressions=899)
    assert len(problems(DemoResult(invented, "0" * 16, []))) == 1


def test_the_object_is_plain_json_even_before_anything_was_learned() -> None:
    """What cannot be measured is null, never NaN."""
    found = json.loads(json.dumps(as_object(DemoResult(EMPTY, "0" * 16, []), HERE), allow_nan=False))
    assert found["metrics"]["log_loss"] is None
    assert found["freshness_ms"] == {"p50": None, "p99": None}
    assert found["model"]["version"] == -1


def test_the_summary_says_what_to_do_next() -> None:
    """Here it leads to one's own Kafka; on a cluster to the model, and to deleting what was made."""
    result = DemoResult(MOMENT, "00ff00ff00ff00ff", [])
    here = as_text(result, HERE)
    assert "--bootstrap-servers" in here
    assert "00ff00ff00ff00ff" in here
    there = as_text(result, DemoLocation("demo-1a2b", "kafka:9092", "somewhere/demo.yaml"))
    assert "inspect weights -c somewhere/demo.yaml" in there
    assert "kafka-topics.sh --bootstrap-server kafka:9092 --delete --topic 'demo-1a2b\\..*'" in there


def rendered(status: DemoStatus) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    console.print(page(status, (1_999.6, 250.0, 1_990.0), "demo", 60.0))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_page_shows_every_figure() -> None:
    """Rates, joined and waiting, losses beside the best, calibration, freshness, size and version."""
    shown = rendered(MOMENT)
    figures = ("2,000", "880", "100", "35", "0.3000", "0.2800", "+7.1 %", "0.900", "1.010", "0.800", "█▅▃")
    for text in (*figures, "p50 400 ms, p99 600 ms", "50 features, 40 with a weight", "61", "12 s of 60 s"):
        assert text in shown, text


def test_page_and_line_can_be_shown_before_anything_was_learned() -> None:
    """A dash stands where there is no figure yet."""
    assert "–" in rendered(EMPTY)
    assert "log-loss –" in line(EMPTY, (0.0, 0.0, 0.0))


def test_off_a_terminal_a_line_comes_every_few_seconds() -> None:
    """Plain text without control characters, one line for several moments."""
    console = Console(file=io.StringIO(), force_terminal=False, soft_wrap=True)
    with make_view(console, "demo", 60.0) as view:
        for second in range(12):
            view.show(replace(MOMENT, seconds=float(second)))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.count("\n") == 2
    assert "joined 880, waiting 100" in shown
    assert "\x1b" not in shown


def test_on_a_terminal_the_page_is_drawn_again_and_again() -> None:
    """Each status replaces the one before, and the cursor comes back at the end."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with make_view(console, "demo", 60.0) as view:
        for second in range(3):
            view.show(replace(MOMENT, seconds=float(second)))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.count("stream-learner demo") >= 3
    assert shown.endswith("\x1b[?25h") or "\x1b[?25h" in shown


def test_rates_are_of_the_last_seconds() -> None:
    """A burst long ago no longer counts."""
    rates = Rates(over_s=2.0)
    assert rates.add(replace(MOMENT, seconds=0.0, sent_impressions=0)) == (0.0, 0.0, 0.0)
    for second, sent in ((1.0, 5_000), (2.0, 5_100), (3.0, 5_200), (4.0, 5_300)):
        found = rates.add(replace(MOMENT, seconds=second, sent_impressions=sent))
    assert found[0] == pytest.approx(100.0)


def test_bars_fall_with_the_values() -> None:
    """The largest value is a full bar, nothing and less is the lowest."""
    assert bars([0.4, 0.2, 0.0, -0.1]) == "█▅▁▁"
    assert bars([]) == ""
    assert bars([-0.2, -0.1]) == "▁▁"


def test_a_task_keeps_the_error_that_ended_it() -> None:
    """Whoever watches the task sees it; stopping a task that has failed is harmless."""

    def fail(_: object) -> None:
        raise ValueError("broken")

    task = Task("failing", fail).start()
    task.stop()
    assert isinstance(task.error, ValueError)
    task.stop()
