"""A role that waits for brokers at its start, and what probes say of roles."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import BrokerUnreachable, RetryLater, StreamLearnerError, TopicMissing
from stream_learner.operations import run
from stream_learner.operations.doctor.watch import TopicsLook
from stream_learner.operations.run import RoleAwaitingBrokers
from stream_learner.roles.common.lifecycle import Heartbeat, Stopping, all_alive, all_ready, run_roles
from tests.operations.doctor import site as sites
from tests.operations.doctor.site import configuration
from tests.waiting import wait_until


class Site:
    """Makes roles; the first ones cannot be opened. Notes what is done to which."""

    def __init__(self, *failures: StreamLearnerError) -> None:
        self._failures = list(failures)
        self.made = 0
        self.did: list[tuple[int, str]] = []
        self.stopping = Stopping()

    def make(self) -> FakeRole:
        self.made += 1
        return FakeRole(self, self.made, self._failures.pop(0) if self._failures else None)


class FakeRole:
    """A role that only notes its calls."""

    name = "joiner"
    why_not_ready = ""
    waits = "the first version waits"

    def __init__(self, site: Site, number: int, failure: StreamLearnerError | None) -> None:
        self._site, self._number, self._failure = site, number, failure

    def open(self) -> FakeRole:
        self._note("open")
        if self._failure is not None:
            raise self._failure
        return self

    def turn(self) -> bool:
        self._note("turn")
        self._site.stopping.set()
        return False

    def finish(self) -> None:
        self._note("finish")

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self._site.did.append((self._number, what))


def patient(site: Site, metrics: Metrics | None = None) -> RoleAwaitingBrokers:
    return RoleAwaitingBrokers("joiner", site.make, metrics or Metrics("m"), site.stopping)  # type: ignore[arg-type]


def test_it_makes_another_role_until_one_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is opened once, and the one that opens is closed once; it is said once that it waits, once that brokers
    answer, and counted."""
    monkeypatch.setattr(run, "AGAIN_S", 0.001)
    site, metrics = (
        Site(BrokerUnreachable("nobody"), RetryLater("leaders change"), BrokerUnreachable("nobody")),
        Metrics("m"),
    )
    with capture_logs() as logs:
        run_roles([patient(site, metrics)], site.stopping)
    assert site.did == [*((number, "open") for number in (1, 2, 3, 4)), (4, "turn"), (4, "finish"), (4, "close")]
    assert [line["event"] for line in logs] == ["waiting_for_brokers", "brokers_answer"]
    text = metrics.text().decode()
    assert 'retries_total{error="BrokerUnreachable",model="m",role="joiner"} 2.0' in text
    assert 'retries_total{error="RetryLater",model="m",role="joiner"} 1.0' in text


def test_what_brokers_say_is_not_waited_for() -> None:
    """A topic that is missing ends it."""
    site = Site(TopicMissing("gone"))
    with pytest.raises(TopicMissing):
        run_roles([patient(site)], site.stopping)
    assert site.did == [(1, "open")]


def test_it_is_not_ready_while_it_waits_and_stops_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that was never opened is neither finished nor closed."""
    monkeypatch.setattr(run, "AGAIN_S", 60.0)
    site = Site(*[BrokerUnreachable("nobody")] * 9)
    role = patient(site)
    thread = threading.Thread(target=run_roles, args=([role], site.stopping))
    thread.start()
    try:
        wait_until(lambda: role.why_not_ready == "the joiner waits for brokers: none answers")
    finally:
        site.stopping.set()
        thread.join()
    assert site.did == [(1, "open")]


@dataclass
class Waiting:
    """A role as probes see it."""

    why_not_ready: str
    waits: str = ""


def test_the_probes_speak_for_all_roles() -> None:
    """Alive while every loop turns; ready when every role is, else the reasons of those that are not."""
    hearts = [Heartbeat(), Heartbeat(limit_s=0.02)]
    assert all_alive(hearts) == (True, "ok")
    for heart in hearts:
        heart.beat()
    wait_until(lambda: not hearts[1].alive(), "the limit of the second has passed")
    assert hearts[0].alive()
    assert all_alive(hearts) == (False, "a loop has not turned for a minute")
    roles = [Waiting(""), Waiting("no group"), Waiting("no log")]
    assert all_ready(roles) == (False, "no group; no log")
    assert all_ready(roles[:1]) == (True, "ok")
    waiting = Waiting("", waits="the first version waits")
    assert all_ready([waiting]) == (True, "ok; the first version waits"), "what waits for traffic is ready"


def test_what_a_role_waits_for_is_told_once_it_is_there() -> None:
    """Also where it had to wait for brokers."""
    role = patient(site := Site())
    assert role.waits == ""
    run_roles([role], site.stopping)
    assert all_ready([role]) == (True, "ok; the first version waits")


def test_a_joiner_looks_at_its_topics_where_no_learner_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """`join` looks; `run` leaves it to its learner."""
    looks: list[Any] = []
    monkeypatch.setattr(run, "_serve", lambda config, wanted, wait: looks.append(wanted["joiner"]().keywords["look"]))
    run.join(configuration(sites.Site()))
    run.run(configuration(sites.Site()))
    assert isinstance(looks[0](configuration(sites.Site())), TopicsLook) and looks[1] is None
