"""`diff`: two models compared, their training logs tick by tick, and what they have published.

The report says where the models part, and which clicks made the difference. The comparison changes nothing, joins no
group, and holds no more than a tick of each log in memory.

1. Look up what each model has published: the log it was folded from, its inputs, its version and digest.
2. Partition by partition, read both logs by rule R, and compare tick by tick, over the ticks that both have.
3. For labels that differ, find the clicks of the example's id, as far as either log had read them for the tick.
4. If both have published the same version, compare the digests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.core.log.compare import together
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.errors import ConfigError, NotFound, PartitionCountsDiffer
from stream_learner.operations.diff.click_search import ClickSearch
from stream_learner.operations.diff.differences import ClickRange, ComparedModel, Differences
from stream_learner.roles.common.last_publication import LastPublication, read_last_publication
from stream_learner.roles.common.log_reader import accepted_ticks
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config

NO_END = 1 << 62


def compare_models(
    config: Config, other: Config, *, from_tick: int | None = None, until_tick: int | None = None, limit: int = 100
) -> dict[str, Any]:
    """The report; "equal" in it says whether no difference was found. At most `limit` differences are listed.

    Without `from_tick` the comparison begins where both logs have begun, and examples before that are only counted.
    Raises TopicMissing, PartitionCountsDiffer, ConfigError if the ticks differ in length, NotFound if the logs have no
    tick in common, LogTrimmed, DamagedLog, NewerFormat.
    """
    settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.diff")
    admin = Admin(settings)
    # Step 1: look up what each model has published.
    models = _looked_up(config, settings, admin), _looked_up(other, settings, admin)
    if models[0].tick_ms != models[1].tick_ms:
        lengths = " and ".join(f"{model.tick_ms} ms ({model.name})" for model in models)
        raise ConfigError(f"logs with ticks of different lengths cannot be compared tick by tick: {lengths}")
    differences = Differences(models, limit)
    # Steps 2 and 3: compare the logs, and find the clicks.
    if models[0].log != models[1].log:
        _compare_logs(config, settings, admin, differences, from_tick, NO_END if until_tick is None else until_tick)
    # Step 4: compare the digests.
    return differences.report()


def _looked_up(config: Config, settings: KafkaSettings, admin: Admin) -> ComparedModel:
    """The log and inputs of a model, by its model record, or by its configuration if nothing is published."""
    topic, inputs = config.snapshots_topic, config.input
    tick_ms, log = config.join.tick_ms, config.examples_topic
    plain = ComparedModel(config.model, log, tick_ms, inputs.impressions.topic, inputs.clicks.topic)
    found = admin.describe([topic])
    if topic not in found:
        return plain
    last = read_last_publication(settings, admin.offsets, topic, found[topic].partitions)
    return plain if last.model is None else _published(plain, last)


def _published(plain: ComparedModel, last: LastPublication) -> ComparedModel:
    assert last.model is not None
    content = last.model.content
    inputs = content["inputs"]
    return ComparedModel(
        plain.name,
        content.get("log", plain.log),
        content["tick_ms"],
        inputs.get("impressions", plain.impressions),
        inputs.get("clicks", plain.clicks),
        last.model.stamp.version,
        content["digest"],
        content["optimizer"],
    )


class _Walk:
    """Walks one partition of a log from one tick with examples to the next.

    head: the tick to be compared next, None after the last. before: the first click that had not expired when the mark
    before the head was written. first: the first tick seen. passed: the last one.
    """

    def __init__(self, ticks: Iterator[AcceptedTick]) -> None:
        self._ticks = ticks
        self._first_click = 0
        self.head: AcceptedTick | None = None
        self.before = 0
        self.first = NO_END
        self.passed = -1
        self.advance()

    def advance(self) -> None:
        """Go on to the next tick with examples."""
        self.head = None
        for tick in self._ticks:
            self.first = min(self.first, tick.mark.first_tick)
            self.passed = tick.mark.last_tick
            self.before, self._first_click = self._first_click, tick.mark.first_click
            if tick.records:
                self.head = tick
                return

    @property
    def head_tick(self) -> int:
        """The tick of the head, `NO_END` without one."""
        return NO_END if self.head is None else self.head.mark.last_tick

    def examples(self, tick: int) -> ExampleBatch:
        """The examples of a tick that is not before the head."""
        return together(r for _, r in self.head.records) if self.head and self.head_tick == tick else _NOTHING

    def clicks_of(self, tick: int) -> ClickRange:
        """The clicks that decided the labels of a tick, none if this log has no such tick."""
        if self.head is None or self.head_tick != tick:
            return ClickRange(0, 0)
        return ClickRange(self.before, self.head.mark.click_cursor)


_NOTHING = ExampleBatch.empty()


def _compare_logs(
    config: Config,
    settings: KafkaSettings,
    admin: Admin,
    differences: Differences,
    from_tick: int | None,
    until_tick: int,
) -> None:
    """Take step 2, and step 3 after each partition."""
    topics = [model.log for model in differences.models]
    found = admin.require(topics)
    counts = [found[topic].partitions for topic in topics]
    if counts[0] != counts[1]:
        raise PartitionCountsDiffer(
            f"{topics[0]} has {count_of(counts[0], 'partition')}, {topics[1]} has {counts[1]}: equal ids do not meet",
            action="Only logs with the same number of partitions can be compared.",
        )
    _, clicks = config.event_specs()
    search = ClickSearch(settings, admin.offsets, clicks)
    begin = max(_begun(settings, admin, found[topic]) for topic in topics) if from_tick is None else from_tick
    for partition in range(counts[0]):
        with (
            closing(accepted_ticks(settings, admin.offsets, topics[0], partition)) as first,
            closing(accepted_ticks(settings, admin.offsets, topics[1], partition)) as second,
        ):
            _compare_partition(partition, _Walk(first), _Walk(second), differences, begin, until_tick)
        differences.find_clicks(search, partition)
    if not differences.spans:
        raise NotFound(
            f"{topics[0]} and {topics[1]} have no tick in common",
            action="Compare models over the same span of time, once both have come so far.",
        )


def _begun(settings: KafkaSettings, admin: Admin, log: TopicInfo) -> int:
    """The tick in which a log begins: each partition begins with a run of empty ticks; it is the earliest end of one.

    0 if the beginning of a partition is gone: then the log began before all that it holds.
    """
    places = [(log.name, partition) for partition in range(log.partitions)]
    if any(admin.offsets.earliest(places).values()):
        return 0
    first_ticks = []
    for topic, partition in places:
        with closing(accepted_ticks(settings, admin.offsets, topic, partition)) as ticks:
            first_ticks += [tick.mark.last_tick for tick in islice(ticks, 1)]
    return min(first_ticks, default=0)


def _compare_partition(
    partition: int, first: _Walk, second: _Walk, differences: Differences, from_tick: int, until_tick: int
) -> None:
    begin = max(first.first, second.first, from_tick)
    while True:
        tick = min(first.head_tick, second.head_tick)
        # A log that has ended says nothing of the ticks after its last one.
        ended = min([walk.passed for walk in (first, second) if walk.head is None], default=NO_END)
        if tick > min(ended, until_tick) or tick == NO_END:
            break
        if tick >= begin:
            batches = first.examples(tick), second.examples(tick)
            differences.add(partition, tick, batches, (first.clicks_of(tick), second.clicks_of(tick)))
        else:
            differences.leave_out(first.examples(tick), second.examples(tick))
        for walk in (first, second):
            if walk.head_tick == tick:
                walk.advance()
    end = min(first.passed, second.passed, until_tick)
    if begin <= end:
        differences.spans.append({"partition": partition, "from_tick": begin, "until_tick": end})
