"""Random histories of the joiner's and the publisher's protocols: production code in one process, on a model of Kafka,
with time as an argument. For development only.

         seed
           │                       trouble: crashes, pauses, late records, lost topics, wrong clocks
           ▼                          │
    world (joiners, publishers) ──────┴─▶ production code ──▶ model of Kafka (kafka) ──▶ logs ──▶ laws
                                           ▲ mutations take one step of it away

A history is a function of its seed alone. A *world* draws settings and traffic, starts processes, and lets things go
wrong for a while. Then trouble ends, one owner goes on, and everything must come to its end. The *laws* then judge the
logs: they share no code with what wrote them, and ask nobody who did it. A *mutation* patches one step out of the
production code; if the laws do not notice it, they prove nothing about that step.

Read `run` (one history), then for the training log `joiners` (the world), `process` (a joiner process), `events` (its
traffic), `laws` with `laws_content` and `laws_closing` on `evidence`, and `oracle` (rule R once more, slowly). For
publication `publishers` has all of that in one file, with its laws. Two stand apart: `silence` measures how often the
rule of silent clicks is wrong, and `streams` runs hours of traffic through joiners to see how windows close by the
stream's own clock: `stream_worlds` (the traffic), `stream_process` (a joiner process), `stream_run` (what came of it),
`stream_bounds`. docs/evidence-simulation.md says what is checked, and how to run it.
"""
