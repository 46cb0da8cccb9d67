"""The training log folded again, and its digest compared with that of every version that is still published.

In: the training log from its beginning, published versions. Out: findings, and what could not be compared and why.
This file must never write a checkpoint or publish: the model it makes is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from stream_learner.core.learner import Learner
from stream_learner.edges.kafka import Admin, KafkaSettings
from stream_learner.errors import DamagedLog, LogTrimmed, NewerFormat
from stream_learner.roles.accepted_ticks import accepted_ticks
from stream_learner.roles.audit.findings import DIGESTS_AGAIN, Finding, Findings
from stream_learner.roles.audit.snapshots_check import Published
from stream_learner.roles.evaluation.log_source import in_order_of_the_fold

if TYPE_CHECKING:
    from stream_learner.config import Config


class DigestsAgain:
    """Folds, and compares at each version. `tick`: up to which it has folded; `learner`: the model there."""

    def __init__(self, config: Config, published: Published, findings: Findings) -> None:
        self.learner = Learner(config.optimizer(), loss=config.loss())
        self.tick = -1
        self.compared = 0
        self._topic = config.snapshots_topic
        self._versions = sorted(published.digests.items())
        self._findings = findings

    def compare_before(self, tick: int) -> None:
        """Compare with every version that lies before the next tick to be folded."""
        while self.compared < len(self._versions) and self._versions[self.compared][0] < tick:
            version, digest = self._versions[self.compared]
            self.compared += 1
            self._findings.held(DIGESTS_AGAIN)
            made = self.learner.digest()
            if made != digest:
                what = f"version {version} was published with digest {digest:016x}, the log gives {made:016x}"
                self._findings.fail(Finding(DIGESTS_AGAIN, what, self._topic, tick=version))

    @property
    def left(self) -> list[int]:
        """The versions that were not compared."""
        return [version for version, _ in self._versions[self.compared :]]


def check_digests(
    config: Config,
    settings: KafkaSettings,
    admin: Admin,
    published: Published,
    findings: Findings,
    until_tick: int | None,
    progress: Callable[[int], None],
) -> DigestsAgain | None:
    """Fold the log up to `until_tick` and compare; None, with the reason noted, where that says nothing.

    Raises BrokerUnreachable, NotAuthorised.
    """
    why = _why_not(config, admin, published)
    if why:
        findings.leave_out(DIGESTS_AGAIN, why)
        return None
    fold = DigestsAgain(config, published, findings)
    topic = config.examples_topic
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
                for _, record in tick.records:
                    fold.learner.fold(record, mark.last_tick)
                passed[mark.partition] = mark.last_tick
                fold.tick = mark.last_tick
                progress(1 + mark.records)
    except (DamagedLog, LogTrimmed, NewerFormat) as error:
        findings.leave_out(DIGESTS_AGAIN, f"the log cannot be folded: {error}")
        return fold
    fold.compare_before(min(passed) + 1)
    left = [version for version in fold.left if until_tick is None or version <= until_tick]
    if left:
        findings.leave_out(
            DIGESTS_AGAIN, f"{len(left)} versions beyond the last tick of the log that every partition has passed"
        )
    return fold


def _why_not(config: Config, admin: Admin, published: Published) -> str:
    """Why folding the log can say nothing of what is published, "" if it can."""
    if not published.digests or published.content is None:
        return "nothing is published" if not published.digests else "the model record is missing"
    content, learner = published.content, Learner(config.optimizer(), loss=config.loss())
    mine = learner.kind()
    theirs = {name: content[name] for name in ("optimizer", "loss") if name in content}
    if mine != theirs:
        return f"published by a learner with {theirs}, the configuration has {mine}"
    if content["features"] != config.feature_spec().to_dict():
        return "the model was learned from other features than those configured"
    topic = config.examples_topic
    places = [(topic, partition) for partition in range(admin.require([topic])[topic].partitions)]
    trimmed = [place[1] for place, offset in admin.offsets.earliest(places).items() if offset > 0]
    if trimmed:
        return f"{topic} has lost its beginning in partition {', '.join(map(str, trimmed))}"
    return ""
