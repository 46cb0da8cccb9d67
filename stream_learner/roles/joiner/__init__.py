"""The joiner: from the input topics to the training log.

Two state machines stand one in the other. The outer one is about membership: which partitions this process holds. The
inner one is rule W: how one partition is joined and written. `loop` drives the outer one, `partition` the inner one;
one thread turns all partitions, a bounded piece of work each.

**The partitions of a process** (`owned_partitions`)

              assigned               hint read                lost
    (not held) ──────▶ given ──────────────────▶ joining ─────────────▶ parked
         ▲               ▲                        │   ▲                   │
         │               └──── producer renewed ──┘   └───── assigned ────┤
         └── revoked, from any state; a parked one also: assigned without it

| state | event | next | what is done |
|---|---|---|---|
| not held | assigned | given | nothing yet: the hint of the committed offset is asked for first |
| given | hint read | joining | a `PartitionJoiner` begins with step 1 of rule W |
| given | brokers do not answer | given | asked again after `RETRY_S` |
| given | revoked or lost | not held | nothing: nothing has begun |
| joining | revoked | not held | its joiner is closed; records in flight may land, and rule R judges them |
| joining | lost | parked | its joiner is turned no more, and keeps all that it holds |
| joining | producer renewed | given | its joiner is closed: what became of its records nobody can tell |
| parked | assigned, with it | joining | its joiner goes on; acknowledged offsets show whether another wrote |
| parked | assigned, without it | not held | its joiner is closed |
| parked | revoked, or producer renewed | not held | its joiner is closed |

*Lost* is what the group tells a member that was silent for longer than the session lasts: nobody asked it to give its
partitions back, and it may be given the same ones again. A process that was stopped for a while goes on in this way
without reading its window again.

**One partition** (`partition`; the steps are those of `core.log.rule_w`)

| state | step | event | next | what is done |
|---|---|---|---|---|
| finding | 1 | the log is read to its end | rebuilding | the resume point must fit the settings (`partition_plan`) |
| both | 1, 2 | it does not fit, and no example was made with others | finding | a mark that begins anew |
| rebuilding | 2 | the ticks since are made again | appending | an attempt begins (step 3) |
| appending | 4 | a tick may close | appending | letters of dead records are waited for, then the tick is appended |
| appending | 4 | an expected offset | appending | progress moves to the last durable mark |
| appending | 5 | a foreign offset | in doubt | the log is read on by rule R |
| in doubt | 5 | the last accepted mark is one's own | appending | |
| in doubt | 5 | the last accepted mark is another's | finding | the attempt is dropped (step 6), at once |
| any | 6 | an error that may pass | resting | the attempt is dropped |
| resting | | `RETRY_S` is over | finding | |
| any | | an error that does not pass | stopped | the process ends, with what an operator is to do |

The code has no variable for these states: the generator `PartitionJoiner._rule_w` stands in one of them.

Read `role` (which makes all parts), `loop`, `partition`, then what the steps use: `log_tail` (where the log ends, by
hints), `log_beginning` (a log without marks, or without an example), `inputs` with `bad_records`, `attempt_writer`. How
windows close at the end of a partition is in `stream_clock` (where the stream is, and guesses) and `ticks` (the
brokers' clock, and which ticks the next mark closes); `click_silence` is the rule by which clicks are waited for.
`made_with` is what an error can say of settings, `retention` how long a resume point will do. `progress`, which has
what the next owner of a partition is told, `report` and `watches` tell others how far it has come.
"""
