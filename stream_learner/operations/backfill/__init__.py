"""`backfill`: train another model from the topics, or from the training log of a model that exists.

A backfill is joiners and a learner under another name, with an end. It has no state of its own but a note of what it
was begun as: joiners go on by the training log, learners by their checkpoints, so the same command goes on after a
crash.

Read `plan` (what is to be done), `run` (the steps), `record` (the note), `joiners` (further joiners, as processes),
`progress` and `result` (what is shown). With `--from-log` nothing is joined: `source` checks that the log is what the
plan takes it for, and `feature_subset` finds which keys to leave out of it for a model with fewer features.
"""
