"""The marks of one partition, against the input topics and against what the group has committed.

A committed offset is only a hint: it may lie behind the marks, and must not be ahead of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stream_learner.adapters.kafka import NO_TOPIC_ID, TopicAndPartition, TopicInfo
from stream_learner.adapters.kafka.ends import CommittedOffset
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.marks import LOG_TIME_RULES, InputIdentity, Mark, ResumePoint
from stream_learner.operations.audit.findings import COMMITTED, POSITIONS, RESUME_POINTS
from stream_learner.operations.audit.request import AuditedPartition
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.wording import count_of


@dataclass(frozen=True)
class InputTopics:
    """The two inputs as they are. ends: asked for after the end of the log; earliest: the first offsets they hold."""

    impressions: TopicInfo
    clicks: TopicInfo
    earliest: dict[TopicAndPartition, int]
    ends: dict[TopicAndPartition, int]
    committed: dict[TopicAndPartition, CommittedOffset]
    spec: JoinSpec
    event_fingerprints: tuple[int, int]
    features: int

    @property
    def identity(self) -> InputIdentity:
        """These topics as a resume point would name them."""
        return InputIdentity(self.impressions.id, self.clicks.id, self.impressions.partitions, *self.event_fingerprints)

    def differing_settings(self, mark: Mark, point: ResumePoint) -> list[str]:
        """The sections whose settings differ from those that a resume point was made with."""
        then, now = point.inputs, self.identity
        sections = (
            ("the join", point.join_fingerprint, self.spec.fingerprint),
            ("input.impressions", then.impressions_fingerprint, now.impressions_fingerprint),
            ("input.clicks", then.clicks_fingerprint, now.clicks_fingerprint),
            ("features", mark.features, self.features),
        )
        known = sections if point.rules >= LOG_TIME_RULES else sections[:1]
        return [section for section, then, now in known if then != now]

    def is_of_these(self, mark: Mark, point: ResumePoint) -> bool:
        """Whether a resume point is of these topics, whatever their partition counts were, and of these settings."""
        same = self.identity._replace(partitions=point.partitions) == point.inputs
        return same and point.rules >= LOG_TIME_RULES and not self.differing_settings(mark, point)

    def range_of(self, topic: TopicInfo, partition: int) -> tuple[int, int]:
        """The first offset that a partition holds, and its end."""
        place = (topic.name, partition)
        return self.earliest[place], self.ends[place]


class _Wrong(NamedTuple):
    """A finding that is reported at the end, unless the log begins anew before it."""

    check: str
    what: str
    offset: int
    tick: int


class InputChecks:
    """Checks one partition: call `take` with every mark in the range, then `finish`."""

    def __init__(self, place: AuditedPartition, inputs: InputTopics) -> None:
        self._place = place
        self._inputs = inputs
        self._resume: Mark | None = None
        self._wrong: list[_Wrong] = []
        """Findings of the marks since the log last began anew. Marks before that need not fit the topics any more."""

    def take(self, mark: Mark, offset: int) -> None:
        if mark.begins_anew:
            self._wrong.clear()
        partition = self._place.partition
        for name, topic, position in (
            ("next_impression", self._inputs.impressions, mark.next_impression),
            ("click_cursor", self._inputs.clicks, mark.click_cursor),
        ):
            end = self._inputs.range_of(topic, partition)[1]
            if position > end:
                what = f"{name} {position} is beyond the end of {topic.name}, {end}"
                self._wrong.append(_Wrong(POSITIONS, what, offset, mark.last_tick))
        if mark.resume is not None:
            self._resume = mark
            self._check_resume_point(mark, offset)

    def _check_resume_point(self, mark: Mark, offset: int) -> None:
        point, inputs = mark.resume, self._inputs
        assert point is not None
        self._place.findings.held(RESUME_POINTS)
        wrong = []
        for topic, topic_id in ((inputs.impressions, point.impression_topic_id), (inputs.clicks, point.click_topic_id)):
            if topic.id != topic_id and NO_TOPIC_ID not in (topic.id, topic_id):
                wrong.append(f"{topic.name} is another topic than the one that the log was made from: its id differs")
            if topic.partitions != point.partitions:
                wrong.append(
                    f"the log was made from {count_of(point.partitions, 'partition')}, {topic.name} has "
                    f"{topic.partitions}"
                )
        for section in inputs.differing_settings(mark, point):
            wrong.append(f"the log was made with other settings of {section} than those configured")
        self._wrong += [_Wrong(RESUME_POINTS, what, offset, mark.last_tick) for what in wrong]

    def finish(self, last: Mark | None, log_end: int, *, reaches_end: bool) -> dict[str, int | None]:
        """Check the last mark of the log against the topics. Returns how far the committed offsets lie behind it."""
        for wrong in self._wrong:
            self._place.fail(*wrong)
        lag: dict[str, int | None] = {"impressions": None, "clicks": None}
        if last is None or not reaches_end:
            return lag
        self._check_retained(last)
        for side, topic, position in (
            ("impressions", self._inputs.impressions, last.next_impression),
            ("clicks", self._inputs.clicks, last.click_cursor),
        ):
            found = self._inputs.committed.get((topic.name, self._place.partition))
            if found is None:
                continue
            self._place.findings.held(COMMITTED)
            lag[side] = position - found.offset
            if found.offset > position:
                what = f"the group has committed {found.offset} of {topic.name}, the last mark says {position}"
                self._place.fail(COMMITTED, what, tick=last.last_tick)
            hint = Hint.from_text(found.metadata) if side == "impressions" else None
            if hint is not None and (hint.read_from > log_end or hint.known.last_tick > last.last_tick):
                what = f"the group's hint, {found.metadata}, leads beyond the end of the log, {log_end}"
                self._place.fail(COMMITTED, what, tick=last.last_tick)
        return lag

    def not_joined(self, last: Mark | None) -> dict[str, int]:
        """How many offsets each input has behind the last mark; without a mark, all that it holds."""
        found = {}
        for side, topic, position in (
            ("impressions", self._inputs.impressions, 0 if last is None else last.next_impression),
            ("clicks", self._inputs.clicks, 0 if last is None else last.click_cursor),
        ):
            first, end = self._inputs.range_of(topic, self._place.partition)
            found[side] = max(end - max(position, first), 0)
        return found

    def _check_retained(self, last: Mark) -> None:
        """Check that the join can go on from the end of the log: the topics hold all that it still has to read."""
        partition, resume = self._place.partition, self._resume
        for what, topic, position in (
            ("impressions that no tick has taken", self._inputs.impressions, last.next_impression),
            ("clicks that no tick has taken", self._inputs.clicks, last.click_cursor),
        ):
            first, _ = self._inputs.range_of(topic, partition)
            if position < first:
                self._place.fail(
                    POSITIONS, f"{first - position} {what} are gone from {topic.name}", tick=last.last_tick
                )
        if resume is None or resume.resume is None:
            return
        for topic, position in (
            (self._inputs.impressions, resume.resume.dedupe_from),
            (self._inputs.clicks, resume.first_click),
        ):
            first, _ = self._inputs.range_of(topic, partition)
            if position < first:
                what = f"the last resume point needs {topic.name} from {position}, it begins at {first}"
                self._place.fail(RESUME_POINTS, f"{what}: no joiner can begin here", tick=resume.last_tick)
