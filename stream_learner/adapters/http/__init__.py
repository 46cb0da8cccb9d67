"""Predictions over HTTP: the V1 protocol of TensorFlow Serving and KServe, and the Open Inference Protocol (V2)."""
