"""The arithmetic of the pages of performance: what an impression must cost, and what sizes and a billion a day cost.

In: figures of benchmarks. Out: numbers. Nothing here measures, reads a file or makes text. Times are ns an impression
unless a name says otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from stream_learner.operations.doctor.sizing import DAY_S, SNAPSHOT_ROW_BYTES, Prices, Product, Traffic

EVENTS_A_DAY = 1_000_000_000
FEATURES = 40
"""Features of an example, the bias included."""
DECODE_CYCLES = 32
"""Cycles that a field takes to decode now; the chain from field to field, which a prototype did in 38, is broken up."""
FOLD_CYCLES = 14
"""Cycles that a feature takes to fold from the second cache: 160 to 210 ns for 40 at 3.2 GHz, seen in a prototype."""
INPUT_PASSES = 4
"""Copies of an input byte: system to client, client to Python, the batch, the decoder's reading."""
RECORD_PASSES = 6
"""Copies of a byte of the training log: made, handed to the client, to the system; and the same way back."""
IDS = 2
"""Tables that an impression's id is looked up in: ids seen before, clicks."""
REPLICAS = 3
MODEL_FEATURES = 10_000_000
BILLION = Traffic(EVENTS_A_DAY / DAY_S, Prices.event_bytes, FEATURES, MODEL_FEATURES, replicas=REPLICAS)
"""With the defaults of the configuration."""


@dataclass(frozen=True)
class Part:
    """A part of an impression's time, and how it comes about."""

    what: str
    how: str
    ns: float


def limit(
    cycle: float, update: float, bytes_per_ns: float, event_bytes: float, record_bytes: float, rows: float
) -> list[Part]:
    """The least that each step can take with this design, on a machine with these prices."""
    moved = INPUT_PASSES * event_bytes + RECORD_PASSES * record_bytes
    return [
        Part("decode", f"{FEATURES} fields × {DECODE_CYCLES} cycles", FEATURES * DECODE_CYCLES * cycle),
        Part("join", f"{IDS} ids, prefetched", IDS * update),
        Part(
            "bytes through memory",
            f"{INPUT_PASSES} × {event_bytes:.0f} of the event, {RECORD_PASSES} × {record_bytes:.0f} of the log",
            moved / bytes_per_ns,
        ),
        Part("rows of the model", f"{rows:.1f} × found and written back, prefetched", 2 * rows * update),
        Part("fold", f"{FEATURES} features × {FOLD_CYCLES} cycles", FEATURES * FOLD_CYCLES * cycle),
    ]


def spent(whole: float, parts: Mapping[str, float], rest: str) -> list[Part]:
    """The parts of a measured whole, and what of it they leave."""
    found = [Part(what, "measured alone", ns) for what, ns in parts.items()]
    return [*found, Part(rest, "what is left", whole - sum(parts.values()))]


def waiting_bytes(traffic: Traffic) -> float:
    """Bytes of impressions that must be in Kafka for a joiner to begin again, one copy."""
    return traffic.a_s * (traffic.window_s + traffic.dedupe_s) * traffic.event_bytes


def record_bytes(examples: float, by_size: Mapping[int, float]) -> float:
    """Bytes an example in records of so many, between those measured by the logarithm of the size."""
    sizes = sorted(by_size)
    if examples <= sizes[0]:
        return by_size[sizes[0]]
    for low, high in itertools.pairwise(sizes):
        if examples <= high:
            share = math.log(examples / low) / math.log(high / low)
            return by_size[low] + share * (by_size[high] - by_size[low])
    return by_size[sizes[-1]]


def throughput_a_s(joiners: int, join: float, learn: float) -> tuple[float, str]:
    """Impressions a second of so many joiners on a core each and one learner, and who sets the limit."""
    joined, learned = joiners * 1e9 / join, 1e9 / learn
    return (joined, "joiners") if joined < learned else (learned, "learner")


def network(event_bytes: float, log_bytes: float, rows: float) -> list[Product]:
    """Bytes a second on the network, not compressed: to a broker, from it to those with copies, and to one reader."""
    rate, ways = (round(BILLION.a_s), "a second"), (REPLICAS + 1, "ways")
    return [
        Product("network a second: impressions", (rate, (round(event_bytes), "bytes"), ways)),
        Product("network a second: training log", (rate, (round(log_bytes), "bytes"), ways)),
        Product("network a second: to each scorer", (rate, (round(rows, 1), "rows"), (SNAPSHOT_ROW_BYTES, "bytes"))),
    ]
