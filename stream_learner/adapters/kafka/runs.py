"""Runs: consecutive records of one partition as they came from a consumer, and errors between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message

from stream_learner.adapters.kafka.packed_consumer import Messages
from stream_learner.adapters.kafka.raw_batch import Headers, PackedBatch, RawBatch

OWN_ARRAYS = 2
"""A packed run that is smaller than all that came with it by this factor gets columns of its own: it may be held for
long, and must not keep the others' memory."""
_TIME_OF_STAMP = itemgetter(1)


class Run(NamedTuple):
    """Records of one partition, or an error.

    partition: -1 for an error that concerns all. offset: of an error, where it has one. records: None for an error.
    """

    partition: int
    records: RawBatch | None
    error: KafkaError | None = None
    offset: int = 0


def runs_of(messages: list[Message], *, with_keys: bool = False, with_headers: bool = False) -> Iterator[Run]:
    """The runs of messages of the ordinary consumer, in order.

    They hold what the messages carry, not the messages: the garbage collector would look at each of them.
    """
    fails = any(map(Message.error, messages))
    for partition, group in groupby(messages, Message.partition):
        place, of_partition = -1 if partition is None else partition, list(group)
        if not fails:
            yield Run(place, _batch(of_partition, with_keys, with_headers))
            continue
        for failed, piece in groupby(of_partition, lambda message: message.error() is not None):
            if not failed:
                yield Run(place, _batch(list(piece), with_keys, with_headers))
                continue
            for message in piece:
                yield Run(place, None, message.error(), message.offset() or 0)


def _batch(records: list[Message], with_keys: bool, with_headers: bool) -> RawBatch:
    count = len(records)
    times = map(_TIME_OF_STAMP, map(Message.timestamp, records))
    return RawBatch(
        np.fromiter(map(Message.offset, records), np.int64, count),
        np.fromiter(times, np.int64, count),
        list(map(Message.value, records)),
        list(map(Message.key, records)) if with_keys else None,
        list(map(_headers, records)) if with_headers else None,
    )


def _headers(message: Message) -> Headers:
    """A record's headers in order, repeated names included."""
    found = message.headers() or []
    return list(found.items()) if isinstance(found, dict) else [(name, value) for name, value in found]


def packed_runs_of(messages: Messages) -> Iterator[Run]:
    """The runs of messages of the packed consumer, in order; the text of an error is no value."""
    n = len(messages.offsets)
    for (first, end), data in zip(pairwise(messages.starts), messages.data, strict=True):
        partition = int(messages.partitions[first])
        if messages.errors[first]:
            yield Run(partition, None, messages.error(first), int(messages.offsets[first]))
            continue
        offsets, times_ms = messages.offsets[first:end], messages.times_ms[first:end]
        if OWN_ARRAYS * (end - first) < n:
            offsets, times_ms = offsets.copy(), times_ms.copy()
        bounds = messages.bounds[first : end + 1] - messages.bounds[first]
        is_null = None if messages.is_null is None else messages.is_null[first:end]
        yield Run(partition, PackedBatch(offsets, times_ms, data, bounds, is_null))
