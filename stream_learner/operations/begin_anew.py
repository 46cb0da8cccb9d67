"""`begin-anew`: let a training log go on under the same name if no joiner can make its state again.

It tells what is lost by it in each partition; with `write` it appends a mark that begins the log anew
(`Mark.begins_anew`). It must never report a mark as written that rule R has not accepted, nor let an impression be read
again that a tick of the same topic has taken.

1. Check the topics, and that the length of the ticks is that of what was published.
2. For each partition find the last accepted mark by rule R, and decide where both inputs go on.
3. With `write`: refuse while the joiners' group has members; append a mark of a new attempt that follows the last one;
   see by rule R whether it was accepted.
4. If the topics were given more partitions, and all partitions with marks begin anew with the new number: append a
   first mark to each of the others, of the ticks from 0 to the last that all partitions with marks have passed.

| a crash after           | leaves                                 | the next call                                  |
|-------------------------|----------------------------------------|------------------------------------------------|
| step 1 or 2             | nothing new                            | begins at step 1                               |
| step 3, some partitions | those begun anew, the others as before | may begin all of them anew, or only the others |
| step 3 or 4, after more | some or all of the old partitions      | begins the others: those whose resume point    |
| partitions were added   | begun anew, some of the new ones       | has another number, and those without a mark   |

Why in this order. An example of an added partition belongs to a tick behind its first mark, and so to none up to the
first of the ticks with which the old ones begin anew. Whoever folds that tick has read a mark that counts the
partitions (`roles.learner.log_follower`), and waits for those that were added until they have passed it. So a learner
that lived through it folds what one folds that reads the log from its beginning, where an added partition has nothing
up to its first mark. Joiners begin no added partition before it has that mark (`roles.joiner.log_beginning`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stream_learner.adapters.kafka import Admin, Appender, Delivery, KafkaSettings, TopicInfo
from stream_learner.adapters.kafka.ends import committed_offsets, group_members
from stream_learner.adapters.record_errors import ANOTHER_NAME, DELETE
from stream_learner.config.values import format_start
from stream_learner.core.log.marks import GENESIS, InputIdentity, Mark, MarkId, ResumePoint, encode_mark
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
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.joiner.log_beginning import LogBeginning, StartOffsets, StartRule, mark_anew
from stream_learner.roles.joiner.log_tail import Accepted, Hint, LogTail
from stream_learner.roles.joiner.progress import Kept
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config

LAST: Final = "last"
FLUSH_S = 30.0

NO_MARK: Final = "nothing to begin anew"
BEGUN: Final = "has begun anew"
PLANNED: Final = "would begin anew"
WRITTEN: Final = "begins anew"
OVERTAKEN: Final = "overtaken"
"""The states of a partition in the report: it has no mark, so a joiner begins it as new; it has begun anew already
since partitions were added; its mark is only shown; its mark was accepted; its mark came too late."""

NAME_A_START = (
    "Say where to go on in both inputs: --from earliest, --from latest, or a moment. Impressions of another topic that "
    "were joined before, and are not late by now, are learned again."
)
NAME_A_MOMENT = (
    "Say where to go on in both inputs: --from MOMENT, one since which every producer knows of the partitions that "
    "were added (they look every metadata.max.age.ms, five minutes unless set), or --from latest. Of what came before "
    "it, an impression and its clicks may lie in different partitions; it would count as not clicked."
)
TOGETHER = "Leave --partition out: ids lie elsewhere in all partitions since some were added."


@dataclass(frozen=True)
class BeginAnewRequest:
    """The request of an operator. where: `last`, or a value of `join.start`. partitions: only these, all if empty.
    write: whether to do it, or only to show it."""

    where: str | int = LAST
    partitions: Sequence[int] = ()
    write: bool = False


@dataclass(frozen=True)
class _Topics:
    """The topics of the two inputs and of the log."""

    impressions: TopicInfo
    clicks: TopicInfo
    log: TopicInfo


@dataclass(frozen=True)
class _Side:
    """The offset at which one input of a partition goes on, its end, and the number of offsets left out; None if that
    cannot be known, because the topic was made anew."""

    begins: int
    end: int
    lost: int | None


@dataclass
class _Partition:
    """One partition of the log: what rule R has accepted, and the mark to append.

    last: the last accepted mark, None if there is none. mark: None if nothing is to be appended.
    """

    tail: LogTail
    accepted: Accepted
    last: Mark | None
    mark: Mark | None
    impressions: _Side
    clicks: _Side
    state: str = PLANNED

    @property
    def passed(self) -> int:
        """The last tick that the partition has passed, or will have."""
        return self.accepted.last.last_tick if self.mark is None else self.mark.last_tick


def begin_anew(config: Config, request: BeginAnewRequest) -> dict[str, Any]:
    """Show or do what the request says, and return the report as `--json` prints it.

    Raises TopicMissing, PartitionCountsDiffer, InputsChanged if the inputs had more partitions, TopicRecreated and
    InputsChanged if the request must name a start, ConfigError if `join.tick` was changed or some partitions are named
    and all have to begin anew, JoinersRun, LogTrimmed if the log holds no mark to go on from, DamagedLog, NotFound,
    BrokerUnreachable.
    """
    return _BeginAnew(with_key_rule(config), request).run()


def overtaken(report: dict[str, Any]) -> JoinersRun | None:
    """The error to end with if a joiner was faster; None if every mark that was written is accepted."""
    late = [str(row["partition"]) for row in report["partitions"] if row["state"] == OVERTAKEN]
    if not late:
        return None
    where = f"{report['log']} partition {', '.join(late)}"
    return JoinersRun(f"{where} does not begin anew: a joiner has written there meanwhile")


class _BeginAnew:
    def __init__(self, config: Config, request: BeginAnewRequest) -> None:
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
        tails = {partition: self._tail(topics, partition) for partition in self._wanted(topics.log)}
        found = {partition: _accepted(tail, hints.get(partition)) for partition, tail in tails.items()}
        beginning = LogBeginning(self._settings, self._admin.offsets, topics.log.name, topics.log.partitions)
        lacking = self._lacking(topics, found, beginning.wait_partitions())
        if lacking:
            self._check_grown(topics, found, lacking)
        planned = {p: self._plan(topics, tails[p], one, p in lacking or not lacking) for p, one in found.items()}
        passed = [one.passed for one in planned.values() if one is not None]
        added = [p for p in lacking if found[p].mark is None]
        clicks_lost = any(_are_clicks_lost(topics, one) for one in found.values())
        if passed:
            behind = max((one.mark.last_tick - one.mark.stream_tick for one in found.values() if one.mark), default=0)
            for p in added:
                planned[p] = self._plan_added(topics, tails[p], found[p], min(passed), behind, clicks_lost)
        if self._request.write:
            # Step 3: the marks of partitions that have one.
            self._refuse_members()
            self._write([one for p, one in planned.items() if one is not None and p not in added])
            # Step 4: the first marks of those that were added.
            if all(one is None or one.state != OVERTAKEN for one in planned.values()):
                self._write([one for p in added if (one := planned[p]) is not None])
        return self._report(topics, planned)

    def _topics(self) -> _Topics:
        config = self._config
        names = (config.input.impressions.topic, config.input.clicks.topic, config.examples_topic)
        infos = self._admin.require(names)
        topics = _Topics(*(infos[name] for name in names))
        if len({info.partitions for info in infos.values()}) > 1:
            counts = ", ".join(f"{info.name} has {info.partitions}" for info in infos.values())
            most = max(info.partitions for info in infos.values())
            raise PartitionCountsDiffer(
                f"these topics must have the same number of partitions: {counts}",
                action=f"Give all of them {most} (`kafka-topics.sh --alter --partitions {most}`), with no joiner "
                "running, and say this again: Kafka adds partitions and takes none away. With fewer than the log has, "
                "it cannot be gone on with. " + ANOTHER_NAME,
            )
        return topics

    def _check_ticks(self) -> None:
        """Raise ConfigError if the ticks have another length than those published: their numbers go on."""
        config, topic = self._config, self._config.snapshots_topic
        info = self._admin.describe([topic]).get(topic)
        if info is None:
            return
        model = read_last_publication(self._settings, self._admin.offsets, topic, info.partitions).model
        if model is not None and model.content["tick_ms"] != config.join.tick_ms:
            then_ms, now_ms = model.content["tick_ms"], config.join.tick_ms
            raise ConfigError(
                f"{topic} was published with ticks of {then_ms} ms, join.tick is {now_ms} ms",
                action=f"Set join.tick back. For ticks of another length: {ANOTHER_NAME} {DELETE}",
            )

    def _wanted(self, log: TopicInfo) -> list[int]:
        wanted = sorted(set(self._request.partitions)) or list(range(log.partitions))
        if wanted[-1] >= log.partitions:
            raise NotFound(f"{log.name} has no partition {wanted[-1]}; it has {log.partitions}")
        return wanted

    def _hints(self, topics: _Topics) -> dict[int, Hint]:
        """By partition, where the joiners' group says that reading the log may begin; empty without the right to
        ask."""
        places = [(topics.impressions.name, partition) for partition in range(topics.log.partitions)]
        try:
            found = committed_offsets(self._settings, places)
        except NotAuthorised:
            return {}
        hints = {partition: Kept.from_text(offset.metadata).hint for (_, partition), offset in found.items()}
        return {partition: hint for partition, hint in hints.items() if hint is not None}

    def _tail(self, topics: _Topics, partition: int) -> LogTail:
        log = topics.log
        return LogTail(self._settings, self._admin.offsets, log.name, partition, log_id=log.id.hex())

    def _lacking(self, topics: _Topics, found: dict[int, Accepted], began_with: int | None) -> list[int]:
        """The partitions that have not begun anew since partitions were added.

        They are those whose last resume point names another number of partitions, and, in a log that began with fewer,
        those without a mark.
        """
        there = topics.log.partitions
        lacking = []
        for partition, one in found.items():
            of = _partitions_of(one)
            if of is not None and of > there:
                where = f"{topics.log.name} partition {partition}"
                what = f"{where} was made from {count_of(of, 'partition')}, now there are {there}"
                raise InputsChanged(what, action="Partitions cannot be taken away. " + ANOTHER_NAME)
            if (began_with if one.mark is None else of) not in (None, there):
                lacking.append(partition)
        return lacking

    def _check_grown(self, topics: _Topics, found: dict[int, Accepted], lacking: list[int]) -> None:
        """Raise an error if the request does not fit a log with more partitions: ids have moved between them."""
        counts = sorted({of for partition in lacking if (of := _partitions_of(found[partition])) is not None})
        before = f"from {count_of(counts[0], 'partition')}" if counts else "before partitions were added"
        what = (
            f"{topics.log.name} was made {before}, now there are {topics.log.partitions}: partition "
            f"{', '.join(map(str, lacking))} must begin anew"
        )
        if self._request.partitions:
            raise ConfigError(what, action=TOGETHER)
        if self._request.where in (LAST, "earliest"):
            raise InputsChanged(what, action=NAME_A_MOMENT)

    def _plan(self, topics: _Topics, tail: LogTail, accepted: Accepted, is_wanted: bool) -> _Partition | None:
        """Plan what to append to a partition; None if it has no mark.

        is_wanted: whether it is to begin anew; all are if no partition was added.
        """
        last = accepted.mark
        if last is None:
            return None
        if not is_wanted and _partitions_of(accepted) == topics.log.partitions:
            nothing = _Side(last.next_impression, last.next_impression, 0)
            return _Partition(tail, accepted, last, None, nothing, nothing, BEGUN)
        sides = self._sides(topics, accepted, last)
        mark = self._mark(topics, last.partition, last.id, last.last_tick + 1, last.stream_tick + 1, *sides)
        return _Partition(tail, accepted, last, mark, *sides)

    def _plan_added(
        self, topics: _Topics, tail: LogTail, accepted: Accepted, tick: int, behind: int, clicks_lost: bool
    ) -> _Partition:
        """The first mark of a partition, with `tick` as its last. Nothing that the partition holds was ever taken.

        behind: how many ticks stream time is behind at the most in a partition that has a mark.
        """
        partition = tail.partition
        beginning = self._beginning_grown(topics, partition, clicks_lost=clicks_lost)
        where = f"{topics.log.name} partition {partition}"
        sides = (
            self._side(topics.impressions, topics.impressions.id, 0, beginning.impression, where, partition),
            self._side(topics.clicks, topics.clicks.id, 0, beginning.click, where, partition),
        )
        return _Partition(
            tail, accepted, None, self._mark(topics, partition, GENESIS, tick, tick - behind, *sides), *sides
        )

    def _sides(self, topics: _Topics, accepted: Accepted, last: Mark) -> tuple[_Side, _Side]:
        """Decide where impressions and clicks go on."""
        where = f"{topics.log.name} partition {last.partition}"
        point = _point_of(accepted)
        ids = (None, None) if point is None else (point.impression_topic_id, point.click_topic_id)
        has_moved = point is not None and point.partitions != topics.log.partitions
        clicks_lost = _are_clicks_lost(topics, accepted)
        beginning = (
            self._beginning_grown(topics, last.partition, clicks_lost=clicks_lost)
            if has_moved
            else self._beginning(topics, last, clicks_lost=clicks_lost)
        )
        return (
            self._side(topics.impressions, ids[0], last.next_impression, beginning.impression, where, last.partition),
            self._side(topics.clicks, ids[1], last.first_click, beginning.click, where, last.partition),
        )

    def _beginning_grown(self, topics: _Topics, partition: int, *, clicks_lost: bool) -> StartOffsets:
        """The start that the request names, with the clicks that may be ahead of the first impressions.

        Clicks are asked for first. Else, at the end of both topics, an impression could be taken and its click left
        out. clicks_lost: as for `_beginning`.
        """
        names, where = (topics.impressions.name, topics.clicks.name), self._request.where
        ahead = max(where - self._config.join.skew_ms, 0) if isinstance(where, int) else where
        click = StartRule(self._admin.offsets, ahead).of(*names, partition).click
        start = StartRule(self._admin.offsets, where).of(*names, partition, clicks_lost=clicks_lost)
        return start._replace(click=click)

    def _beginning(self, topics: _Topics, last: Mark, *, clicks_lost: bool) -> StartOffsets:
        """The start that the request names, as for a new log.

        If clicks are lost, the impressions that they belong to are left out: they would count as not clicked.
        clicks_lost: whether their topic was made anew.
        """
        queries, where, names = self._admin.offsets, self._request.where, (topics.impressions.name, topics.clicks.name)
        if where == LAST:
            places = [(name, last.partition) for name in names]
            earliest = queries.earliest(places)
            if earliest[places[1]] <= last.first_click:
                return StartOffsets(earliest[places[0]], earliest[places[1]])
            where = "earliest"
        return StartRule(queries, where).of(*names, last.partition, clicks_lost=clicks_lost)

    def _side(
        self, topic: TopicInfo, topic_id: bytes | None, taken: int, begins: int, where: str, partition: int
    ) -> _Side:
        """Decide where one input goes on. taken: if it is the same topic, nothing before this offset is needed any
        more."""
        place = (topic.name, partition)
        end = self._admin.offsets.high_watermarks([place])[place]
        if self._request.where == LAST:
            self._check_last(topic, topic_id, taken, end, where)
        if topic.id != topic_id or taken > end:
            return _Side(begins, end, None)
        begins = max(begins, taken)
        return _Side(begins, end, begins - taken)

    def _check_last(self, topic: TopicInfo, topic_id: bytes | None, taken: int, end: int, where: str) -> None:
        """Raise an error if the positions of the last mark do not belong to the present topic."""
        if topic_id is None:
            what = f"{where} holds no resume point any more, so nobody knows which topics its positions are of"
            raise InputsChanged(what, action=NAME_A_START)
        if topic_id != topic.id:
            what = f"{topic.name} is not the topic that {where} was made from: its id has changed"
            raise TopicRecreated(what, action=NAME_A_START)
        if taken > end:
            what = f"{topic.name} ends at offset {end}; {where} was made from records up to {taken}, which are gone"
            raise InputsChanged(what, action=NAME_A_START)

    def _mark(
        self,
        topics: _Topics,
        partition: int,
        after: MarkId,
        tick: int,
        stream_tick: int,
        impressions: _Side,
        clicks: _Side,
    ) -> Mark:
        """A mark that begins anew, of the ticks after the mark `after` up to `tick`, and of stream time."""
        config = self._config
        event_specs = config.event_specs()
        inputs = InputIdentity(
            topics.impressions.id,
            topics.clicks.id,
            topics.log.partitions,
            event_specs[0].fingerprint,
            event_specs[1].fingerprint,
        )
        return mark_anew(
            partition,
            secrets.randbelow(2**64 - 1) + 1,
            after,
            last_tick=tick,
            stream_tick=stream_tick,
            impressions_from=impressions.begins,
            clicks_from=clicks.begins,
            spec=config.join_spec(),
            inputs=inputs,
            features=config.feature_spec().fingerprint,
        )

    def _refuse_members(self) -> None:
        """Raise JoinersRun if the group has members: a joiner that runs would write at the same time."""
        try:
            members = group_members(self._settings)
        except NotAuthorised:
            return  # the log shows afterwards whether a joiner was faster
        if members:
            raise JoinersRun(f"the group {self._config.group} has {count_of(members, 'member')}")

    def _write(self, partitions: Sequence[_Partition]) -> None:
        appender = Appender(self._settings, name="begin-anew")
        try:
            for one in partitions:
                if one.mark is not None:
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
        """Note whether the mark is accepted by rule R."""
        if delivery.error is not None:
            return
        try:
            for _ in one.tail.read_on(one.accepted, delivery.offset + 1):
                pass
        finally:
            one.tail.close()
        is_last = one.mark is not None and one.accepted.last == one.mark.id
        one.state = WRITTEN if is_last else OVERTAKEN

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
    """The row of a partition in the report: where it goes on, and what is lost."""
    if one is None:
        return {"partition": partition, "state": NO_MARK}
    mark = one.mark
    if mark is None:
        return {"partition": partition, "state": one.state}
    point = mark.resume
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
        "clicks_given_up": 0 if one.last is None else one.last.counts.clicks.waiting,
        "late_before_ms": max(point.impression_log_time - lateness_ms, 0),
    }


def _accepted(tail: LogTail, hint: Hint | None) -> Accepted:
    """Read a partition to its end by rule R."""
    try:
        return next(one for one in tail.find(hint, to_resume=False) if one is not None)
    finally:
        tail.close()


def _point_of(accepted: Accepted) -> ResumePoint | None:
    """The last resume point, None without one."""
    return None if accepted.resume is None else accepted.resume.resume


def _are_clicks_lost(topics: _Topics, accepted: Accepted) -> bool:
    """Whether the topic of the clicks was made anew since the last resume point."""
    point = _point_of(accepted)
    return point is not None and point.click_topic_id != topics.clicks.id


def _partitions_of(accepted: Accepted) -> int | None:
    """How many partitions the last resume point names, None without one."""
    point = _point_of(accepted)
    return None if point is None else point.partitions
