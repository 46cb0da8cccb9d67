"""The brokers' clock on a real broker, which tells when it appended a record, or does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.joiner.ticks import BrokersClock
from tests.e2e.conftest import MakeSite
from tests.e2e.site import APPEND_TIME, running, wait_until
from tests.scenarios import scenario

MINUTE_MS = 60_000


class Reported(BrokersClock):
    """Keeps what the brokers told."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []

    def note(self, appended_ms: int, m: int) -> None:
        """Take the time of a record that a broker appended."""
        self.times.append(appended_ms)
        super().note(appended_ms, m)


@pytest.mark.parametrize(("configs", "warnings"), [(APPEND_TIME, 0), ({"message.timestamp.type": "CreateTime"}, 1)])
def test_a_log_without_append_times_is_told_once(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture, configs: Mapping[str, str], warnings: int
) -> None:
    """The producer's own time of a record is no clock of a broker: the machine's stands for it, and that is told."""
    site = make_site(scenario("plain", partitions=2), log_configs=configs)
    site.produce()
    brokers = Reported()
    joiner = site.joiner(brokers=brokers)
    with running(joiner):
        wait_until(site.closed, "all of it joined")
    said = [r.msg for r in caplog.records if isinstance(r.msg, dict) and r.msg["event"] == "no_append_time"]
    assert [line["topic"] for line in said] == [site.config.examples_topic] * warnings
    assert bool(brokers.times) == (not warnings)
    assert all(abs(at_ms - wall_clock_ms()) < 10 * MINUTE_MS for at_ms in brokers.times)
    assert brokers.base is not None
