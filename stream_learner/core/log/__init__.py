"""The training log: its records, and the rules by which they are read (R) and written (W).

The log is where joiners and learners meet, and the only place where a tick is committed: no transaction, no lock and no
second topic says which ticks count. The records themselves do.

**A record** is 40 bytes of header (`header.py`) and a body. There are four kinds:

    examples   columns of the examples of one tick, or of a part of them       `examples.py`, `dictionary.py`
    mark       the end of one or more ticks: positions in the inputs, counts   `marks.py`
    codes      click codes of a resume point that is too large for one mark    `marks.py`
    skip       an operator says that a damaged record is passed over           `skips.py`

The header says who wrote the record: an *attempt*, that is one joiner from one assignment of the partition on, under a
random number. An attempt writes tick after tick: the records of the tick, numbered from 0, then the mark, which says
how many they are and names the mark before it. So accepted marks form a chain, each with its predecessor and the next
tick.

**Rule R** (`rule_r.py`). Several attempts may write to one partition for a while, since a joiner that has lost the
partition may not know it yet. Their records lie among each other. Every reader holds the last accepted mark, and
accepts the first mark that

- names it as its predecessor,
- begins with the next tick,
- and whose attempt's records of the tick are all there.

Everything else is ignored, and counted. Here B has taken the partition over from A, which goes on writing. A5 is the
mark of A up to tick 5:

    offset  attempt  record                    rule R                                        last accepted
      40       A     mark of 5, after A4       accepted                                           A5
      41       A     examples of 6             held until A's mark                                A5
      42       B     examples of 6             held until B's mark                                A5
      43       B     mark of 6, after A5       accepted; 41 can count no more, and is ignored     B6
      44       A     mark of 6, after A5       ignored: the last mark is B6                       B6
      45       A     examples of 7             held                                               B6
      46       A     mark of 7, after A6       ignored, and 45 with it                            B6
      47       B     mark of 7, after B6       accepted, without examples                         B7

Both made tick 6, and one of them counts: the one whose mark came first. Which one that is depends on nothing but the
records up to the mark. So all readers accept the same marks, wherever they began and however fast they read.

**Rule W** (`rule_w.py`). A writer learns from the offsets that the broker acknowledges whether somebody else writes. It
knows the log's end when its attempt begins, so it knows each offset to expect. One that is not the expected one is
*foreign*: it reads the log up to there by rule R, and asks whether its own marks still count. In the picture:

- B began when the log ended at 41, so it expects 41 and gets 42. It reads on: the last accepted mark is still A5, from
  which it began. It goes on.
- A expects 42 for its mark of 6 and gets 44. It reads on: B6 is accepted, not its own A6. It drops the attempt, and
  would begin a new one after B6 if the partition were still its own.
- B expects 44 for its mark of 7 and gets 47. It reads on: the last accepted mark is its own B7. It goes on.

A tick is durable for a writer once its mark is acknowledged, and no foreign offset is left to be looked into.

**The balance** (`balance.py`): marks count what became of each input record, and the counts must add up.

To read: `header.py`, `marks.py`, `examples.py` with `dictionary.py`, `skips.py`, `rule_r.py`, `rule_w.py`,
`balance.py`. Beside them `subset.py` leaves features out of records, for a learner or an evaluation, and `compare.py`
compares ticks of two logs, for `diff` and the audit. `docs/formats.md` describes the bytes for other languages.
"""
