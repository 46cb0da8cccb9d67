"""The demo: the whole loop on generated traffic, on this machine or on a cluster.

In: how long, how fast, where. Out: a view of the running system, a report, an exit code.
This package must never do a role's work: joiner, learner and scorer are the ones that production runs.

Read in this order: plan (settings), producer (traffic), site (topics and roles), audit (the training log, read
along), freshness and scoreboard (figures), view and report (what is shown), run (the order of things).
"""

from __future__ import annotations

from stream_learner.demo.run import run_demo

__all__ = ["run_demo"]
