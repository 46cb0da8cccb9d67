"""The demo: the whole loop on generated traffic, with a broker inside this process or on a cluster.

Joiner, learner and scorer are the ones that production runs, with an ordinary configuration file:

    producer ─▶ impressions, clicks ─▶ JoinerRole ─▶ training log ─▶ LearnerRole ─▶ snapshots ─▶ Scorer
       │ true model (traffic)                           │                                          │ versions
       └──────────────▶ scoreboard ◀─── metrics ────────┼──────────────────────────────────────────┘
                                                        └─▶ audit: the balance of all records

`audit` reads the training log as anyone may, so that the report proves what became of every record without asking a
role. `scoreboard` compares the model's loss with that of the true model, which made the traffic; `freshness` measures
the time from a window's close to a scorer that serves it.

Read in this order: `plan` (settings), `producer` (traffic), `system` (topics, roles and threads), `audit`, `freshness`,
`scoreboard` (figures), `view` and `report` (what is shown), `run` (from beginning to end). `stream-learner demo` calls
`run_demo`.
"""

from __future__ import annotations

from stream_learner.demo.run import run_demo

__all__ = ["run_demo"]
