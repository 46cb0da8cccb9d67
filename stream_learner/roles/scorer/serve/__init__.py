"""Predictions over HTTP: the processes, and the models that they serve."""
