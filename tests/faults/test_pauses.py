"""Processes that stand still for a while (SIGSTOP), and that are told to stop twice."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.checks import (
    assert_equal_to_oracle,
)
from tests.e2e.processes import process_of
from tests.e2e.site import running, wait_until
from tests.faults.conftest import MakeSite
from tests.faults.said import said
from tests.scenarios import scenario


def test_paused_roles_hold_nobody_up_and_go_on_or_give_way(make_site: MakeSite) -> None:
    """A learner and one of two joiners are paused for longer than a session: the other joiner closes its partitions
    and then all; the learner, whom nobody replaced, goes on; the joiner comes back. Everything counts once.
    """
    site = make_site(scenario("everything", 4))
    with process_of(site, "join") as paused, running(site.joiner()), process_of(site, "learn") as learner:
        wait_until(lambda: site.shared_by(2), "two joiners share the partitions")
        learner.wait_for("learner_started")
        site.produce(0, 0.4)
        wait_until(lambda: site.marks_seen() > 10, "the log grows")
        learner.pause()
        paused.pause()
        site.produce(0.4, 1)
        wait_until(site.closed, "the other joiner has closed every partition")
        checkpoints = said(learner, "checkpoint")
        paused.resume()
        learner.resume()
        wait_until(lambda: site.shared_by(2), "both share the partitions again")
        assert paused.exit_code is None
        wait_until(lambda: said(learner, "checkpoint") > checkpoints, "the learner goes on")
    assert_equal_to_oracle(site, site.scenario.expected())


@pytest.mark.thorough
def test_a_second_signal_ends_a_process_at_once_and_nothing_is_lost(make_site: MakeSite) -> None:
    """Both signals are there before the process can act on the first, while ticks are under way; the next process goes
    on to the oracle's log and model.
    """
    site = make_site(scenario("everything", 2))
    with process_of(site, "run") as roles:
        site.produce(0, 0.7)
        wait_until(lambda: site.marks_seen() > 10, "the log grows")
        roles.pause()
        os.kill(roles.pid, signal.SIGTERM)
        os.kill(roles.pid, signal.SIGINT)
        roles.resume()
        assert roles.wait_ended() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        assert not said(roles, "joiner_stopped")
    with process_of(site, "run"):
        site.produce(0.7, 1)
        wait_until(site.closed, "every partition closed")
    assert_equal_to_oracle(site, site.scenario.expected())
