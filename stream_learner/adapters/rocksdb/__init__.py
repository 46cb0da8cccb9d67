"""RocksDB: the state directory of a learner. No other package uses rocksdict.

How a checkpoint is laid out
----------------------------

The model's keys are split into shards. Of each shard a checkpoint consists of pages and deltas, as the snapshots for
scorers do (`core/snapshots/pages.py`), but with all columns of the optimizer's state:

    page     all rows whose keys begin with a prefix, as of one checkpoint
    delta    the rows that one checkpoint changed, in parts

Pages and parts of deltas are called *pieces*. Each checkpoint has the next *sequence* number, and writes pieces under
keys with that number: the delta of what has changed, and a few pages that replace old ones. A row is what the newest
piece says that has it. The version record of a shard lists the pieces that count; the head holds positions, tick and
scalars.

    column family   key                           value
    -------------   ---------------------------   -------------------------------------------------------------
    shard-000 ...   "p" sequence "d" part         part of a delta
                    "p" sequence "p" prefix       page
                    "version"                     version record: which pieces count
    default         "head"                        head record
                    "identity"                    whose state this is (JSON)
                    "lineage"                     the name of this directory, and its last copies (JSON)
                    "rows"                        the checkpoint that the index of rows stands for (JSON)
    rows            key of a row                  the row; only for models larger than memory

What makes a checkpoint count
-----------------------------

                pieces of sequence 8, not synced           one synced batch: head and version records say 8,
                in steps of at most 1 MiB                  pieces that only 7 needed are deleted
    ---- 7 --------+--------------+------------+----------------------+---------- 8 ----
                 begin          step   ...   step                  commit

Pieces come before the head in one write-ahead log, so the sync that makes the head durable makes them durable too.
After a crash before the commit the head still says 7. The next open deletes all pieces with a higher sequence, and the
checkpoint 7 is whole: nothing that it needs is deleted before the head says 8. The docstring of `store.py` has the
steps and what a crash after each leaves.

The files
---------

    layout.py     the keys, and what a checkpoint writes
    store.py      `CheckpointStore`: open, load, begin; `CheckpointWriter`: step, commit
    database.py   options of RocksDB, bounds of its memory, what its errors mean; `StoreParts`
    row_index.py  single rows by key, for models larger than memory; made anew from the pieces if it is lost
    history.py    checkpoints kept as databases of their own, to go back to
    copy.py       a checkpoint held still while it is copied to Kafka, and one written back

Called by the learner (`roles/learner/checkpoints.py`, `row_index.py`, `copies/`).
"""
