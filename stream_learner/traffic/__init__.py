"""Synthetic impressions and clicks, for the demo, the tests and the benchmarks.

`model` makes events as JSON bytes in the order of their arrival, from a known logistic model, and tells what the best
possible model would lose on them. `shape` has the parameters of such traffic. `benchmark` makes large batches fast, for
measurements. Nothing here reads a clock, talks to a broker or imports another package of ours: a producer paces the
events and sends them.
"""

from stream_learner.traffic.benchmark import (
    benchmark_clicks,
    benchmark_fields,
    benchmark_id,
    benchmark_impressions,
)
from stream_learner.traffic.model import BestPossible, Chunk, Emitted, Event, TrafficModel
from stream_learner.traffic.shape import DEMO, REALISTIC, Field, TrafficShape

__all__ = [
    "DEMO",
    "REALISTIC",
    "BestPossible",
    "Chunk",
    "Emitted",
    "Event",
    "Field",
    "TrafficModel",
    "TrafficShape",
    "benchmark_clicks",
    "benchmark_fields",
    "benchmark_id",
    "benchmark_impressions",
]
