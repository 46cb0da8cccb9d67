"""The snapshots by which a model leaves the learner: pages and deltas, the records that hold them, and a scorer's copy
of the weights.

**Shards and versions.** A model's keys are split by their first bits into shards, one for each partition of
`<model>.snapshots`. A *version* is the model as of a tick. A publication makes one version visible: in every shard it
writes some records, the version record last. The topic is compacted: Kafka keeps the last record of each key.

**Pages and deltas.** A *delta* holds the rows that changed since the publication before. A *page* holds all rows whose
keys begin with certain bits; the pages of a shard cover it exactly, and a page that grows too large is split in two.
Every publication writes its delta and a few pages, those written longest ago:

    publication    5         6         7         8         9
    page 00        .         .         W         .         .         W: written by this publication
    page 01        .         W         .         .         .
    page 10        .         .         .         W         .
    page 11        W         .         .         .         .
    delta          d5        d6        d7        d8        d9        in slot (number mod ring) of a ring of slots

    version 9  =  page 00 of 7, 01 of 6, 10 of 8, 11 of 5, then d6, d7, d8, d9 on top, in this order

A new reader takes the pages that the last version record names and all deltas after the oldest of them. A reader that
has version 8 takes d9. So a publication costs about what changed, and a reader that starts reads about one model.
Before a delta's slot is used again every page has been written, so nobody needs the old delta (`pages`). Checkpoints
are made of the same pages and deltas, with the optimizer's columns in place of weights.

**Whole versions.** A reader may find gaps, damaged records, or a torn publication, whose first records are in the topic
and whose last never will be. `follower` decides for one shard whether a version record stands for a whole version;
`replica` serves the last version that is whole in every shard.

**The replica in two banks.** A scorer predicts in many threads while one thread brings in new versions. No prediction
may mix two versions, and none may wait. So there is one set of keys with two weights each:

    row            key | weight in bank 0 | weight in bank 1

    control block  current bank: 0     readers in bank 0: 3     readers in bank 1: 0     versions of the banks: 8, 7

    writer  1 writes the changes of version 9 into bank 1      readers go on in bank 0
            2 sets version and current bank: 9, bank 1         new readers enter bank 1
            3 waits until bank 0 has no readers                old readers finish with version 8
            4 writes the changes into bank 0 too               both banks are equal again

    reader  a reads which bank is current
            b adds 1 to that bank's readers
            c reads the current bank again: if it is another one, takes its 1 back and begins again at a
            d predicts with the weights of the bank, takes its 1 back

The writer waits for readers, readers never for the writer. Step c is needed: between a and b the writer may have passed
2 and 3 without seeing the reader. In step 1 a new key may need a slot that no reader must find half written: its weight
is written before its key. A sub-table that is full is copied into a larger block, and one word of the directory then
leads readers there; the old block is freed when every reader that could be in it has left (`table`).

Read `rows`, `pages`, `records`, then `follower`, `table`, `kernels`, `replica`; `event_kernels` and `predictor` go from
the bytes of an event to its prediction. `replica_copy` is the file in which a scorer keeps its last version,
`checkpoint_copy` the records of a copied checkpoint. Learners publish by way of `roles.learner.publication`, scorers
read by way of `roles.scorer.replica`.
"""
