"""Synthetic impressions and clicks, for the demo, the tests and the benchmarks.

In: a seed and the shape of the traffic. Out: events as JSON bytes in the order of their arrival, and what
the best possible model would have lost on them. Nothing here may read a clock, talk to a broker or import
the roles: a producer paces the chunks and sends them.
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
