"""The model: the training log folded into weights, and how good the predictions were on the way.

The fold goes through the accepted records of the training log in one order: by tick, partition, sequence number. Each
example is predicted with the weights of that moment, then learned from. The result depends on the examples and on
their order only: not on how they are cut into records, on the machine, or on restarts. `digest` is a checksum of the
result, so that two learners can be compared by 64 bits.

A record has a dictionary of keys, and examples that name features by their index in it. `fold` takes it in four steps:

    record        dictionary  k0 k1 k2 k3                    examples  e0: k0 k2   e1: k1 k2 k3   e2: k0 k3
                              |  |  |  |
    1 resolve                 v  v  v  v   each key finds its row in the weight table; a new key gets one
                  table       r7 r2 r9 r4
                              |  |  |  |   the columns are copied ...
                              v  v  v  v
                  local rows  l0 l1 l2 l3  ... side by side, each with room for its weight
    2 fold                    ^  ^  ^  ^
                              e0, e1, e2, one after the other: predict with the local rows, then change them
    3 write back  table       columns that changed go back, with the tick; keys go on the lists of changes,
                              and the digest grows by what changed
    4 observe     progress    the margins of e0, e1, e2, as they were predicted, are counted in the metrics

The table is too large for the processor's cache; the local rows are small enough. So each row is fetched from memory
once for a record, and not once for each example that names it.

Read `fold`, then `table` (the rows), `optimizers` (step 2), `losses`, `progress` (step 4), `digest`. `slices` compares
two models by their metrics, for a promotion. The learner (`roles.learner`) calls `fold.Learner`.
"""
