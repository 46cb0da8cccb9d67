"""What a model takes at a rate: cores, memory, disk, partitions. `docs/performance.md` has the same for a billion
impressions a day, made by these functions, and says how the prices were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stream_learner.core.model.table.bounded import PROCESS_BYTES
from stream_learner.operations.doctor.times import span
from stream_learner.wording import count_of

DAY_S = 86_400
PEAK = 3
"""The busiest moment over the mean of the day."""
CLICK_BYTES, ID_ENTRY_BYTES = 32, 16
ID_FULL_LEAST = 1 / 5
"""A part of an id table that is three quarters full is made anew, at the least a fifth full of what is alive."""
DEDUPE_MORE = 1 / 8
SCORER_ROW_BYTES, SCORER_FULL = 16, 0.75
SNAPSHOT_ROW_BYTES, CHECKPOINT_ROW_BYTES = 12, 32
PAGES_AND_DELTAS = 2
"""Compacted topics hold pages, and deltas of about as many rows."""
BUSY = 0.5
"""The share of a core that a partition may take at the peak: a joiner that was away must be able to catch up."""


@dataclass(frozen=True)
class Prices:
    """What an impression of `features` features and `event_bytes` bytes takes, as `make bench` has measured it.

    join_ns, learn_ns: processor time of joiner and learner (`peers`). brokers_ns: of three brokers that keep three
    copies (`partitions`), None if not known. row_bytes: memory of a learner for a feature, with FTRL-Proximal
    (`growth`, ten million features). example_bytes: in the training log, in records of 1,000 (`codec`).
    """

    join_ns: float = 1_699
    learn_ns: float = 686
    brokers_ns: float | None = 12_478
    row_bytes: float = 46
    example_bytes: float = 188
    features: int = 40
    event_bytes: float = 591
    copies: int = 3


@dataclass(frozen=True)
class Traffic:
    """What a model has to do. a_s: impressions a second, the mean of the day. event_bytes: of one. features: of an
    example, the bias included. model_features: different ones. The rest are the defaults of the configuration, with
    inputs kept for two days, and three replicas.
    """

    a_s: float
    event_bytes: float
    features: float
    model_features: float
    click_share: float = 0.02
    window_s: float = 1_800
    skew_s: float = 5
    lateness_s: float = 600
    dedupe_s: float = 300
    input_days: float = 2
    log_days: float = 7
    replicas: int = 3


class Need(NamedTuple):
    """An amount of cores, bytes or partitions, and how it comes about. grows: whether it is `PEAK` times as much at the
    peak."""

    what: str
    how: str
    size: float
    unit: Literal["cores", "bytes", "partitions"]
    grows: bool = False


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


def amount(size: float) -> str:
    """A number of bytes with a unit, three digits that mean something.

    >>> amount(1_500), amount(335_544_320)
    ('1.5 kB', '336 MB')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"


def cores(ns: float, a_s: float) -> float:
    """Cores that are busy with so many impressions a second."""
    return ns * a_s / 1e9


def ids_bytes(ids: float) -> float:
    """Most memory of an id table with so many ids."""
    return ids * ID_ENTRY_BYTES / ID_FULL_LEAST


def remembered_clicks(traffic: Traffic) -> float:
    """Clicks that may still count, at all joiners together."""
    return traffic.a_s * traffic.click_share * (traffic.window_s + traffic.skew_s + traffic.lateness_s)


def click_memory_bytes(traffic: Traffic) -> float:
    """Most memory that all joiners together need for the clicks that may still count."""
    clicks = remembered_clicks(traffic)
    return clicks * CLICK_BYTES + ids_bytes(clicks)


def dedupe_memory_bytes(traffic: Traffic) -> float:
    """Most memory that all joiners together need for the ids seen lately."""
    return ids_bytes(traffic.a_s * traffic.dedupe_s * (1 + DEDUPE_MORE))


def stored(traffic: Traffic, prices: Prices) -> list[Product]:
    """Bytes in memory of a learner and a scorer, and on the disks of the brokers."""
    model, events = (traffic.model_features, "features"), (round(traffic.a_s * DAY_S), "a day")
    copies = traffic.replicas, "replica" if traffic.replicas == 1 else "replicas"
    both = PAGES_AND_DELTAS, "for pages and deltas"
    example_bytes = prices.example_bytes * traffic.features / prices.features
    scorer_row = (SCORER_ROW_BYTES / SCORER_FULL, "bytes")
    of_inputs, of_log = (traffic.input_days, "days"), (traffic.log_days, "days")
    return [
        Product("learner: memory", (model, (round(prices.row_bytes), "bytes"))),
        Product("scorer: memory", (model, scorer_row)),
        Product("brokers: impressions", (events, (round(traffic.event_bytes), "bytes"), of_inputs, copies)),
        Product("brokers: training log", (events, (round(example_bytes), "bytes"), of_log, copies)),
        Product("brokers: snapshots", (model, (SNAPSHOT_ROW_BYTES, "bytes"), both, copies)),
        Product("brokers: checkpoints", (model, (CHECKPOINT_ROW_BYTES, "bytes"), both, copies)),
    ]


def needs(traffic: Traffic, prices: Prices = Prices()) -> list[Need]:
    """What joiners, learner, scorers and brokers take.

    Time grows with the bytes and the features of an impression; one that is smaller than the measured one is counted
    as that one. A learner is one core, whatever it needs.
    """
    by_features = max(traffic.features / prices.features, 1)
    by_bytes = max(traffic.event_bytes / prices.event_bytes, 1)
    join_ns = prices.join_ns * max(by_features, by_bytes)
    found = [*_cores(traffic, {"joiners: cores": join_ns, "learner: cores": prices.learn_ns * by_features})]
    if prices.brokers_ns is not None:
        ns = prices.brokers_ns * by_bytes * traffic.replicas / prices.copies
        found += _cores(traffic, {"brokers: cores": ns}, f", {count_of(traffic.replicas, 'copy', 'copies')}")
    partitions = max(math.ceil(cores(join_ns, traffic.a_s) * PEAK / BUSY), 1)
    found.append(
        Need("partitions: at the least", "half a joiner's core for each at the peak", partitions, "partitions")
    )
    how = f"clicks and ids of a window of {span(traffic.window_s * 1000)}"
    memory_bytes = click_memory_bytes(traffic) + dedupe_memory_bytes(traffic)
    found.append(Need("joiners: memory", how, memory_bytes, "bytes", grows=True))
    found += [Need(one.what, one.how, one.size, "bytes") for one in stored(traffic, prices)]
    besides = "libraries, kernels, Kafka's client, about"
    return [*found, Need("each process: memory besides", besides, PROCESS_BYTES, "bytes")]


def _cores(traffic: Traffic, each: dict[str, float], more: str = "") -> Iterable[Need]:
    for what, ns in each.items():
        yield Need(what, f"{ns:,.0f} ns an impression{more}", cores(ns, traffic.a_s), "cores", grows=True)
