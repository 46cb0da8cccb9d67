"""The liveness probe of a process with several loops."""

from __future__ import annotations

from stream_learner.roles.common.lifecycle import Heartbeat, all_alive


def test_one_loop_that_hangs_is_enough() -> None:
    """A process is restarted for it, though its other loops turn, and those that have not begun are waited for."""
    turns, hangs, begins = Heartbeat(60.0), Heartbeat(0.0), Heartbeat(0.0)
    turns.beat()
    hangs.beat()
    assert all_alive([turns, begins]) == (True, "ok")
    assert all_alive([turns, hangs, begins]) == (False, "a loop has not turned for a minute")
    assert all_alive([]) == (True, "ok")
