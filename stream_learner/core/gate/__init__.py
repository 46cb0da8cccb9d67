"""The gate: whether a tick may be learned, judged by what the training log has taught before it."""
