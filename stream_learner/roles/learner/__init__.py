"""The learner: from the training log to checkpoints, copies of them, and published models.

    training log
         |   LogFollower          accepted ticks of all partitions, in the order (tick, partition)
         v
    LearnedModel                  folds each tick once; one for each model, all of them from one read of the log
         |
         +--> CheckpointSchedule --> Checkpoints --> state directory           every learner
         |                                |
         |                                +--> CopySchedule --> CopyWriter --> <model>.checkpoints     who leads
         |
         +--> PublicationSchedule --> Publication --> <model>.snapshots                                who leads

The model is a function of the log: `LogFollower` alone decides what is folded, and in which order. The clock decides
only when something is written, always between two ticks. So a learner may lose what it wrote, and fold it again to the
same bits. Each of the three outputs has a protocol, whose docstring has its steps and what a crash after each of them
leaves (`adapters/rocksdb/store.py`, `publication.py`, `copies/writer.py`), and a schedule, which decides when a step is
taken.

**Who leads.** Several learners may fold one model; one of them leads, which is to publish and to copy checkpoints. The
lease, a consumer group, says whose turn it is (`election.py`). What keeps two learners from publishing is not the
lease: whoever begins to lead initialises the publisher's transactional id, and Kafka then refuses what the one before
sends (`leadership.py`). The period in which a learner leads is a term.

| state     | event                                           | next      | what is done                              |
|-----------|-------------------------------------------------|-----------|-------------------------------------------|
| follows   | `learn`, `backfill`: the state is loaded        | leads     | begin a term (below)                      |
| follows   | `--standby`: caught up with the log             | candidate | ask for the lease                         |
| candidate | holds the lease                                 | leads     | begin a term: this is a take-over         |
| candidate | holds the lease, but brokers do not answer      | candidate | try again a second later                  |
| leads     | `--standby`: lost the lease                     | candidate | end the term: drop both producers         |
| candidate | slept when it lost it, and another one holds it | ended     | raise Fenced, which names the holder      |
| leads     | `learn`: does not get the lease, or loses it    | leads     | nothing: it asks so that standbys wait    |
| leads     | another learner fenced one of its producers     | ended     | raise Fenced, which names the holder      |
| any       | told to stop                                    | ended     | publish if it leads; end the term; give   |
|           |                                                 |           | the lease up; write the last checkpoint   |

"Caught up" means that it has read as far as the log went at its start. To begin a term is to fence whoever published,
to read the last version in the topic, to fence whoever copied, and from then on to publish beyond that version.

Read `role.py` (the loop) and `model.py`, then `log_follower.py`, `checkpoints.py` and `publication.py`. `recovery.py`
finds the state at a start; `row_index.py` is for models larger than memory. `history.py` keeps checkpoints by their
age, and `state_swap.py` puts one of them in the place of the state (`operations/rewind.py`).
"""
