"""The look of a learner at its topics: when it looks, and what its verdict is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.config import Config
from stream_learner.core.gate.first_version import Unearned
from stream_learner.errors import NotAuthorised
from stream_learner.operations.doctor import watch
from stream_learner.operations.doctor.findings import Finding, Severity
from stream_learner.operations.doctor.run import Report
from stream_learner.operations.doctor.watch import AGAIN_S, FIRST_S, NOT_YET, TopicsLook
from tests.operations.doctor.site import Site, configuration
from tests.waiting import wait_until


class Looks:
    """A look with findings that are given, on a clock of its own."""

    def __init__(self, **options: Any) -> None:
        self.found: list[Finding] = []
        self.fails: Exception | None = None
        self.count, self.now_s = 0, 0.0
        self.look = TopicsLook(configuration(Site()), self._find, clock_s=lambda: self.now_s, **options)

    def _find(self, config: Config) -> list[Finding]:
        self.count += 1
        if self.fails is not None:
            raise self.fails
        return self.found

    def ask(self, *, earned: bool = False) -> Unearned | None:
        """Ask, and ask again once the look that it began is over."""
        self.look(earned=earned)
        thread = self.look._thread
        if thread is not None:
            wait_until(lambda: not thread.is_alive(), "the look is over")
        return self.look(earned=earned)


def finding(severity: Severity) -> Finding:
    return Finding(severity, "keys_differ", "they differ", "positives are lost", "the producer")


def test_it_is_asked_for_at_once_and_again_later() -> None:
    """In doubled steps; what stands in the way is the verdict until a later look does not find it."""
    looks = Looks()
    looks.found = [finding("stops")]
    with capture_logs() as logged:
        first = looks.ask()
        looks.now_s += AGAIN_S / 2
        assert looks.ask() == first and looks.count == 1
        looks.now_s += AGAIN_S
        assert looks.ask() == first and looks.count == 2
    assert [event["event"] for event in logged] == ["topics_do_not_fit"], "each finding is told once"
    looks.found = [finding("warns")]
    looks.now_s += AGAIN_S
    assert looks.ask() == first, "the pauses are doubled"
    looks.now_s += AGAIN_S
    assert looks.ask() is None


def test_a_joiner_looks_in_its_first_minute() -> None:
    """It tells in its own log what it found, and looks no more."""
    looks = Looks(role="joiner", for_s=FIRST_S)
    looks.found = [finding("stops")]
    with capture_logs() as logged:
        for _ in range(20):
            looks.ask()
            looks.now_s += AGAIN_S
    assert looks.count == 3
    assert [(event["event"], event["role"]) for event in logged] == [("topics_do_not_fit", "joiner")]


def test_the_last_look_is_made_when_nothing_else_is_missing() -> None:
    """There may have been hardly any event before."""
    looks = Looks()
    assert looks.ask() is None and looks.count == 1
    assert looks.look(earned=True) == NOT_YET
    assert looks.ask(earned=True) is None and looks.count == 2


@pytest.mark.parametrize("fails", [NotAuthorised("Read on topic clicks"), ZeroDivisionError("a mistake of ours")])
def test_a_look_that_fails_holds_nothing(fails: Exception) -> None:
    """A learner need not have the rights of a joiner, and no mistake of a look may hold a model."""
    looks = Looks()
    looks.fails = fails
    with capture_logs() as logged:
        assert looks.ask() is None
        looks.ask(earned=True)
    assert [event["event"] for event in logged] == ["topics_not_looked_at"]


def test_rights_that_are_missing_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The joiner may be another user. What else is found counts."""
    found = [finding("stops"), replace(finding("stops"), name="rights"), finding("tells")]
    monkeypatch.setattr(watch, "doctor", lambda *of, advises: Report(found, [], [], {}, []))
    assert watch._found(configuration(Site())) == found[:1]
