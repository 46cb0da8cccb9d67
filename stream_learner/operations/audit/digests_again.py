"""Folds the training log again, and compares the digest with that of every version that is still published.

The copied checkpoint is compared too. The model that is made is dropped: nothing is written or published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.core.control.rewinds import Span
from stream_learner.core.gate.decisions import Decisions
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.checkpoint_copy import CopyHead
from stream_learner.errors import DamagedLog, LogTrimmed, NewerFormat
from stream_learner.evaluate.log_source import in_order_of_the_fold
from stream_learner.operations.audit.copy_check import digest_of, head_content
from stream_learner.operations.audit.findings import COPIED_CHECKPOINT, DIGESTS_AGAIN, Finding, Findings
from stream_learner.operations.audit.snapshots_check import Published
from stream_learner.roles.common.log_reader import accepted_ticks
from stream_learner.roles.control.decisions import DecidedTicks, decisions_on, rewinds_of
from stream_learner.roles.learner.checkpoints import spans_of
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config


MEND_CONTROL = (
    "Write the record that this key had before again, or delete the key (a null value) if it had none: docs/audit.md"
)


class Known(NamedTuple):
    """The sources of digests: the published versions, and the copied checkpoint, None if there is none."""

    published: Published
    copy: CopyHead | None


class _Expected(NamedTuple):
    """The digest that a topic says the model has at a tick, and the check that it belongs to."""

    tick: int
    digest: int
    check: str
    topic: str


class DigestsAgain:
    """Folds, and compares at each version.

    tick: the last one folded; learner: the model there; left: digests that are not compared yet; compared: the number
    of published versions that were.
    """

    def __init__(
        self, config: Config, known: Known, findings: Findings, decisions: Decisions, rewinds: Sequence[Span] = ()
    ) -> None:
        """decisions: of operators, on the log. rewinds: what was published within them is of a course that was left."""
        self.learner = Learner(config.optimizer(), loss=config.loss(), max_rows=config.learner.max_rows)
        self.tick = -1
        self.compared = 0
        published, copy = known.published, known.copy
        expected = [_Expected(*one, DIGESTS_AGAIN, config.snapshots_topic) for one in published.digests.items()]
        if copy is not None:
            expected.append(_Expected(copy.tick, digest_of(copy), COPIED_CHECKPOINT, config.checkpoints_topic))
        if copy is not None and len(spans_of(head_content(copy))) < len(rewinds):
            left_behind = {COPIED_CHECKPOINT, DIGESTS_AGAIN}
        else:
            left_behind = {DIGESTS_AGAIN}
        self.left = sorted(
            one
            for one in expected
            if one.check not in left_behind or not any(to < one.tick <= end for to, end in rewinds)
        )
        self._findings = findings
        self._decided = DecidedTicks(decisions)

    def fold(self, accepted: AcceptedTick) -> None:
        """Learn from an accepted tick, unless a decision leaves it out."""
        self.tick = accepted.mark.last_tick
        if not self._decided.leaves_out(accepted):
            for _, record in accepted.records:
                self.learner.fold(record, self.tick)
        self.learner.decided = self._decided.digest

    def compare_before(self, tick: int) -> None:
        """Compare with every version before `tick`, the next one to be folded."""
        while self.left and self.left[0].tick < tick:
            one = self.left.pop(0)
            self.compared += one.check == DIGESTS_AGAIN
            self._findings.held(one.check)
            made = self.learner.digest()
            if made != one.digest:
                was = "published" if one.check == DIGESTS_AGAIN else "copied"
                what = f"version {one.tick} was {was} with digest {one.digest:016x}, the log gives {made:016x}"
                self._findings.fail(Finding(one.check, what, one.topic, tick=one.tick))


def check_digests(
    config: Config,
    settings: KafkaSettings,
    admin: Admin,
    known: Known,
    findings: Findings,
    until_tick: int | None,
    progress: Callable[[int], None],
) -> DigestsAgain | None:
    """Fold the log up to `until_tick` and compare. None, and a note why, if the log says nothing of the versions.

    Raises BrokerUnreachable, NotAuthorised.
    """
    why = _why_not(config, admin, known)
    if why:
        findings.leave_out(DIGESTS_AGAIN, why)
        return None
    topic = config.examples_topic
    try:
        decisions = decisions_on(settings, config.control_topic, topic, config.model)
        rewinds = rewinds_of(settings, config.control_topic, config.model)
    except (DamagedLog, NewerFormat) as error:
        findings.leave_out(DIGESTS_AGAIN, f"the decisions on the log cannot be read: {error}. {MEND_CONTROL}")
        return None
    fold = DigestsAgain(config, known, findings, decisions, rewinds)
    partitions = admin.require([topic])[topic].partitions
    passed = [-1] * partitions
    try:
        with ExitStack() as stack:
            streams = [
                stack.enter_context(closing(accepted_ticks(settings, admin.offsets, topic, partition)))
                for partition in range(partitions)
            ]
            for tick in in_order_of_the_fold(streams):
                mark = tick.mark
                if until_tick is not None and mark.last_tick > until_tick:
                    passed = [max(last, until_tick) for last in passed]
                    break
                fold.compare_before(mark.last_tick)
                fold.fold(tick)
                passed[mark.partition] = mark.last_tick
                progress(1 + mark.records)
    except (DamagedLog, LogTrimmed, NewerFormat) as error:
        findings.leave_out(DIGESTS_AGAIN, f"the log cannot be folded: {error}")
        return fold
    fold.compare_before(min(passed) + 1)
    left = Counter(one.check for one in fold.left if until_tick is None or one.tick <= until_tick)
    for check, count in left.items():
        why = f"{count_of(count, 'version')} beyond the last tick of the log that every partition has passed"
        findings.leave_out(check, why)
    return fold


def _why_not(config: Config, admin: Admin, known: Known) -> str:
    """The reason why folding the log says nothing of what is published, "" if it does."""
    published, copy = known.published, known.copy
    if not published.digests or published.content is None:
        return "nothing is published" if not published.digests else "the model record is missing"
    content, learner = published.content, Learner(config.optimizer(), loss=config.loss())
    mine = learner.kind()
    theirs = {name: content[name] for name in ("optimizer", "loss") if name in content}
    if mine != theirs:
        return f"published by a learner with {theirs}, the configuration has {mine}"
    if content["features"] != config.feature_spec().to_dict():
        return "the model was learned from other features than those configured"
    if copy is not None and head_content(copy).get("subset_of_features") is not None:
        return "the model was learned from fewer features than the log has"
    topic = config.examples_topic
    places = [(topic, partition) for partition in range(admin.require([topic])[topic].partitions)]
    trimmed = [place[1] for place, offset in admin.offsets.earliest(places).items() if offset > 0]
    if trimmed:
        return f"{topic} has lost its beginning in partition {', '.join(map(str, trimmed))}"
    return ""
