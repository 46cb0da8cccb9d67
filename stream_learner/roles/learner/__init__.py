"""The learner: from the training log to checkpoints and published models."""
