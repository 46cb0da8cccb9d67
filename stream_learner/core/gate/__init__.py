"""The gate: whether a tick may be learned, judged by what the training log has taught before it.

A tick has counts: examples and those that are positive, clicks by their outcome, impressions by theirs, and of a small
sample the sums of what the model predicts and of the labels. A *bound* holds *found* events against what they are a
part of, its *exposure*: clicked examples against examples, orphans against clicks, labels against predictions, examples
against time.

What is usual. The share found / exposure is estimated over the last hour, or over the last 150 events where they take
longer; a slow estimate over days stands beside it. What is expected of a tick is its exposure times the share.

How sure it is. For each alternative ("no clicks any more": 0.05 times what is usual, against 0.6 times and more) the
log-likelihood ratio of the counts is summed from tick to tick, and begins at 0 again where it falls below:

    S = max(0, S + found ln(wrong / usual) - expected (wrong - usual))

So S is the evidence of those last ticks that speak most for the alternative, however long they are: there is no window
to choose, and what came before the change does not hide it. The tick is out of bounds where S passes

    limit = dispersion * ln(events of a year / false alarms of a year)

since chance takes S beyond L with a probability of about exp(-L) for each event. The dispersion is how much more than
chance the minutes of the log have varied; at least 1.

What keeps poison out of the estimates. While S is not 0 the ticks wait: they enter the estimates when the suspicion is
gone, or after hours when nobody held. A tick that is skipped never enters, and what waited goes with it.

What keeps seasons from being poison. Alternatives near to what is usual ("half the clicks") are only tried where the
fast estimate has an hour or so, which follows a day's course; where that has too few events, whole days are held
against the lowest of the last seven. Fewer clicks for more examples count only up to 2.2 times the usual clicks of the
time: a campaign that nobody clicks takes none away. Where the traffic itself changes (a launch begins or ends, the log
pauses), what is usual is learned anew before anything fine is said; while it rises, evidence is summed and breaks no
bound yet. `bounds` has each of these numbers with its reason, `docs/evidence-gate.md` what they hold.

Why it is the same everywhere. Counts are whole numbers, so neither the cut into records nor the order of examples
changes a sum; products of the sample are rounded one by one before they are added. The sample goes by the ids' hashes.
The rest is additions, multiplications, divisions, and the logarithm of `core.machine.arithmetic`. `judge` changes
nothing that `state` shows, so a learner that is started anew while it holds, holds again.

Read `bounds`, then `steps` (the arithmetic of a tick), `days` and `series` (bounds through the log), then `gate` (all
of them, from records and marks). `sample` chooses the examples that are predicted, `decisions` has what operators
decide about ticks, `publication` the bounds before a publication.
"""
