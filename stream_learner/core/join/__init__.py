"""The join of one partition: impressions and clicks become examples, tick by tick.

`docs/join-rules.md` has the rules and the words; here is how the state (`JoinState`, in `state.py`) implements them.

**Two logs, three positions in each.** All that the join knows lies between offsets of its two input partitions:

    impressions      remembered_from          next               position
       ──────────────────┼──────────────────────┼──────────────────┼──────────▶ offset
           forgotten     │ only ids, to know    │ read, and wait   │ not read
                         │ the duplicates       │ for their tick   │ yet

    clicks           first_offset           cursor             position
       ──────────────────┼──────────────────────┼──────────────────┼──────────▶ offset
           forgotten,    │ remembered: time,    │ read ahead of    │ not read
           outcome final │ value, code          │ their tick       │ yet

Reading moves `position`. A tick moves the two others: the new `next` is its *border*, the new `cursor` its *click
cursor*. `impressions.py` holds the upper log, `click_memory.py` and `clicks_ahead.py` the two parts of the lower one.

**Rows and log time.** One wrong clock must not close a tick. So no event is believed alone: the *row* of an event is
the event and the next `agree` - 1 ones, its *least time* the smallest of their times. Log time is the largest least
time so far. With `agree` = 3, and one clock that is far ahead:

    offset       0     1     2     3     4     5
    time        10    11   999    12    13    14
    least time  10    11    12    12     -     -     the last rows are not complete yet
    log time    10    11    12    12                 999 has moved nothing

A row is complete only when its last event has been read; then the log time of its *first* event is known. `log_time.py`
keeps it up to date for each input as records are added.

**Cutting.** `next_cut` looks at no record's content but its time. A tick may close when log time (or, at the end of a
partition, the stream's own clock) has passed its end in the clicks, and its end - window in the impressions. All ticks
in this folder are of *stream time*, by which windows close; those of the log go by another clock where it closes them:

    event time                 end - window                end
      ──────────────────────────────┼─────── window ────────┼──────────────────────────▶
       impressions: the border is   │                       │  clicks: the cursor is the last click
       the first that lies from     │                       │  of the first row that lies wholly
       here on with more than half  │                       │  from here on; those before it have
       of its row; those before it  │                       │  been read for this tick
       are emitted                  │                       │

Ticks are numbered by event time, tick `n` ends at (n + 1) · `tick`; but a `Cut` is nothing but numbers of ticks and the
two offsets. That is the point of it: log time and clock decide *when* a cut is made, and after that the cut alone
decides *what* is emitted. The cut is written into the mark, and whoever makes the tick again (after a restart, or to
check it) takes it from there. Ticks that emit no impression share a cut, a run of ticks.

**Emitting** a cut has three steps, and their order matters:

1. The clicks before the cursor are taken: each becomes a remembered click with a first code.
2. The impressions before the border are decided. Each looks through the remembered clicks of its id (`labels.py`; many
   clicks of one id: `crowded.py`), and matches those that count. The examples are gathered into one block
   (`gather.py`).
3. Clicks that no later impression can need are forgotten, in offset order, and counted by their code. Ids are forgotten
   in steps of an eighth of `dedupe`.

**Beginning again.** A resume point does not hold the state, it says where to read it again: impressions from
`remembered_from`, clicks from `first_offset`. What reading again cannot tell is in the mark: the codes of the
remembered clicks, two bits each; the times with which the last ones went; the steps in which ids are forgotten.

To read: `spec.py`, `log_time.py`, `batches.py`, `clicks_ahead.py`, `click_memory.py`, `labels.py`, `crowded.py`,
`gather.py`, `impressions.py`, `state.py`. The joiner (`roles/joiner/partition.py`) runs the join, and the audit runs it
once more (`operations/audit/examples_again.py`).
"""
