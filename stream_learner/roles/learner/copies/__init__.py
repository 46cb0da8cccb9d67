"""Copies of checkpoints in a topic: written, scheduled, restored."""
