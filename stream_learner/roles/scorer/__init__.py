"""The scorer: from published models to predictions.

Read `reader` (the snapshot topic into a replica, in a thread), `replica` (one model: its replica, and how events become
its features), `request_fit` (whether events have features that the model knows), `kept_copy` (the last version on
disk), `served_model` (which model is served), `scorer` (the class that users call). `serve/` answers over HTTP with
one scorer for each name. The weights themselves, and when a version is whole, are `core.snapshots`.

What one model answers
----------------------

A scorer answers with one whole version, or not at all. Once it has a version it goes on answering, whatever becomes of
the brokers and the learner; how old the version is decides what it says, and only `refuse_after` makes it stop.

              copy on disk           topic read
    nothing ────────────────▶ copy ──────────────▶ whole version ──┐
       │                       │                     ▲  ▲  │       │ next version
       └───────────────────────┼──── topic read ─────┘  └──┼───────┘
                               └──────────────┬────────────┘
                                              │ nothing new for stale_after
                                              ▼
                                            stale ────── a version, a pause, a pin ──▶ back
                                              │ nothing new for refuse_after
                                              ▼
                                           refused ───── a version, a pause, a pin ──▶ back

| state         | answers          | a probe of readiness | is told by                             |
| ------------- | ---------------- | -------------------- | -------------------------------------- |
| nothing       | NotReady         | not ready            | `why_not_ready`                        |
| copy          | with the copy    | ready                | `is_from_copy`                         |
| whole version | with the version | ready                | `version`, `freshness_ms`              |
| stale         | with the version | ready                | `why_stale`, log, metrics              |
| refused       | NotReady         | ready                | `why_refused`                          |
| draining      | with the version | not ready            | `serve` only: "the server is stopping" |

| in state             | event                           | then          | what is done                          |
| -------------------- | ------------------------------- | ------------- | ------------------------------------- |
| nothing              | a start with a usable copy      | copy          | serve it, then read the topic         |
| nothing              | the topic gives a whole version | whole version | serve it                              |
| nothing              | the reader ends                 | nothing       | `wait_ready` raises, `serve` tries on |
| copy                 | the topic gives a whole version | whole version | one reference is exchanged            |
| whole version, stale | the next version is whole       | whole version | the table's banks are exchanged       |
| any with a version   | a record that cannot be used    | the same      | count it, pass over it                |
| any with a version   | the reader ends                 | the same      | begin another reader                  |
| copy, whole version  | nothing new for `stale_after`   | stale         | log it once                           |
| stale                | nothing new for `refuse_after`  | refused       | predicting raises NotReady            |
| any with a version   | `serve` is told to stop         | draining      | answer for `serve.drain`, then end    |

Stale and refused are not stored: they follow from the time of the last version (`ModelReplica.why_stale`,
`why_refused`), and either limit may be off.

Which model is served
---------------------

A scorer of an alias may be told at any time to serve another model. It loads that one beside the one it serves, so for
a while there are two, each in a state of the table above.

| served | loading | event                               | then                                             |
| ------ | ------- | ----------------------------------- | ------------------------------------------------ |
| –      | –       | the alias points at A               | serve A, which answers from its first version on |
| A      | –       | the alias, or a pin, says B         | load B                                           |
| A      | –       | B cannot be loaded                  | say why in `pending`, try again after `AGAIN_S`  |
| A      | B       | B is whole, the last, not refused   | serve B, stop A                                  |
| A      | B       | B's reader ends                     | stop B, then as if B could not be loaded         |
| A      | B       | the alias says A again              | stop B                                           |
| A      | B       | the alias says C                    | stop B, load C                                   |
| A      | any     | the alias is deleted, or unusable   | serve A, say why in `pending`                    |
| A      | any     | the program pins                    | serve A, exchange nothing until `unpin`          |
"""
