"""Finds the keys of a training log that a smaller feature specification would not have made.

Without these keys the examples of the log are those of a join with the smaller specification. Hashes cannot be
reversed, so the impressions that the log was made from are decoded with both specifications, all of them, and the keys
compared. A specification that makes another feature or value of any of them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.kafka import Admin, KafkaSettings, OffsetQueries, PartitionReader, RawBatch
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.events.decoders import Impressions
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.features import names_of_keys
from stream_learner.core.log.subset import FeatureSubset
from stream_learner.errors import ConfigError, LogTrimmed, NotFound
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.log_reader import accepted_ticks
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config

READ_RECORDS = 2_000
WAIT_S = 0.5
BUFFER_BYTES = 16 << 20
FEWEST_TO_MERGE = 1 << 16

Report = Callable[[int, int], None]
"""Called with the impressions read so far, and with how many there are, by their offsets."""


class ImpressionRange(NamedTuple):
    """Offsets [start, end) of a partition; the log was made from `records` of the records there."""

    start: int
    end: int
    records: int


def subset_for(config: Config, source: Config, until_tick: int, report: Report | None = None) -> FeatureSubset | None:
    """The keys to leave out of the log of `source`, up to a tick, for the features of `config`; None for none.

    The features of the log are those that the source has published. Raises ConfigError if those of `config` are
    not a subset, NotFound if the source has published nothing or its log has not come to the tick, LogTrimmed if
    impressions that the log was made from are gone.
    """
    settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.backfill")
    admin = Admin(settings)
    topic = source.snapshots_topic
    published = read_last_publication(settings, admin.offsets, topic, admin.require([topic])[topic].partitions)
    if published.model is None:
        raise NotFound(
            f"{source.model} has published nothing yet, so the features of {source.examples_topic} are not known",
            action="Let its learner run until it has published.",
        )
    content = published.model.content
    old, new = FeatureSpec.from_dict(content["features"]), config.feature_spec()
    if old.to_dict() == new.to_dict():
        return None
    events, forms = config.event_specs()[0], EventForms(config)
    if list(events.paths(old)) != list(content["inputs"]["ignored_fields"]):
        raise ConfigError(
            f"input.impressions says that id, time and weight are in {', '.join(events.paths(old))}; "
            f"{source.examples_topic} was made with {', '.join(content['inputs']['ignored_fields'])}"
        )
    impressions = content["inputs"]["impressions"]
    ranges = impressions_of_log(settings, admin, source.examples_topic, impressions, until_tick)
    return FeatureSubset(scan_dropped_keys(settings, impressions, ranges, forms, old, new, report=report))


def impressions_of_log(
    settings: KafkaSettings, admin: Admin, log_topic: str, impressions_topic: str, until_tick: int
) -> dict[int, ImpressionRange]:
    """By partition, the impressions that the ticks of a training log up to `until_tick` were made from.

    Reads the log once. Raises NotFound if it has not come so far, LogTrimmed, DamagedLog, NewerFormat.
    """
    partitions = admin.require([log_topic, impressions_topic])[log_topic].partitions
    queries = admin.offsets
    starts = queries.earliest([(impressions_topic, partition) for partition in range(partitions)])
    ranges = {}
    for partition in range(partitions):
        end, records = _stood_for(settings, queries, log_topic, partition, until_tick)
        start = starts[impressions_topic, partition]
        ranges[partition] = ImpressionRange(start, max(end, start), records)
    return ranges


def _stood_for(
    settings: KafkaSettings, queries: OffsetQueries, topic: str, partition: int, until_tick: int
) -> tuple[int, int]:
    """The offset behind the impressions of the ticks up to `until_tick`, and their number."""
    end = records = 0
    passed = -1
    for tick in accepted_ticks(settings, queries, topic, partition):
        passed = tick.mark.last_tick
        if passed <= until_tick:
            end = tick.mark.next_impression
            records += tick.mark.counts.impressions.read
        if passed >= until_tick:
            return end, records
    raise NotFound(
        f"partition {partition} of {topic} has come to tick {passed}, not to {until_tick}",
        action="Let its joiners come so far, or give an earlier end.",
    )


def scan_dropped_keys(
    settings: KafkaSettings,
    topic: str,
    ranges: Mapping[int, ImpressionRange],
    forms: EventForms,
    old: FeatureSpec,
    new: FeatureSpec,
    *,
    report: Report | None = None,
) -> NDArray[np.uint64]:
    """The keys, u64[k] rising, that `old` makes of the impressions of these ranges and `new` does not.

    Memory: the keys, and batches. Raises ConfigError if `new` makes a feature that `old` does not make, or makes with
    another value, or cannot use an impression that `old` can; LogTrimmed if a range holds fewer records than the log
    was made from. Impressions that only `new` can use are not in the log: they are counted and logged.
    """
    scan = _Scan(topic, forms, old, new)
    total = sum(span.end - span.start for span in ranges.values())
    before = 0
    for partition, span in ranges.items():
        found = 0
        with PartitionReader(
            settings, topic, partition, span.start, buffer_bytes=BUFFER_BYTES, name=f"scan-{partition}"
        ) as reader:
            while reader.position < span.end:
                batch = reader.read(READ_RECORDS, WAIT_S)
                if batch is not None:
                    found += scan.take(partition, batch, int(np.searchsorted(batch.offsets, span.end)))
                if report is not None:
                    report(before + min(reader.position, span.end) - span.start, total)
        before += span.end - span.start
        if found < span.records:
            raise LogTrimmed(
                f"{topic} partition {partition} holds {count_of(found, 'impression')} before offset {span.end}; "
                f"the training log was made from {span.records}",
                action="The features of impressions that are gone cannot be found. Join again from those that are "
                "left, or keep all features of the log.",
            )
    return scan.finish()


class _Scan:
    """Compares both specifications batch by batch, and keeps the keys that only the old one makes."""

    def __init__(self, topic: str, forms: EventForms, old: FeatureSpec, new: FeatureSpec) -> None:
        self._topic = topic
        self._new_spec = new
        self._old, self._new = forms.impression_decoder(old), forms.impression_decoder(new)
        self._keys = np.zeros(0, np.uint64)
        self._fresh: list[NDArray[np.uint64]] = []
        self._fresh_keys = 0
        self._not_in_log = 0

    def take(self, partition: int, batch: RawBatch, count: int) -> int:
        """Take the first `count` records of a batch; returns `count`."""
        bounds, times = batch.bounds[: count + 1], batch.record_times_ms[:count]
        old, new = self._old.decode(batch.data, bounds, times), self._new.decode(batch.data, bounds, times)
        self._not_in_log += int(((old.status != 0) & (new.status == 0)).sum())
        rows = _Rows(old, new)
        wrong = rows.first_wrong(self._keys)
        if wrong is not None:
            data, edges = old.as_json or (batch.data, batch.bounds)
            event = bytes(data[edges[wrong] : edges[wrong + 1]])
            where = f"partition {partition} offset {int(batch.offsets[wrong])}"
            raise self._not_a_subset(where, rows.strange_keys(wrong, self._keys), event)
        self._add(rows.dropped)
        return count

    def _add(self, keys: NDArray[np.uint64]) -> None:
        fresh = keys[~_among(self._keys, keys)]
        self._fresh.append(fresh)
        self._fresh_keys += len(fresh)
        if self._fresh_keys > max(FEWEST_TO_MERGE, len(self._keys) // 4):
            self._merge()

    def _merge(self) -> None:
        self._keys = np.unique(np.concatenate([self._keys, *self._fresh]))
        self._fresh, self._fresh_keys = [], 0

    def finish(self) -> NDArray[np.uint64]:
        """The keys, rising."""
        self._merge()
        if self._not_in_log:
            get_logger("backfill").warning(
                "impressions_not_in_log",
                impressions=self._not_in_log,
                note="they could not be used with the features of the log, so it has no examples of them; a join with "
                "the new features would have",
            )
        return self._keys

    def _not_a_subset(self, where: str, keys: list[int] | None, event: bytes) -> ConfigError:
        if keys is None:
            what = "they cannot use it, and the log has an example of it"
        elif keys:
            what = f"they make {', '.join(names_of_keys(keys, event, self._new_spec))}, which the log does not hold so"
        else:
            what = "they make the features in another order than the log has them"
        return ConfigError(
            f"the features are not a subset of the training log's: of {self._topic} {where} {what}",
            action="Only leave out fields and crosses that the log was made with; for other features join again.",
        )


class _Rows:
    """The rows that both specifications make of a batch, of impressions that the old one can use.

    dropped: the keys that only the old one makes.
    """

    def __init__(self, old: Impressions, new: Impressions) -> None:
        self._old, self._new = old, new
        self._unusable = np.flatnonzero((old.status == 0) & (new.status != 0))
        lengths = np.diff(new.row_start)
        usable = np.repeat(old.status == 0, lengths)
        self._keys, self._values = new.keys[usable], new.values[usable]
        self._lengths = np.where(old.status == 0, lengths, 0)
        self.dropped = np.setdiff1d(old.keys, self._keys)

    def first_wrong(self, dropped_before: NDArray[np.uint64]) -> int | None:
        """The first row that is not a subset: the new specification makes something that the old one does not."""
        old = self._old
        kept = ~_among(self.dropped, old.keys)
        rows = np.repeat(np.arange(len(old)), np.diff(old.row_start))[kept]
        lengths = np.bincount(rows, minlength=len(old))
        wrong = [*self._unusable[:1], *np.flatnonzero(lengths != self._lengths)[:1]]
        if not wrong:
            differing = (old.keys[kept] != self._keys) | (old.values[kept] != self._values)
            wrong = [*rows[np.flatnonzero(differing | _among(dropped_before, self._keys))[:1]]]
        return int(min(wrong)) if wrong else None

    def strange_keys(self, row: int, dropped_before: NDArray[np.uint64]) -> list[int] | None:
        """The keys of a row that the new specification makes and the old one does not, or makes with another value, or
        that are left out of other rows; None if it cannot use the impression."""
        if row in self._unusable:
            return None
        old, new = (
            dict(zip(side.keys[place].tolist(), side.values[place].tolist(), strict=True))
            for side in (self._old, self._new)
            for place in [slice(side.row_start[row], side.row_start[row + 1])]
        )
        elsewhere = {*dropped_before.tolist()}
        return [key for key, value in new.items() if old.get(key) != value or key in elsewhere]


def _among(rising: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """For each key: True if it is among `rising`, which are sorted."""
    if len(rising) == 0:
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(rising, keys), len(rising) - 1)
    return np.equal(rising[places], keys)
