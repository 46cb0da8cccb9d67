"""`run`, `join` and `learn` as processes: metrics, logs, signals, restarts, and who must give way."""

from __future__ import annotations

import time

from stream_learner import errors
from stream_learner.adapters.telemetry.metric_names import CATALOGUE
from tests.cli_e2e.commands import run, started
from tests.cli_e2e.conftest import IMPRESSIONS, Learned, MakeWorld, learn
from tests.cli_e2e.scraped import values_of

LABELS = {"time", "level", "model", "role", "event"}


def test_the_metrics_add_up(learned: Learned) -> None:
    """Every record sent has one outcome, the learner folded every example, and what is shown is declared."""
    values, sent = values_of(learned.metrics), learned.sent
    assert values["joiner_read_total", "impressions"] == sent.impression_records
    assert values["joiner_read_total", "clicks"] == sent.click_records
    assert values["joiner_impressions_total", "example"] == sent.impressions == IMPRESSIONS
    assert values["joiner_impressions_total", "dead_lettered"] == sent.impressions_bad > 0
    assert values["joiner_clicks_total", "orphan"] >= sent.orphans
    assert values["joiner_clicks_waiting", ""] == 0
    assert 0 < values["joiner_positives_total", ""] <= values["joiner_clicks_total", "matched"]
    assert values["learner_examples_total", ""] == IMPRESSIONS
    assert values["learner_examples_refused_total", ""] == values["learner_log_records_ignored_total", ""] == 0
    assert 0 < values["learner_features_nonzero", ""] <= values["learner_features", ""]
    assert values["learner_publish_seconds_count", ""] == values["learner_published_sequence", ""] > 0
    assert values["joiner_partitions", ""] == 2
    assert values["learner_state_free_bytes", ""] > 0
    assert values["learner_publication_failures_total", ""] == values["learner_publication_paused_seconds", ""] == 0
    assert values["learner_rows_limit", ""] == values["learner_features_held_back_total", ""] == 0
    # The bias has no field; a key in a hundred is not seen as a new one.
    assert 0.97 * values["learner_features", ""] - 1 <= values["joiner_distinct_features", ""]
    assert values["ready", "joiner"] == values["ready", "learner"] == 1
    assert 0 < values["start_time_seconds", "joiner"] <= values["start_time_seconds", "learner"] <= time.time()
    declared = {metric.full_name: metric for metric in CATALOGUE}
    for line in learned.metrics.splitlines():
        if line.startswith("# TYPE stream_learner_"):
            name, kind = line.split()[2:]
            assert declared[name].kind == kind


def test_the_probes_answer(learned: Learned) -> None:
    """A role at work is alive and ready; there are no other pages."""
    assert learned.answers["/healthz"] == learned.answers["/readyz"] == (200, "ok\n")
    assert learned.answers["/nothing"][0] == 404


def test_a_signal_ends_it_with_everything_kept(learned: Learned) -> None:
    """SIGTERM: what was folded is checkpointed, and the exit code is 0: it ended by itself, within shutdown_timeout."""
    ended = learned.ended
    assert ended.code == 0 and ended.out == ""
    assert "shutdown_timeout_exceeded" not in ended.err
    by_name = {event["event"]: event for event in ended.events}
    assert by_name["checkpoint"]["tick"] == by_name["learner_stopped"]["tick"] > 0
    assert "joiner_stopped" in by_name


def test_logs_are_events_and_few(learned: Learned) -> None:
    """Each line is one JSON object with time, level, model, role and event; 5,000 events give no 5,000 lines.

    The roles have nothing to warn of. The client may, while a broker that has just started finds its coordinators; and
    loading the kernels may, where it takes long.
    """
    events = learned.ended.events
    assert all(event.keys() >= LABELS for event in events)
    assert {event["model"] for event in events} == {learned.world.model}
    assert {event["level"] for event in events if event["role"] in ("joiner", "learner")} == {"info"}
    assert len(events) <= 50


def test_a_restart_goes_on_and_a_second_learner_is_kept_out(make_world: MakeWorld) -> None:
    """The second start has the first one's state and resumes both partitions. A learner on the same directory is
    refused; one elsewhere takes over publishing, and the first one stops and says so.
    """
    world = make_world()
    before = {event["event"]: event for event in learn(world).ended.events}["learner_stopped"]
    elsewhere = ("--set", f"learner.state_dir={world.folder / 'elsewhere'}")
    with started("run", "-c", world.file) as first:
        at_start = first.wait_for("learner_started")
        assert (at_start["tick"], at_start["digest"]) == (before["tick"], before["digest"])
        assert first.wait_for("partition_resumed")["impressions_offset"] > 0
        refused = run("learn", "-c", world.file)
        assert refused.code == errors.StateInUse.exit_code
        assert str(world.folder / "state") in refused.error["message"]
        with started("learn", "-c", world.file, *elsewhere) as second:
            second.wait_for("learner_started")
            gave_way = first.ended()
            assert gave_way.code == errors.Fenced.exit_code
            assert "Leave only one of them" in gave_way.error["action"].capitalize()
            assert {"joiner_stopped", "learner_stopped"} <= {event["event"] for event in gave_way.events}
            assert second.stop().code == 0


def test_a_second_signal_does_not_wait(learned: Learned) -> None:
    """A process told to stop twice is gone, with the signal's exit code, or was done before."""
    with started("join", "-c", learned.world.file) as command:
        command.wait_for("joiner_started")
        command.process.terminate()
        # Time is the input: signals of the same moment are one.
        time.sleep(0.005)
        assert command.stop().code in (0, 143, -15)
