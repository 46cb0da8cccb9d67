"""The weight table: the rows of a model in memory, between two checkpoints.

A row is what an optimizer keeps for one feature: the feature's 64-bit key, some float64 columns, and `touched`, the
tick in which the columns changed last. The fold looks up the features of a record, changes some of their rows, and
the rows that changed go to the next checkpoint and to the next publication. So the table has four jobs: find rows
fast, hand out rows in the order of their keys, know which rows changed since when, and stay within its memory.

**Sub-tables, slots, probing.** Keys are hashes already, so their bits say where a row belongs:

    key          | 8 bits: sub-table | 32 bits: home slot | 24 bits |

    directory    0    1    2    ...   255          for each sub-table: address, capacity, slots, rows allowed, rows
                      |
                      v
    sub-table    |    | a  |    | b  | c  | d  |    |  ...  |    | e  | f  |    |
                 0              ^ home slot of b and c             ^
                                  c found it taken: the next       | the capacity ends here;
                                  empty slot is its slot           | spare slots follow

A slot is as long as a row. The home slot is the next 32 bits of the key times the capacity, divided by 2^32: larger
keys have larger home slots. A key is searched from its home slot on, until it is found, or an empty slot shows that
the table does not have it (linear probing). What runs past the capacity goes to spare slots; so a search never wraps
around, and slots rise with keys but for a few neighbours. That is why all rows whose keys begin with the same bits, a
page of a snapshot, are read in order from one stretch of memory (`WeightTable.rows_with_prefix`).

A sub-table is at most four fifths full. A full one moves to larger room, alone, as `regions` explains: no second copy
of the whole table is ever in memory, and no record waits for all of it to move.

**What changed.** There are two readers of changes, the checkpoint and the publication, each with a list of keys and the
tick `since` which it lists them:

    row with touched <= since    its next change puts its key on the list
    row with touched > since     its key is on the list already

So a key is on a list once, and taking the changes costs as much as there are changes, not rows. After a restart the
lists are made by one scan of `touched`. The digest of all rows is kept likewise, by what each change adds to it.

**The bounded table.** With `learner.memory` the rows that do not fit are left to the *cold rows*, an index on disk that
every checkpoint is written to (`bounded.ColdRows`). The index holds all rows as of its tick c:

                          checkpoint
    rows in memory  ---------------------->  cold rows, as of tick c
      touched > c     dirty: must stay
      touched <= c    clean: may leave
                    <----------------------
                      fetched when a record names its key

A row is in memory, in the cold rows, or in both; memory is never older. Where a sub-table is full and the table may not
grow, the clean rows touched longest ago leave it, a quarter of its rows at once (`eviction`). Room is made for all keys
of a record before any row is fetched; else a row could be fetched and leave before it is used. If too many rows are
dirty, the fold waits for a checkpoint (`BoundedWeightTable.must_checkpoint`).

Read `rows`, `kernels`, `changes`, `regions`, `table`, then `eviction` and `bounded`. `core.model.fold` writes to the
table; `roles.learner` takes the changes.
"""
