"""Junk in the training log while roles run and at their restart: passed over, said and counted; the same model."""

from __future__ import annotations

from structlog.testing import capture_logs

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.log.header import Kind, RecordHeader, seal
from stream_learner.core.log.marks import GENESIS, Mark, encode_mark
from tests.e2e.checks import assert_balance, assert_log_equals, assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import scenario

PARTITIONS = 2


def junk(partition: int) -> list[bytes | None]:
    """What somebody else may write: text, nothing, noise, cut and damaged headers, records of another model's log."""
    other = 1 - partition
    noise = bytes(byte * 7 % 251 for byte in range(1 << 10)) * 900
    examples = seal(RecordHeader(Kind.EXAMPLES, 0, partition, 0, 0xBAD, 3), b"of another model")
    mark = encode_mark(Mark(partition, 0xBAD, 0, 3, 5, 0, 5, 2, *GENESIS))
    moved = seal(RecordHeader(Kind.EXAMPLES, 0, other, 0, 0xBAD, 3), b"of another partition")
    return [b"junk", b"", None, noise, b"SLTL", b"SLTL\1\0" + bytes(60), moved, examples, mark]


FOREIGN = len(junk(0)) - 2
"""The records of another model's log have a valid header: rule R ignores them as those of an attempt that lost."""


def append_junk(site: Site) -> None:
    for partition in range(PARTITIONS):
        site.append(site.config.examples_topic, partition, *junk(partition))


def counted(site: Site, metrics: Metrics, metric: names.Metric) -> float:
    """The value of a counter."""
    line = f'{metric.full_name}{{model="{site.model}"}} '
    found = [text for text in metrics.text().decode().splitlines() if text.startswith(line)]
    return float(found[0].removeprefix(line)) if found else 0.0


def test_junk_in_the_training_log_changes_nothing(make_site: MakeSite) -> None:
    """Before the first tick, between ticks while both roles run, at the end, and read again by roles that begin: the
    examples, the balance and the model are the oracle's, to the last bit.
    """
    made = scenario("everything", PARTITIONS)
    expected = made.expected()
    site = make_site(made)
    append_junk(site)
    metrics = Metrics(site.model)
    with capture_logs() as logged, running(site.joiner(), site.learner(metrics=metrics)):
        for share in range(4):
            site.produce(share / 8, (share + 1) / 8)
            wait_until(lambda share=share: site.last_tick() >= site.tick_closed_by((share + 1) / 8), "ticks close")
            append_junk(site)
        wait_until(lambda: counted(site, metrics, names.LEARNER_FOREIGN) == 5 * PARTITIONS * FOREIGN, "all are counted")
    said = [event for event in logged if event["event"] == "foreign_record_passed_over"]
    assert {(event["topic"], event["partition"]) for event in said} == {
        (site.config.examples_topic, partition) for partition in range(PARTITIONS)
    }
    assert {event["offset"] for event in said} >= {0}
    append_junk(site)
    again = Metrics(site.model)
    with running(site.joiner(metrics=again), site.learner()):
        site.produce(0.5, 1.0)
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: counted(site, again, names.JOINER_FOREIGN) > 0, "the joiner counts them")
    append_junk(site)
    assert_log_equals(site, expected)
    assert_balance(site)
    model = expected_fold(expected, made.settings)
    for config in (site.config, site.changed(learner={"state_dir": str(site.folder / "fresh"), "publish": False})):
        learner = site.learner(config)
        with running(learner):
            wait_until(lambda learner=learner: site.folded(learner), "every tick folded")
        assert_model_equals(learner.learner, model)
