"""The pure part: bytes and numbers in, values out.

Read in the order of the data: events, features, join, examples, training_log, optimizers, weights,
learner, snapshots, replica. Nothing here does I/O, asks for the time, starts a thread, or logs.
"""
