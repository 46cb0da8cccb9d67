"""Copies of checkpoints in `<model>.checkpoints`, so that a lost disk is not a lost model.

A copy is the pieces of one checkpoint, byte for byte as they are in the state directory, and a head that names them.
`schedule.py` decides when the last checkpoint is copied, and `writer.py` copies it, in a thread of its own; only the
learner that leads does so. `restore.py` finds the last complete copy and writes its pieces into a new state directory;
`roles/learner/recovery.py` decides when. The records are laid out in `core/snapshots/checkpoint_copy.py`.
"""
