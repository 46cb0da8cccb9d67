"""`diff`: two models compared, their training logs example by example, and what they have published.

The report says where the models part, and which clicks made the difference. The comparison changes nothing, joins no
group, and holds no more in memory than a tick of each log and the examples that wait for their partner (`matching`).

1. Look up what each model has published: the log it was folded from, its inputs, its version and digest.
2. Partition by partition, read both logs by rule R, and compare the examples of the ticks that both have: the n-th of
   an id in one log with the n-th in the other, also where it lies in a tick before or after these.
3. For labels that differ, find the clicks of the example's id, as far as either log had read them for the tick.
4. If both have published the same version, compare the digests.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.errors import ConfigError, NotFound, PartitionCountsDiffer
from stream_learner.operations.diff.click_search import ClickSearch
from stream_learner.operations.diff.differences import ComparedModel, Differences
from stream_learner.operations.diff.log_walk import NO_END, NOT_KNOWN, LogWalk
from stream_learner.operations.diff.matching import WAITING_BYTES, Examples, Matching
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.last_publication import LastPublication, read_last_publication
from stream_learner.roles.common.log_reader import accepted_ticks
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config

NOT_YET, GIVEN_UP = "not yet", "waited for in vain"


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
    search = ClickSearch(settings, admin.offsets, EventForms(config).click_decoder())
    begun = max(_begun(settings, admin, found[topic]) for topic in topics)
    begin = begun if from_tick is None else from_tick
    for partition in range(counts[0]):
        with (
            closing(accepted_ticks(settings, admin.offsets, topics[0], partition)) as first,
            closing(accepted_ticks(settings, admin.offsets, topics[1], partition)) as second,
        ):
            walks = (LogWalk(first), LogWalk(second))
            _compare_partition(partition, walks, differences, min(begun, begin), begin, until_tick)
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
    partition: int,
    walks: tuple[LogWalk, LogWalk],
    differences: Differences,
    match_from: int,
    from_tick: int,
    until_tick: int,
) -> None:
    """Compare the ticks that both logs have, from `from_tick` on; examples are paired from `match_from` on."""
    comparison = _Comparison(partition, walks, differences, max(*(walk.first for walk in walks), from_tick))
    match_from = max(*(walk.first for walk in walks), match_from)
    while True:
        # A log that has ended says nothing of the ticks after its last one.
        ended = min([walk.passed for walk in walks if walk.head is None], default=NO_END)
        tick = min(walk.head_tick for walk in walks)
        if tick > min(ended, until_tick) or tick == NO_END:
            break
        comparison.take(tick, matched=tick >= match_from)
    end = min(*(walk.passed for walk in walks), until_tick)
    if comparison.begin <= end:
        comparison.finish(end)
        differences.spans.append({"partition": partition, "from_tick": comparison.begin, "until_tick": end})


class _Comparison:
    """Compares one partition of two logs, tick by tick."""

    def __init__(self, partition: int, walks: tuple[LogWalk, LogWalk], differences: Differences, begin: int) -> None:
        """begin: the first tick to compare. Examples before it are looked at where their partners are not."""
        self.begin, self._end = begin, NO_END
        self._partition, self._walks, self._differences = partition, walks, differences
        self._matching = Matching()
        models = differences.models
        self._of_one_topic = models[0].impressions == models[1].impressions

    def take(self, tick: int, *, matched: bool) -> None:
        """Take a tick of both logs. matched: whether its examples are looked at."""
        found = [walk.take(tick) for walk in self._walks]
        self._differences.note_examples([len(one.places) for one in found], compared=tick >= self.begin)
        if matched:
            self._add(found)

    def finish(self, end: int) -> None:
        """Find the partners that lie beyond `end`, the last tick to compare; then who has none is in one log only."""
        self._pair()
        self._end, room = end, WAITING_BYTES
        while room > 0 and self._some_wait and (tick := min(walk.head_tick for walk in self._walks)) < NO_END:
            found = [walk.take(tick) for walk in self._walks]
            self._add(found)
            room -= sum(one.bytes for one in found)
        self._pair()
        for side in (0, 1):
            self._tell_only(side, self._matching.waiting(side), NOT_YET)

    @property
    def _some_wait(self) -> bool:
        waiting = [self._matching.waiting(side).places["tick"] for side in (0, 1)]
        return any((ticks >= self.begin).any() for ticks in waiting)

    def _add(self, found: list[Examples]) -> None:
        for side, examples in enumerate(found):
            self._matching.add(side, examples)
        if self._matching.is_due:
            self._pair()

    def _pair(self) -> None:
        paired = self._matching.pair()
        self._differences.add_pairs(self._partition, self.begin, self._end, paired)
        for side, examples in enumerate(paired.given_up):
            self._tell_only(side, examples, GIVEN_UP)

    def _tell_only(self, side: int, examples: Examples, if_not_come: str) -> None:
        """Tell the examples of compared ticks that have no partner, and what became of them in the other log.

        if_not_come: the outcome where it has not come so far; those that it has `NOT_YET` come to are only counted.
        """
        ticks = examples.places["tick"]
        examples = examples.chosen(np.flatnonzero((ticks >= self.begin) & (ticks <= self._end)))
        became = [NOT_KNOWN] * len(examples.places)
        if self._of_one_topic:
            ranges = examples.places[["impressions_begin", "impressions_end"]].tolist()
            became = [self._walks[1 - side].outcome(*offsets) or if_not_come for offsets in ranges]
        come_to = np.array([outcome != NOT_YET for outcome in became], np.bool_)
        self._differences.not_yet[1 - side] += int((~come_to).sum())
        told = [outcome for outcome in became if outcome != NOT_YET]
        self._differences.add_only(self._partition, side, examples.chosen(np.flatnonzero(come_to)), told)
