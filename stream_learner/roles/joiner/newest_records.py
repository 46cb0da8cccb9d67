"""Looks whether the newest records of an input topic are good again, after too many bad ones were read."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from stream_learner.adapters.kafka import OffsetQueries
from stream_learner.errors import LogTrimmed
from stream_learner.roles.joiner.inputs import InputPlan

NEWEST_RECORDS = 200
"""The number of records that are looked at, over all partitions; fewer than `BAD_SHARE_RECORDS` decide nothing."""
MOST_PARTITIONS = 16


def first_good_offsets(
    plan: InputPlan, queries: OffsetQueries, topic: str, partitions: int, partition: int
) -> Generator[bool, None, dict[int, int] | None]:
    """By partition, the offset from which on the records are good; None where they are not, or too few to tell.

    partitions: of the topic. partition: the one with too many bad records. Which of the newest the joiner
    has read already does not matter: it may have read all there are. Yields while it reads. Raises RetryLater.
    """
    places = [(topic, (partition + i) % partitions) for i in range(min(partitions, MOST_PARTITIONS))]
    ends, earliest = queries.last_stable_offsets(places), queries.earliest(places)
    each = NEWEST_RECORDS // len(places)
    begins = {place: max(ends[place] - each, earliest[place]) for place in places}
    bad = read = 0
    try:
        for place in places:
            of_place = yield from _count(plan, *place, begins[place], ends[place])
            bad, read = bad + of_place[0], read + of_place[1]
    except LogTrimmed:  # retention was quicker; the next bad record makes the joiner look again
        return None
    return {number: begin for (_, number), begin in begins.items()} if plan.bad_share.allows(bad, read) else None


def _count(plan: InputPlan, topic: str, partition: int, begin: int, end: int) -> Generator[bool, None, tuple[int, int]]:
    """The number of bad records from `begin` to before `end`, a stable offset, and the number of all."""
    decode = (plan.click_decoder if topic == plan.clicks_topic else plan.impression_decoder).decode
    bad = read = 0
    with plan.new_reader_beside(
        plan.settings, topic, partition, begin, buffer_bytes=1 << 20, name=f"newest-{partition}"
    ) as reader:
        while reader.position < end:
            batch = reader.read(NEWEST_RECORDS)
            if batch is not None:
                status = decode(batch.data, batch.bounds, batch.record_times_ms).status
                bad, read = bad + int(np.count_nonzero(status)), read + len(status)
            yield batch is not None
    return bad, read
