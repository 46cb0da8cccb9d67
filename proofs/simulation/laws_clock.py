"""How far the stream can have been by a joiner's clock: bounds on S (docs/stream-clock.md).

They follow the page's sentences, not the code: what one sentence says the clock never does. This file must never work
S out; where the page leaves it to what counts as an arrival, the bound is that of all that was read.
"""

from __future__ import annotations

from proofs.simulation.joiners import World, Writer
from proofs.simulation.process import CLICKS, IMPRESSIONS, Process, Read

FEW = 3
"""So many arrivals are enough to go by."""
GAPS = 8
"""So many gaps together are the longest usual silence."""
REPORTS = 15
"""The brokers' clock is the median of so many reports."""


class ClockBounds:
    """Bounds on the clock of one partition."""

    NO_BUFFER_IS_FULL_BYTES = 1 << 20

    def __init__(self, world: World, partition: int) -> None:
        self._world, self._partition = world, partition

    def allow(self, writer: Writer, by: int, asked: int, stream_ms: int) -> str:
        """Why S can have been `stream_ms` for an answer that was asked for at a time, and used before `by`; "" if not.

        All times but `stream_ms` are the world's.
        """
        world, process = self._world, writer.process
        brokers_ms = self.brokers_ahead_ms(writer, by)
        # S is never ahead of the brokers' clock; before a report nothing closes by the clock.
        if not world.close_idle or brokers_ms is None or stream_ms > asked + brokers_ms - world.grace_ms:
            return ""
        patience_ms = min(world.spec.lateness_ms, world.idle_after_ms)
        opened = max((at for at in process.opened[self._partition] if at <= writer.began), default=0)
        arrived = self._arrived(process, IMPRESSIONS, asked)
        begun = process.recalled[self._partition]
        recalled = any(remembers for at, remembers in begun if at <= by)
        knows_nothing = len(arrived) < FEW and not [remembers for at, remembers in begun if at <= writer.began][-1]
        if knows_nothing and asked - self._last_read(process, opened, asked) >= patience_ms:
            return "nothing comes"  # not one record for so long: the brokers' clock counts
        if len(self._reads(process, IMPRESSIONS, by)) < FEW and not recalled:
            return ""  # the lag is not known
        waited_ms = asked - min(process.opened[self._partition])
        if len(self._reads(process, CLICKS, by)) < FEW and not recalled and waited_ms < world.idle_after_ms:
            return ""  # the delay of clicks is not known
        if world.buffer_bytes < self.NO_BUFFER_IS_FULL_BYTES:
            return "arrivals, perhaps of clicks alone"
        recalled &= len(arrived) < FEW
        lag_offset = self._lag_offset(process, by, recalled=recalled)
        if stream_ms + world.grace_ms <= lag_offset + self._usual_until(process, asked, by, recalled=recalled):
            return "memory" if recalled else "arrivals"
        waited = stream_ms + world.grace_ms <= lag_offset + asked - world.idle_after_ms
        return "idle_after is over" if waited else ""

    def brokers_ahead_ms(self, writer: Writer, by: int) -> int | None:
        """How far the brokers' clock can have been ahead of the world's for an attempt: the largest median of reports
        from its beginning on; None before a report.
        """
        found = writer.process.assumed
        reports = [ahead for _, ahead in writer.process.reports]
        for number, (at, _) in enumerate(writer.process.reports):
            if at > by:
                break
            last = sorted(reports[max(number - REPORTS + 1, 0) : number + 1])
            median = last[len(last) // 2]
            found = median if found is None or at < writer.began else max(found, median)
        return found

    def brokers_between_ms(self, writer: Writer, by: int) -> tuple[int, int] | None:
        """Between what it can have been ahead, with all reports up to `by`; None before one."""
        process = writer.process
        known = [ahead for at, ahead in process.reports if at <= by]
        known += [] if process.assumed is None else [process.assumed]
        return (min(known), max(known)) if known else None

    def _arrived(self, process: Process, topic: str, asked: int) -> list[int]:
        """When the records were read, before a question, that surely were arrivals."""
        return [one.at for one in self._reads(process, topic, asked - 1) if one.arrived]

    def _reads(self, process: Process, topic: str, by: int) -> list[Read]:
        """What a process had read of an input, in all its partitions."""
        reads = [read for p in range(self._world.partitions) for read in process.reads[topic, p] if read.at <= by]
        return sorted(reads)

    def _last_read(self, process: Process, opened: int, asked: int) -> int:
        """When the last record of the partition was read before the question, at the earliest its inputs' opening."""
        reads = [read for topic in (IMPRESSIONS, CLICKS) for read in process.reads[topic, self._partition]]
        return max([opened, *(read.at for read in reads if read.at < asked)])

    def _lag_offset(self, process: Process, by: int, *, recalled: bool) -> int:
        """How far impressions were ahead of the time at which they were read: of all but one, at the most.

        A lag that is remembered is counted from the brokers' clock, which may have been another one then.
        """
        found: list[int] = []
        for one in self._world.everyone if recalled else [process]:
            found += sorted(read.time_ms - read.at for read in self._reads(one, IMPRESSIONS, by))[-2:-1]
        return max(found, default=-by) + (self._shift(by) if recalled else 0)

    def _usual_until(self, process: Process, asked: int, by: int, *, recalled: bool) -> int:
        """Up to when the arrivals say that nothing was silent, at the most: the last eight gaps together."""
        untils = [0]
        for one in self._world.everyone if recalled else [process]:
            for topic in (IMPRESSIONS, CLICKS) if recalled else (IMPRESSIONS,):
                at = [read.at for read in self._reads(one, topic, by)]
                sure = self._arrived(one, topic, asked)[-GAPS - 1 :]
                if at:
                    since = sure[0] if len(sure) > GAPS else at[0]
                    gaps_ms = (at[-1] - since) * GAPS // max(len(sure) - 1, FEW - 1)
                    untils.append(at[-1] + max(gaps_ms, self._world.grace_ms))
        return min(max(untils) + (self._shift(by) if recalled else 0), asked)

    def _shift(self, by: int) -> int:
        """How much the reports of brokers have differed up to a time."""
        ahead = [ahead for one in self._world.everyone for at, ahead in one.reports if at <= by]
        return max(ahead, default=0) - min(ahead, default=0)
