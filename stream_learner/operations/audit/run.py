"""`audit`: read what the topics hold of a model, and check that it is sound.

It writes nothing, commits no offset, and never becomes a member of a group: it may run beside the roles.

1. Ask what was copied last and what the group has committed, then where the log ends, then where the inputs end. In
   this order a sound model passes while its roles run on.
2. Read each partition of the training log once, and check every tick; with `replay`, make it again from the inputs.
3. Read the dead letters, and compare them with what the marks count.
4. Read the snapshots.
5. Read the copy of the last checkpoint.
6. With `replay`, fold the log again, and compare the digest with every version that is published, and with the copy's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicAndPartition
from stream_learner.adapters.kafka.ends import committed_offsets
from stream_learner.core.snapshots.checkpoint_copy import CopyHead
from stream_learner.errors import AuditFailed, AuditIncomplete, NotFound, StreamLearnerError
from stream_learner.operations.audit.copy_check import CopyCheck, CopyPosition, digest_of, positions_of
from stream_learner.operations.audit.dead_letters import check_dead_letters, expected_letters
from stream_learner.operations.audit.digests_again import DigestsAgain, Known, check_digests
from stream_learner.operations.audit.examples_again import AgainPlan, ExamplesAgain
from stream_learner.operations.audit.findings import (
    FAILS,
    NOT_CHECKED,
    ORDER,
    Findings,
)
from stream_learner.operations.audit.inputs_check import InputChecks, InputTopics
from stream_learner.operations.audit.log_walk import LogWalk
from stream_learner.operations.audit.mark_checks import MarkChecks, Sums
from stream_learner.operations.audit.positives import check_positives
from stream_learner.operations.audit.request import AuditedPartition, AuditRequest
from stream_learner.operations.audit.snapshots_check import Published, check_snapshots
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.roles.joiner.bad_records import BadShare
from stream_learner.roles.joiner.inputs import InputPlan
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config


@dataclass(frozen=True)
class AuditStatus:
    """The topic that is read, the records read and to read (None if that is not known), and the number of findings."""

    what: str
    done: int
    of: int | None
    findings: int


Show = Callable[[AuditStatus], None]


class _Progress:
    """Counts the records of one phase after the other, and shows the status at every thousandth."""

    EVERY = 1000

    def __init__(self, show: Show, findings: Findings) -> None:
        self._show = show
        self._findings = findings
        self._what, self._done, self._of = "", 0, None

    def begin(self, what: str, of: int | None) -> None:
        """Begin to count the records of the next phase."""
        self._what, self._done, self._of = what, 0, of  # type: ignore[assignment]
        self._tell()

    def __call__(self, records: int) -> None:
        before = self._done // self.EVERY
        self._done += records
        if self._done // self.EVERY != before:
            self._tell()

    def _tell(self) -> None:
        self._show(AuditStatus(self._what, self._done, self._of, self._findings.total))


def audit(config: Config, request: AuditRequest, show: Show = lambda status: None) -> dict[str, Any]:
    """Audit a model, and return the report as `--json` prints it.

    Raises TopicMissing, NotFound for a partition that does not exist, BrokerUnreachable, NotAuthorised.
    """
    return _Audit(with_key_rule(config), request, show).run()


class _Audit:
    def __init__(self, config: Config, request: AuditRequest, show: Show) -> None:
        self._config = config
        self._request = request
        self._settings = KafkaSettings(config.kafka_options(), group=config.group)
        self._admin = Admin(self._settings)
        self._findings = Findings(request.limit)
        self._progress = _Progress(show, self._findings)
        self._copy: CopyHead | None = None
        self._sums: dict[int, Sums] = {}
        self._rows: list[dict[str, Any]] = []
        self._partition_count = 0
        self._log_ends: dict[int, int] = {}
        """The last tick of each partition that was read to its end, -1 without one."""

    def run(self) -> dict[str, Any]:
        config, findings = self._config, self._findings
        # Step 1: the last copy, committed offsets, the end of the log, the ends of the inputs; in this order.
        found = self._admin.require([config.input.impressions.topic, config.input.clicks.topic, config.examples_topic])
        log = found[config.examples_topic]
        partitions, self._partition_count = self._partitions(log.partitions), log.partitions
        inputs = [found[config.input.impressions.topic], found[config.input.clicks.topic]]
        input_places = [(topic.name, p) for topic in inputs for p in range(topic.partitions)]
        copies = CopyCheck(config, self._settings, self._admin, findings)
        self._copy = copies.head()
        committed = committed_offsets(self._settings, input_places)
        places = [(log.name, partition) for partition in partitions]
        ends, earliest = self._admin.offsets.high_watermarks(places), self._admin.offsets.earliest(places)
        event_specs = config.event_specs()
        topics = InputTopics(
            impressions=inputs[0],
            clicks=inputs[1],
            earliest=self._admin.offsets.earliest(input_places),
            ends=self._admin.offsets.high_watermarks(input_places),
            committed=committed,
            spec=config.join_spec(),
            event_fingerprints=(event_specs[0].fingerprint, event_specs[1].fingerprint),
            features=config.feature_spec().fingerprint,
        )
        # Step 2: the training log.
        self._progress.begin(log.name, sum(ends.values()) - sum(earliest.values()))
        for place in places:
            self._check_partition(place, earliest[place], ends[place], topics)
        # Step 3: the dead letters.
        self._progress.begin(config.dead_letters_topic, None)
        letters = expected_letters(inputs[0].name, inputs[1].name, self._sums)
        check_dead_letters(self._settings, self._admin, config.dead_letters_topic, letters, findings, self._progress)
        # Step 4: the snapshots.
        self._progress.begin(config.snapshots_topic, None)
        published = check_snapshots(config, self._settings, self._admin, findings, self._progress)
        # Step 5: the copy of the last checkpoint.
        self._progress.begin(config.checkpoints_topic, None)
        copy = copies.check(log, self._progress)
        # Step 6: the digests.
        fold = None
        if self._request.replay:
            self._progress.begin(f"folding {log.name}", sum(ends.values()) - sum(earliest.values()))
            until = self._request.range.until_tick
            fold = check_digests(
                config, self._settings, self._admin, Known(published, copy), findings, until, self._progress
            )
        check_positives(config, self._sums, findings, replay=self._request.replay)
        return self._report(published, copy, fold)

    def _partitions(self, there: int) -> list[int]:
        wanted = sorted(set(self._request.partitions)) or list(range(there))
        missing = [partition for partition in wanted if partition >= there]
        if missing:
            raise NotFound(f"{self._config.examples_topic} has no partition {missing[0]}; it has {there}")
        return wanted

    def _check_partition(self, place: TopicAndPartition, earliest: int, end: int, topics: InputTopics) -> None:
        """Step 2, for one partition."""
        audited = AuditedPartition(self._settings, *place, self._request.range, self._findings, progress=self._progress)
        marks, inputs = MarkChecks(audited, topics.spec), InputChecks(audited, topics)
        again, copied = self._again(audited, topics), self._copied(audited)
        with audited.records(end) as records:
            unusable = UnusableRecords(self._settings, self._admin.offsets)
            walk = LogWalk(audited, records, earliest, unusable)
            try:
                for step in walk.ticks():
                    if step.in_range:
                        marks.take(step)
                        inputs.take(step.tick.mark, step.tick.mark_offset)
                    if copied is not None:
                        copied.take(step)
                    if again is not None:
                        again.take(step)
            finally:
                if again is not None:
                    again.close()
        if copied is not None:
            copied.finish(walk, earliest)
        self._sums[audited.partition] = marks.sums
        lag = inputs.finish(marks.sums.last, end, reaches_end=walk.reaches_end)
        self._note_coverage(audited, marks.sums, reaches_end=walk.reaches_end)
        not_joined = inputs.not_joined(marks.sums.last) if walk.reaches_end else None
        if walk.reaches_end:
            self._log_ends[audited.partition] = marks.sums.last.last_tick if marks.sums.last is not None else -1
        self._rows.append({**_row(audited.partition, marks.sums, walk, lag), "not_joined": not_joined})

    def _copied(self, place: AuditedPartition) -> CopyPosition | None:
        positions = {} if self._copy is None else positions_of(self._copy)
        if self._copy is None or not positions:
            return None
        # A partition that was added after the copy was made has no position: the learner begins at its beginning.
        position = positions.get(place.partition, LOG_BEGINNING)
        return CopyPosition(place, self._config.checkpoints_topic, self._copy.tick, position)

    def _again(self, place: AuditedPartition, topics: InputTopics) -> ExamplesAgain | None:
        if not self._request.replay:
            return None
        config = self._config
        forms = EventForms(config)
        plan = InputPlan(
            settings=self._settings,
            impressions_topic=topics.impressions.name,
            clicks_topic=topics.clicks.name,
            impression_decoder=forms.impression_decoder(config.feature_spec()),
            click_decoder=forms.click_decoder(),
            bad_share=BadShare(1.0, 1),
            clock=None,
        )
        return ExamplesAgain(place, AgainPlan(plan, topics, self._start(topics, place.partition)))

    def _start(self, topics: InputTopics, partition: int) -> tuple[int, int] | None:
        """The offsets at which the log was begun; None if inputs are trimmed or `join.start` is `latest`."""
        both = (topics.impressions, topics.clicks)
        where = self._config.join.start
        if where == "latest" or any(topics.range_of(topic, partition)[0] > 0 for topic in both):
            return None
        if not isinstance(where, int):
            return 0, 0
        places = [(topic.name, partition) for topic in both]
        found = self._admin.offsets.at_time(places, where)
        impressions, clicks = (found[place] if found[place] >= 0 else topics.ends[place] for place in places)
        return impressions, clicks

    def _note_coverage(self, place: AuditedPartition, sums: Sums, *, reaches_end: bool) -> None:
        """Report what was asked for and is not in the log."""
        wanted = self._request.range
        if sums.first is None or sums.last is None:
            if wanted != type(wanted)():
                place.leave_out(ORDER, "the log holds no mark of the range")
            return
        first, last = sums.first.first_tick, sums.last.last_tick
        if wanted.from_tick is not None and first > wanted.from_tick:
            place.leave_out(ORDER, f"the log begins with tick {first}")
        if wanted.until_tick is not None and last < wanted.until_tick and reaches_end:
            place.leave_out(ORDER, f"the log ends with tick {last}")

    def _ticks_behind(self, published: Published) -> int | None:
        """The number of ticks that every partition has passed and that no version has; None if that was not read."""
        if len(self._log_ends) < self._partition_count:
            return None
        begins = [sums.first.first_tick for sums in self._sums.values() if sums.first is not None]
        return max(min(self._log_ends.values()) - max(published.last, min(begins, default=0) - 1), 0)

    def _report(self, published: Published, copy: CopyHead | None, fold: DigestsAgain | None) -> dict[str, Any]:
        config, replayed = self._config, self._request.replay
        found = self._findings.report(replayed=replayed)
        statuses = {check["status"] for check in found["checks"].values()}
        return {
            "model": config.model,
            "log": config.examples_topic,
            "range": asdict(self._request.range),
            "replay": replayed,
            "sound": FAILS not in statuses,
            "complete": NOT_CHECKED not in statuses,
            "partitions": self._rows,
            "balance": _total(self._sums),
            "published": {
                "version": published.last,
                "digest": None if published.content is None else published.content["digest"],
                "versions": len(published.digests),
                "compared": 0 if fold is None else fold.compared,
                "ticks_behind": self._ticks_behind(published),
            },
            "copied": None if copy is None else {"tick": copy.tick, "digest": f"{digest_of(copy):016x}"},
            "folded": None if fold is None else {"tick": fold.tick, "digest": f"{fold.learner.digest():016x}"},
            **found,
        }


def _row(partition: int, sums: Sums, walk: LogWalk, lag: dict[str, int | None]) -> dict[str, Any]:
    """The row of a partition in the report."""
    return {
        "partition": partition,
        "from_tick": None if sums.first is None else sums.first.first_tick,
        "until_tick": None if sums.last is None else sums.last.last_tick,
        "from_offset": sums.from_offset,
        "until_offset": sums.until_offset,
        "records": walk.records,
        "marks": sums.marks,
        "attempts": sums.attempts,
        "resume_points": sums.resume_points,
        "examples": sums.examples,
        "positives": sums.positives,
        "ignored_marks": walk.ignored_marks,
        "ignored_records": walk.ignored_records,
        "foreign_records": walk.foreign_records,
        "skipped_records": walk.skipped_records,
        "lost_examples": sums.lost_examples,
        "gaps": walk.gaps,
        "begins_anew": sums.begins_anew,
        "committed_lag": lag,
    }


def _total(sums: dict[int, Sums]) -> dict[str, dict[str, int]]:
    """The balances of all partitions added up, in the form of `Balance.to_dict`."""
    total: dict[str, dict[str, int]] = {}
    for balance in (balance for of in sums.values() for balance in of.balances):
        for side, counts in balance.to_dict().items():
            for name, count in counts.items():
                total.setdefault(side, {}).setdefault(name, 0)
                total[side][name] += count
    return total


def verdict(found: dict[str, Any]) -> StreamLearnerError | None:
    """The error to end with: AuditFailed before AuditIncomplete; None if everything asked for holds."""
    by_status: dict[str, list[str]] = {}
    for name, check in found["checks"].items():
        by_status.setdefault(check["status"], []).append(name.replace("_", " "))
    if not found["sound"]:
        return AuditFailed(
            f"{found['model']} is not sound: {count_of(found['total'], 'finding')} in {', '.join(by_status[FAILS])}"
        )
    if not found["complete"]:
        return AuditIncomplete(f"{found['model']}: not everything was checked of {', '.join(by_status[NOT_CHECKED])}")
    return None
