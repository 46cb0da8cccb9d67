"""`begin-anew`: let a training log go on under the same name where a joiner cannot make its state again.

In: a configuration, where to go on in the inputs. Out: for each partition what is lost by it; and, when told, a mark
that begins the log anew (`Mark.begins_anew`).
This file must never write without being told, report a mark that rule R has not accepted as written, or let an
impression be read again that a tick of the same topic has taken.

1. Check the topics, and that the length of the ticks is that of what was published.
2. For each partition find the last accepted mark by rule R, and decide where both inputs go on.
3. When told: refuse while the joiners' group has members; append a mark of a new attempt that follows the last one; see
   by rule R whether it was accepted.

| a crash after           | leaves                                 | the next call                                  |
|-------------------------|----------------------------------------|------------------------------------------------|
| step 1 or 2             | nothing new                            | begins at step 1                               |
| step 3, some partitions | those begun anew, the others as before | may begin all of them anew, or only the others |
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stream_learner.config.values import format_start
from stream_learner.core.join import resume_anew
from stream_learner.core.mark_codec import encode_mark
from stream_learner.core.marks import Mark
from stream_learner.edges.kafka import Admin, Appender, Delivery, KafkaSettings, TopicInfo
from stream_learner.edges.kafka.group_offsets import committed_offsets, group_members
from stream_learner.edges.record_errors import ANOTHER_NAME
from stream_learner.errors import (
    ConfigError,
    InputsChanged,
    JoinersRun,
    NotAuthorised,
    NotFound,
    PartitionCountsDiffer,
    StreamLearnerError,
    TopicRecreated,
)
from stream_learner.roles.accepted import Accepted, Hint, LogTail
from stream_learner.roles.beginning import Beginning, Start
from stream_learner.roles.last_published import last_published
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config

LAST: Final = "last"
FLUSH_S = 30.0

NO_MARK: Final = "nothing to begin anew"
PLANNED: Final = "would begin anew"
WRITTEN: Final = "begins anew"
OVERTAKEN: Final = "overtaken"
"""What comes of a partition: it has no mark, so that a joiner begins it as new; or its mark is shown, was accepted, or
came too late."""

NAME_A_START = (
    "Say where to go on in both inputs: --from earliest, --from latest, or a moment. Impressions of another topic that "
    "were joined before, and are not late by now, are learned again."
)


@dataclass(frozen=True)
class Request:
    """where: `last`, or as `join.start`. partitions: only these; all if empty. write: whether to do it."""

    where: str | int = LAST
    partitions: Sequence[int] = ()
    write: bool = False


@dataclass(frozen=True)
class _Topics:
    """The two inputs and the log as they are."""

    impressions: TopicInfo
    clicks: TopicInfo
    log: TopicInfo


@dataclass(frozen=True)
class _Side:
    """Where one input of a partition goes on, and how many offsets are left out by that; None where nobody can know,
    because the topic is another one."""

    begins: int
    end: int
    lost: int | None


@dataclass
class _Partition:
    """One partition of the log: the last accepted mark, what rule R goes on from, and what is to be appended."""

    tail: LogTail
    accepted: Accepted
    last: Mark
    mark: Mark
    impressions: _Side
    clicks: _Side
    state: str = PLANNED


def begin_anew(config: Config, request: Request) -> dict[str, Any]:
    """Show, or do, what the request says; the report as `--json` prints it.

    Raises TopicMissing, PartitionCountsDiffer, InputsChanged where the inputs had another number of partitions,
    TopicRecreated and InputsChanged where the request must name a start, ConfigError where `join.tick` was changed,
    JoinersRun, LogTrimmed where the log holds no mark to go on from, DamagedLog, NotFound, BrokerUnreachable.
    """
    return _BeginAnew(config, request).run()


def overtaken(report: dict[str, Any]) -> JoinersRun | None:
    """The error to end with where a joiner was faster; None where all that was to be written counts."""
    late = [str(row["partition"]) for row in report["partitions"] if row["state"] == OVERTAKEN]
    if not late:
        return None
    where = f"{report['log']} partition {', '.join(late)}"
    return JoinersRun(f"{where} does not begin anew: a joiner has written there meanwhile")


class _BeginAnew:
    def __init__(self, config: Config, request: Request) -> None:
        self._config = config
        self._request = request
        self._settings = KafkaSettings(config.kafka_options(), group=config.group)
        self._admin = Admin(self._settings)

    def run(self) -> dict[str, Any]:
        # Step 1: the topics, and the ticks.
        topics = self._topics()
        self._check_ticks()
        # Step 2: the last accepted mark of each partition, and where both inputs go on.
        hints = self._hints(topics)
        wanted = self._wanted(topics.log)
        found = {partition: self._plan(topics, partition, hints.get(partition)) for partition in wanted}
        # Step 3: the marks.
        if self._request.write:
            self._refuse_members()
            self._write([one for one in found.values() if one is not None])
        return self._report(topics, found)

    def _topics(self) -> _Topics:
        config = self._config
        names = (config.input.impressions.topic, config.input.clicks.topic, config.examples_topic)
        infos = self._admin.require(names)
        topics = _Topics(*(infos[name] for name in names))
        if len({info.partitions for info in infos.values()}) > 1:
            counts = ", ".join(f"{info.name} has {info.partitions}" for info in infos.values())
            raise PartitionCountsDiffer(f"these topics must have the same number of partitions: {counts}")
        return topics

    def _check_ticks(self) -> None:
        """The numbers of the ticks go on, so their length must be that of what was published."""
        config, topic = self._config, self._config.snapshots_topic
        info = self._admin.describe([topic]).get(topic)
        if info is None:
            return
        model = last_published(self._settings, self._admin.offsets, topic, info.partitions).model
        if model is not None and model.content["tick_ms"] != config.join.tick_ms:
            then_ms, now_ms = model.content["tick_ms"], config.join.tick_ms
            raise ConfigError(
                f"{topic} was published with ticks of {then_ms} ms, join.tick is {now_ms} ms",
                action="Set join.tick back. For ticks of another length: " + ANOTHER_NAME,
            )

    def _wanted(self, log: TopicInfo) -> list[int]:
        wanted = sorted(set(self._request.partitions)) or list(range(log.partitions))
        if wanted[-1] >= log.partitions:
            raise NotFound(f"{log.name} has no partition {wanted[-1]}; it has {log.partitions}")
        return wanted

    def _hints(self, topics: _Topics) -> dict[int, Hint]:
        """Where the joiners' group says that reading the log may begin; none where it may not be asked."""
        places = [(topics.impressions.name, partition) for partition in range(topics.log.partitions)]
        try:
            found = committed_offsets(self._settings, places)
        except NotAuthorised:
            return {}
        hints = {partition: Hint.from_text(offset.metadata) for (_, partition), offset in found.items()}
        return {partition: hint for partition, hint in hints.items() if hint is not None}

    def _plan(self, topics: _Topics, partition: int, hint: Hint | None) -> _Partition | None:
        """What is to be appended to a partition; None where it has no mark."""
        tail = LogTail(self._settings, self._admin.offsets, topics.log.name, partition)
        try:
            accepted = next(one for one in tail.find(hint, to_resume=False) if one is not None)
            if accepted.mark is None:
                return None
            last = accepted.mark
            sides = self._sides(topics, accepted, last)
            return _Partition(tail, accepted, last, self._mark(topics, last, *sides), *sides)
        finally:
            tail.close()

    def _sides(self, topics: _Topics, accepted: Accepted, last: Mark) -> tuple[_Side, _Side]:
        """Where impressions and clicks go on."""
        where = f"{topics.log.name} partition {last.partition}"
        point = None if accepted.resume is None else accepted.resume.resume
        if point is not None and point.partitions != topics.log.partitions:
            raise InputsChanged(
                f"{where} was made from {count_of(point.partitions, 'partition')}, now there are "
                f"{topics.log.partitions}: the learner's positions are of each partition",
                action=ANOTHER_NAME,
            )
        ids = (None, None) if point is None else (point.impression_topic_id, point.click_topic_id)
        beginning = self._beginning(topics, last)
        return (
            self._side(topics.impressions, ids[0], last.next_impression, beginning.impression, where, last.partition),
            self._side(topics.clicks, ids[1], last.first_click, beginning.click, where, last.partition),
        )

    def _beginning(self, topics: _Topics, last: Mark) -> Beginning:
        """Where the request says to begin, were the log a new one.

        After clicks that are lost no impression is taken that they belonged to: it would count as not clicked.
        """
        queries, where, names = self._admin.offsets, self._request.where, (topics.impressions.name, topics.clicks.name)
        if where == LAST:
            places = [(name, last.partition) for name in names]
            earliest = queries.earliest(places)
            if earliest[places[1]] <= last.first_click:
                return Beginning(earliest[places[0]], earliest[places[1]])
            where = "earliest"
        return Start(queries, where).of(*names, last.partition)

    def _side(
        self, topic: TopicInfo, topic_id: bytes | None, taken: int, begins: int, where: str, partition: int
    ) -> _Side:
        """Where one input goes on. taken: offset before which nothing is needed any more, if it is the same topic."""
        place = (topic.name, partition)
        end = self._admin.offsets.high_watermarks([place])[place]
        if self._request.where == LAST:
            self._check_last(topic, topic_id, taken, end, where)
        if topic.id != topic_id or taken > end:
            return _Side(begins, end, None)
        begins = max(begins, taken)
        return _Side(begins, end, begins - taken)

    def _check_last(self, topic: TopicInfo, topic_id: bytes | None, taken: int, end: int, where: str) -> None:
        """Refuse to go on from positions that mean something else, or nothing, in the topic that there is now."""
        if topic_id is None:
            what = f"{where} holds no resume point any more, so nobody knows which topics its positions are of"
            raise InputsChanged(what, action=NAME_A_START)
        if topic_id != topic.id:
            what = f"{topic.name} is not the topic that {where} was made from: its id has changed"
            raise TopicRecreated(what, action=NAME_A_START)
        if taken > end:
            what = f"{topic.name} ends at offset {end}; {where} was made from records up to {taken}, which are gone"
            raise InputsChanged(what, action=NAME_A_START)

    def _mark(self, topics: _Topics, last: Mark, impressions: _Side, clicks: _Side) -> Mark:
        config = self._config
        tick = last.last_tick + 1
        event_specs = config.event_specs()
        point = resume_anew(
            config.join_spec(),
            tick,
            dedupe_from=impressions.begins,
            impression_topic_id=topics.impressions.id,
            click_topic_id=topics.clicks.id,
            partitions=topics.log.partitions,
            impressions_fingerprint=event_specs[0].fingerprint,
            clicks_fingerprint=event_specs[1].fingerprint,
        )
        return Mark(
            partition=last.partition,
            attempt=secrets.randbelow(2**64 - 1) + 1,
            first_tick=tick,
            last_tick=tick,
            next_impression=impressions.begins,
            first_click=clicks.begins,
            click_cursor=clicks.begins,
            records=0,
            pred_attempt=last.attempt,
            pred_tick=last.last_tick,
            resume=point,
            features=config.feature_spec().fingerprint,
            begins_anew=True,
        )

    def _refuse_members(self) -> None:
        """A joiner that runs would go on as before, and be faster or slower by chance."""
        try:
            members = group_members(self._settings)
        except NotAuthorised:
            return  # whether one was faster shows in the log
        if members:
            raise JoinersRun(f"the group {self._config.group} has {count_of(members, 'member')}")

    def _write(self, partitions: Sequence[_Partition]) -> None:
        appender = Appender(self._settings, name="begin-anew")
        try:
            for one in partitions:
                appender.append(self._config.examples_topic, one.mark.partition, encode_mark(one.mark), tag=one)
            deliveries: list[Delivery] = appender.flush(FLUSH_S)
        finally:
            appender.close()
        for delivery in deliveries:
            self._read_back(delivery.tag, delivery)
        errors: list[StreamLearnerError] = [one.error for one in deliveries if one.error is not None]
        if errors:
            raise errors[0]

    def _read_back(self, one: _Partition, delivery: Delivery) -> None:
        """Whether the mark counts, by rule R."""
        if delivery.error is not None:
            return
        try:
            for _ in one.tail.read_on(one.accepted, delivery.offset + 1):
                pass
        finally:
            one.tail.close()
        one.state = WRITTEN if one.accepted.last == one.mark.id else OVERTAKEN

    def _report(self, topics: _Topics, found: dict[int, _Partition | None]) -> dict[str, Any]:
        where = self._request.where
        return {
            "model": self._config.model,
            "log": topics.log.name,
            "from": format_start(where),
            "written": self._request.write,
            "partitions": [
                _row(partition, one, self._config.join_spec().lateness_ms) for partition, one in found.items()
            ],
        }


def _row(partition: int, one: _Partition | None, lateness_ms: int) -> dict[str, Any]:
    """What becomes of a partition: where it goes on, and what is lost."""
    if one is None:
        return {"partition": partition, "state": NO_MARK}
    mark, point = one.mark, one.mark.resume
    assert point is not None
    return {
        "partition": partition,
        "state": one.state,
        "tick": mark.last_tick,
        "impressions_from": one.impressions.begins,
        "impressions_lost": one.impressions.lost,
        "impressions_to_read": one.impressions.end - one.impressions.begins,
        "clicks_from": one.clicks.begins,
        "clicks_lost": one.clicks.lost,
        "clicks_given_up": one.last.counts.clicks.waiting,
        "late_before_ms": max(point.impression_log_time - lateness_ms, 0),
    }
