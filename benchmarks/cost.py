"""The arithmetic of `docs/performance.md`: what an impression must cost, and what sizes and a billion a day cost.

In: figures of benchmarks. Out: numbers. Nothing here measures, reads a file or makes text. Times are ns an impression
unless a name says otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

EVENTS_A_DAY = 1_000_000_000
DAY_S = 86_400
PEAK = 3
"""The busiest moment over the mean of the day."""
CLICK_SHARE = 0.02
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
CLICK_BYTES = 32
ID_ENTRY_BYTES = 16
ID_FULL_LEAST = 1 / 5
"""A part of an id table that is three quarters full is made anew, at the least a fifth full of what is alive."""
SKEW_S, LATENESS_S, DEDUPE_S, DEDUPE_MORE = 5, 600, 300, 1 / 8
"""The join's defaults."""
REPLICAS = 3
INPUT_DAYS, LOG_DAYS = 2, 7
MODEL_FEATURES = 10_000_000
SCORER_ROW_BYTES, SCORER_FULL = 16, 0.75
SNAPSHOT_ROW_BYTES, CHECKPOINT_ROW_BYTES = 12, 32
PAGES_AND_DELTAS = 2
"""Compacted topics hold pages, and deltas of about as many rows."""


@dataclass(frozen=True)
class Part:
    """A part of an impression's time, and how it comes about."""

    what: str
    how: str
    ns: float


@dataclass(frozen=True)
class Product:
    """An amount, and the numbers that it is the product of, each with its unit."""

    what: str
    factors: tuple[tuple[float, str], ...]

    @property
    def how(self) -> str:
        """The product as one would write it."""
        return " × ".join(
            f"{number:,.4g} {unit}" if number < 1000 else f"{number:,.0f} {unit}" for number, unit in self.factors
        )

    @property
    def size(self) -> float:
        """The amount."""
        return math.prod(number for number, _ in self.factors)


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


def rate_a_s(events_a_day: float = EVENTS_A_DAY) -> float:
    """Impressions a second, the mean of the day."""
    return events_a_day / DAY_S


def ids_bytes(ids: float) -> float:
    """Most memory of an id table with so many ids."""
    return ids * ID_ENTRY_BYTES / ID_FULL_LEAST


def remembered_clicks(window_s: float, a_s: float) -> float:
    """Clicks that may still count, at all joiners together."""
    return a_s * CLICK_SHARE * (window_s + SKEW_S + LATENESS_S)


def click_memory_bytes(window_s: float, a_s: float) -> float:
    """Most memory that all joiners together need for the clicks that may still count."""
    clicks = remembered_clicks(window_s, a_s)
    return clicks * CLICK_BYTES + ids_bytes(clicks)


def dedupe_memory_bytes(a_s: float) -> float:
    """Most memory that all joiners together need for the ids seen lately."""
    return ids_bytes(a_s * DEDUPE_S * (1 + DEDUPE_MORE))


def waiting_bytes(window_s: float, a_s: float, event_bytes: float) -> float:
    """Bytes of impressions that must be in Kafka for a joiner to begin again, one copy."""
    return a_s * (window_s + DEDUPE_S) * event_bytes


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


def cores(ns: float, a_s: float) -> float:
    """Cores that are busy with so many impressions a second."""
    return ns * a_s / 1e9


def stored(event_bytes: float, log_bytes: float, row_bytes: float) -> list[Product]:
    """Bytes in memory of a learner and a scorer, and on the disks of the brokers, of a billion impressions a day."""
    model, events, copies = (MODEL_FEATURES, "features"), (EVENTS_A_DAY, "a day"), (REPLICAS, "replicas")
    both = (PAGES_AND_DELTAS, "for pages and deltas")
    scorer_row = (SCORER_ROW_BYTES / SCORER_FULL, "bytes")
    return [
        Product("learner: memory", (model, (round(row_bytes), "bytes"))),
        Product("scorer: memory", (model, scorer_row)),
        Product("brokers: impressions", (events, (round(event_bytes), "bytes"), (INPUT_DAYS, "days"), copies)),
        Product("brokers: training log", (events, (round(log_bytes), "bytes"), (LOG_DAYS, "days"), copies)),
        Product("brokers: snapshots", (model, (SNAPSHOT_ROW_BYTES, "bytes"), both, copies)),
        Product("brokers: checkpoints", (model, (CHECKPOINT_ROW_BYTES, "bytes"), both, copies)),
    ]


def network(event_bytes: float, log_bytes: float, rows: float) -> list[Product]:
    """Bytes a second on the network, not compressed: to a broker, from it to those with copies, and to one reader."""
    rate, ways = (round(rate_a_s()), "a second"), (REPLICAS + 1, "ways")
    return [
        Product("network a second: impressions", (rate, (round(event_bytes), "bytes"), ways)),
        Product("network a second: training log", (rate, (round(log_bytes), "bytes"), ways)),
        Product("network a second: to each scorer", (rate, (round(rows, 1), "rows"), (SNAPSHOT_ROW_BYTES, "bytes"))),
    ]
