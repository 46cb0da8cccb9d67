"""The fault suite: real brokers, real processes, a seeded schedule of faults, and the same bits at its end.

    plan ──▶ schedule ──▶ cluster (three brokers, each behind proxies), fleet (the processes of roles), sender (traffic)
             │  kills, cuts, full disks, damaged states …
             └──▶ at the end: gather (what topics, states and witnesses hold) ──▶ check (against the oracle)

`plan` is a pure function of seed and number, so that a schedule can be run again. `schedule` carries a plan out;
`phases` aims kills at moments of a process's life. A `witness` is a scorer that writes down every version it serves.
`gather` collects what is left when all is over, and `check` compares it with the oracle, bit by bit. `run` does all
schedules of a run; `python -m proofs.chaos` is its command.
"""
