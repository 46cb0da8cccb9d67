"""The model: the fold of the training log into weights."""
