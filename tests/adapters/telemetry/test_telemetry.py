"""Logs are events with fields on the stream they belong to; metrics are the declared ones only."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
from stream_learner.adapters.telemetry.metric_names import CATALOGUE, Metric
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import BrokenInvariant

PACKAGE = Path(__file__).resolve().parents[3] / "stream_learner"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    configure_logging(log_format="console")


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# Logs


def test_an_event_is_one_json_line_with_its_fields(stream: io.StringIO) -> None:
    """Time, level, model, role and event come first, the event's own fields after them."""
    configure_logging(log_format="json", model="ctr", stream=stream)
    get_logger("learner", partition=3).info("tick folded", tick=12, examples=800)
    (line,) = lines(stream)
    assert list(line) == ["time", "level", "model", "role", "event", "partition", "tick", "examples"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", str(line.pop("time")))
    assert line == {
        "level": "info",
        "model": "ctr",
        "role": "learner",
        "event": "tick folded",
        "partition": 3,
        "tick": 12,
        "examples": 800,
    }


def test_auto_is_json_where_nobody_watches(stream: io.StringIO) -> None:
    """A stream that is no terminal gets JSON."""
    configure_logging(stream=stream)
    get_logger("joiner").info("started")
    assert lines(stream)[0]["event"] == "started"


def test_the_console_is_for_reading(stream: io.StringIO) -> None:
    """The console form has the same fields as name=value."""
    configure_logging(log_format="console", model="ctr", stream=stream)
    get_logger("joiner").warning("late clicks", count=7)
    text = stream.getvalue()
    assert "late clicks" in text
    assert "count=7" in text
    assert "role=joiner" in text


def test_levels_filter_ours_and_quieten_others(stream: io.StringIO) -> None:
    """Below the level nothing is written; other libraries speak from warning on."""
    configure_logging(log_format="json", log_level="info", stream=stream)
    get_logger("learner").debug("hidden")
    logging.getLogger("uvicorn").info("hidden")
    logging.getLogger("uvicorn").warning("shown")
    assert [line["event"] for line in lines(stream)] == ["shown"]
    configure_logging(log_format="json", log_level="debug", stream=stream)
    get_logger("learner").debug("shown too")
    assert lines(stream)[-1]["event"] == "shown too"


def test_loggers_of_the_standard_library_look_the_same(stream: io.StringIO) -> None:
    """A record of `logging` has the same fields, its logger's name as the role."""
    configure_logging(log_format="json", model="ctr", stream=stream)
    logging.getLogger("stream_learner.kafka").info("broker %s is back", 2)
    (line,) = lines(stream)
    assert (line["role"], line["event"], line["model"]) == ("kafka", "broker 2 is back", "ctr")


def test_an_exception_stays_on_its_line(stream: io.StringIO) -> None:
    """A traceback is a field, so that one event is one line; local variables are not in it."""
    configure_logging(log_format="json", stream=stream)
    password = "hunter2"
    try:
        raise OSError(f"{len(password)} characters")
    except OSError:
        get_logger("learner").exception("failed")
    (line,) = lines(stream)
    assert "OSError: 7 characters" in str(line["exception"])
    assert "hunter2" not in stream.getvalue()


def test_logs_go_to_stderr_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of a log is ever on stdout, which is for results."""
    configure_logging(log_format="json")
    get_logger("learner").error("seen")
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["event"] == "seen"


def test_a_warning_of_python_is_one_event(stream: io.StringIO) -> None:
    """Its category, text and place are fields; nothing else is written for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging(log_format="json", model="ctr", stream=stream)
        warnings.warn("old\nand gone", DeprecationWarning, stacklevel=1)
    (line,) = lines(stream)
    assert (line["level"], line["model"], line["role"], line["event"]) == ("warning", "ctr", "python", "python_warning")
    assert (line["category"], line["message"]) == ("DeprecationWarning", "old\nand gone")
    assert line["file"] == __file__ and isinstance(line["line"], int)


def test_a_warning_that_is_meant_for_a_file_goes_there(stream: io.StringIO) -> None:
    """A warning that is shown with a file goes to that file, not to the log."""
    own = io.StringIO()
    with warnings.catch_warnings():
        configure_logging(log_format="json", stream=stream)
        warnings.showwarning("look", UserWarning, "a.py", 7, file=own)
    assert "a.py:7: UserWarning: look" in own.getvalue()
    assert lines(stream) == []


LIBRARY = """
import logging, sys
from stream_learner.adapters.telemetry.logs import get_library_logger
log = get_library_logger("scorer", model="ctr")
log.debug("unseen")
log.warning("seen", reason="100 % away")
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.INFO, stream=sys.stderr)
log.info("seen too", to="b")
"""


def test_in_a_program_of_somebody_else_events_go_to_its_logging() -> None:
    """Nothing is on stdout; before that program sets its logging up, only warnings are shown; then what it asks for."""
    ended = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "event='seen' model='ctr' reason='100 % away'",
        "INFO stream_learner.scorer event='seen too' model='ctr' to='b'",
    ]


WARNING = """
import sys, warnings
from stream_learner.cli.options import load_for_role
load_for_role(None, ["model=ctr", "kafka.bootstrap.servers=h:1", "input.impressions.topic=a", "input.clicks.topic=b"])
warnings.warn("seen")
"""


def test_every_role_logs_the_warnings_of_python() -> None:
    """How every command of a role begins is enough: a warning after it is a line of JSON, and stderr has no other."""
    ended = subprocess.run([sys.executable, "-c", WARNING], capture_output=True, text=True, check=True)
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["model"], line["event"], line["message"], ended.stdout) == ("ctr", "python_warning", "seen", "")


# Metrics


def test_each_kind_has_its_operation() -> None:
    """Counters add up, gauges are set or asked, histograms observe."""
    metrics = Metrics("ctr")
    metrics.inc(names.JOINER_IMPRESSIONS, 2, outcome="example")
    metrics.inc(names.JOINER_IMPRESSIONS, 3, outcome="example")
    metrics.set(names.LEARNER_FEATURES, 7)
    metrics.follow(names.SCORER_VERSION, lambda: 42)
    metrics.observe(names.JOINER_APPEND, 0.003)
    text = metrics.text().decode()
    assert 'stream_learner_joiner_impressions_total{model="ctr",outcome="example"} 5.0' in text
    assert 'stream_learner_learner_features{model="ctr"} 7.0' in text
    assert 'stream_learner_scorer_version{model="ctr"} 42.0' in text
    assert 'stream_learner_joiner_append_seconds_bucket{le="0.005",model="ctr"} 1.0' in text


def test_a_partition_given_away_is_not_shown_any_more() -> None:
    """A gauge can be forgotten, so that a stale value does not look like a live one."""
    metrics = Metrics("ctr")
    for partition in ("0", "1"):
        metrics.set(names.JOINER_LAG, 5, partition=partition)
    metrics.forget(names.JOINER_LAG, partition="0")
    text = metrics.text().decode()
    assert 'partition="0"' not in text
    assert 'partition="1"' in text


def test_a_partition_that_comes_back_is_shown_again() -> None:
    """Whatever the order in which the labels are given."""
    metrics = Metrics("ctr")
    shown = 'stream_learner_joiner_log_time_seconds{input="clicks",model="ctr",partition="0"}'
    for value in (5.0, 6.0):
        metrics.set(names.JOINER_LOG_TIME, value, input="clicks", partition="0")
        metrics.set(names.JOINER_LOG_TIME, value + 1, partition="0", input="clicks")
        assert f"{shown} {value + 1}" in metrics.text().decode()
        metrics.forget(names.JOINER_LOG_TIME, partition="0", input="clicks")
        assert shown not in metrics.text().decode()
    metrics.forget(names.JOINER_LOG_TIME, partition="0", input="clicks")


def test_what_is_not_declared_is_refused() -> None:
    """An undeclared metric, a wrong operation and wrong labels are bugs, and say so."""
    metrics = Metrics("ctr")
    undeclared = Metric("joiner_secret_total", "counter", "Not in the catalogue.")
    with pytest.raises(BrokenInvariant, match="joiner_secret_total"):
        metrics.inc(undeclared)
    with pytest.raises(BrokenInvariant, match="scorer_ready"):
        metrics.inc(names.SCORER_READY)
    with pytest.raises(BrokenInvariant, match="joiner_read_total"):
        metrics.inc(names.JOINER_READ)
    with pytest.raises(BrokenInvariant, match="learner_ticks_total"):
        metrics.inc(names.LEARNER_TICKS, partition="1")
    with pytest.raises(BrokenInvariant, match="learner_ticks_total"):
        metrics.inc(names.LEARNER_TICKS, -1)


def test_processes_count_for_themselves() -> None:
    """Two roles in one process do not share values."""
    one, other = Metrics("a"), Metrics("b")
    one.inc(names.LEARNER_TICKS)
    assert 'model="a"' not in other.text().decode()


def test_names_follow_the_rules() -> None:
    """Counters end in _total, durations in _seconds; names are unique and meanings are sentences."""
    for metric in CATALOGUE:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets), metric.name
        assert metric.meaning.endswith("."), metric.name
        assert "model" not in metric.labels
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    joined = " ".join(metric.name for metric in CATALOGUE)
    assert not re.search(r"_(ms|millis|kb|mb)(_|\b)", joined)


def test_metrics_are_made_in_one_place() -> None:
    """No other module makes metrics of its own behind the registry's back."""
    users = [file for file in PACKAGE.rglob("*.py") if "prometheus_client" in file.read_text(encoding="utf-8")]
    assert [str(file.relative_to(PACKAGE)) for file in users] == ["adapters/telemetry/metrics.py"]
