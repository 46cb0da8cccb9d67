"""The lease on a real Kafka: one holder, through joins, closes, kills and silence."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import KafkaSettings, Lease, holder_of
from stream_learner.errors import ConfigError
from tests.adapters.kafka.kafka_help import raises_within, running_module, until
from tests.conftest import MakeTopic

FOREVER_MS = 300_000
SHORT_MS = 3_000


class Candidates:
    """The candidates of this process for one lease."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.settings = KafkaSettings({"bootstrap.servers": bootstrap}, group=uuid.uuid4().hex)
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.all: list[Lease] = []

    def join(self, name: str = "standby", timeout_ms: int = FOREVER_MS, **options: Callable[[], float]) -> Lease:
        """One more."""
        self.all.append(Lease(self.settings, self.topic, timeout_ms=timeout_ms, name=name, **options))
        return self.all[-1]

    def leave(self, lease: Lease) -> None:
        """One less."""
        self.all.remove(lease)
        lease.close()

    def poll(self) -> None:
        """Let all take part; never do two hold the lease."""
        for lease in self.all:
            lease.poll()
        assert sum(lease.held for lease in self.all) <= 1

    def wait(self, true: Callable[[], bool]) -> None:
        """Poll until it is true."""

        def look() -> bool:
            self.poll()
            return true()

        until(look)

    def settled(self, members: int) -> bool:
        """Whether the group has so many members, and each of this process knows who holds the lease."""
        found = self._admin.describe_consumer_groups([self.settings.group])[self.settings.group].result()
        known = all(lease.held or lease.elsewhere for lease in self.all)
        return known and len(found.members) == members and found.state.name == "STABLE"

    def process(self, timeout_ms: int = SHORT_MS) -> AbstractContextManager[subprocess.Popen[str]]:
        """A candidate in a process of its own."""
        where = (self.settings.bootstrap, self.settings.group, self.topic)
        return running_module("tests.adapters.kafka.lease_member", *where, "standby", str(timeout_ms))


@pytest.fixture
def candidates(kafka: str, topics: MakeTopic) -> Iterator[Candidates]:
    """A lease of its own."""
    made = Candidates(kafka, topics("lease"))
    yield made
    for lease in made.all:
        lease.close()


def line(process: subprocess.Popen[str]) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_who_joins_does_not_move_the_lease_whatever_its_name(candidates: Candidates) -> None:
    """Four that come after the holder, some with names before its own, learn only that it is held."""
    holder = candidates.join("m")
    candidates.wait(lambda: holder.held)
    for number, name in enumerate(("a", "z", "b", "y"), 2):
        candidates.join(name)
        candidates.wait(lambda: candidates.settled(number))  # noqa: B023
        assert holder.held
        assert all(lease.elsewhere for lease in candidates.all[1:])


def test_a_lease_that_is_given_up_goes_to_the_name_that_comes_first(candidates: Candidates) -> None:
    """At once, though it would last for minutes: to `leader` before `standby`, whichever joined first."""
    holder = candidates.join("standby")
    candidates.wait(lambda: holder.held)
    second, third = candidates.join("standby"), candidates.join("leader")
    candidates.wait(lambda: candidates.settled(3))
    candidates.leave(holder)
    candidates.wait(lambda: third.held and second.elsewhere)
    named = holder_of(candidates.settings, candidates.topic)
    assert "lease-leader-" in named
    assert " at " in named
    candidates.leave(third)
    candidates.wait(lambda: second.held)
    candidates.leave(second)
    assert holder_of(candidates.settings, candidates.topic) == ""


def test_the_lease_of_a_killed_holder_ends(candidates: Candidates) -> None:
    """kill -9: another one has it when the time-out has passed."""
    with candidates.process() as process:
        assert line(process) == "held"
        second = candidates.join(timeout_ms=SHORT_MS)
        candidates.wait(lambda: candidates.settled(2))
        assert second.elsewhere
        process.kill()
        candidates.wait(lambda: second.held)


def test_a_holder_that_was_stopped_learns_when_it_wakes_that_it_slept_and_lost_the_lease(
    candidates: Candidates,
) -> None:
    """SIGSTOP: another one has the lease when the time-out has passed. SIGCONT: both know it."""
    with candidates.process() as process:
        assert line(process) == "held"
        second = candidates.join(timeout_ms=SHORT_MS)
        candidates.wait(lambda: candidates.settled(2))
        process.send_signal(signal.SIGSTOP)
        candidates.wait(lambda: second.held)
        process.send_signal(signal.SIGCONT)
        candidates.wait(lambda: candidates.settled(2))
        assert second.held
        assert [line(process), line(process)] == ["neither slept", "elsewhere slept"]


def test_a_time_out_that_the_brokers_do_not_allow_is_named(candidates: Candidates) -> None:
    """Below the least one of the brokers: the setting is in the message."""
    candidates.join(timeout_ms=200)
    error = raises_within(ConfigError, candidates.poll)
    assert "learner.lease_timeout" in str(error)


def test_a_lease_on_a_topic_that_is_not_there_yet_is_held_by_nobody(kafka: str) -> None:
    """No error, and no lease; closing does not hang."""
    missing = Candidates(kafka, f"none-{uuid.uuid4().hex}")
    lease = missing.join()
    until_s = time.monotonic() + 2.0
    while time.monotonic() < until_s:  # nothing happens, for as long as that takes
        missing.poll()
        assert not lease.held
        time.sleep(0.01)
    lease.close()


@pytest.mark.parametrize(("awake", "silent_s"), [(True, 0.0), (False, 1_000.0)])
def test_who_waits_for_brokers_does_not_sleep(candidates: Candidates, awake: bool, silent_s: float) -> None:
    """A long gap between two polls is sleep, unless it is said that it was not."""
    now_s = [0.0]
    lease = candidates.join(clock_s=lambda: now_s[0])
    candidates.wait(lambda: lease.held)
    now_s[0] += 1_000.0
    if awake:
        lease.awake()
    lease.poll()
    candidates.leave(lease)
    assert lease.silent_s == silent_s
