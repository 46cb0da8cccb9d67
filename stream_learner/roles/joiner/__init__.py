"""The joiner: from the input topics to the training log."""
