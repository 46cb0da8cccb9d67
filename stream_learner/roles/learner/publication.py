"""Publishes the model: what changed since the last publication, and the next few pages, in one transaction.

It publishes only versions beyond the last one in the topic, and it ends when another process takes over the
transactional id. Where weights move without being touched (`Optimizer.moves`), every page is written each time and the
delta is empty.

1. `init_transactions`: whoever published before is fenced, its open transaction ends.
2. Read the last version record of every shard: sequence, pages and version go on from there.
3. Publish nothing until the fold has passed the latest version in the topic.
4. Publish: delta and pages of every shard, the version records last, in one transaction.

| a crash after   | leaves                          | the next publisher                                           |
|-----------------|---------------------------------|--------------------------------------------------------------|
| step 1, 2 or 3  | nothing new                     | begins at step 1                                             |
| step 4, partly  | an open transaction             | aborts it in its step 1; rows are listed by their last tick  |
| step 4          | a version readers may have seen | passes it in its step 3, with the same bits                  |

After a rewind the first publication writes every page, too: what was published since holds rows that were changed by
what the rewind left behind, and readers must be told of them.

If Kafka has kept only a part of a transaction (a broker lost its log's end), step 2 finds records behind the last
version record. Readers may have taken them in. The shard goes on with a number beyond theirs, and with every page.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries, Record, TransactionalPublisher
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.pages import (
    PagePlan,
    PagePlanner,
    PagePolicy,
    PageState,
    Prefix,
    first_state,
    shard_prefix,
)
from stream_learner.core.snapshots.records import MODEL_SHARD, Stamp, publication
from stream_learner.core.snapshots.rows import StateRows, WeightRows, rows_between
from stream_learner.errors import RetryLater, StateOfAnotherModel
from stream_learner.roles.common.last_publication import LastPublication, read_last_publication
from stream_learner.wording import count_of


def _new_attempt_id() -> int:
    return secrets.randbits(64)


class Publication:
    """The publisher of a model. Used by the learner's thread, between two ticks."""

    def __init__(
        self,
        settings: KafkaSettings,
        queries: OffsetQueries,
        *,
        topic: str,
        transactional_id: str,
        shards: int,
        policy: PagePolicy,
        learner: Learner,
        new_publisher: Callable[[KafkaSettings, str], TransactionalPublisher] = TransactionalPublisher,
        read_last: Callable[..., LastPublication] = read_last_publication,
        new_attempt_id: Callable[[], int] = _new_attempt_id,
        begins_whole: Callable[[LastPublication], bool] = lambda last: False,
    ) -> None:
        """Make the publisher, which fences nobody before `begin`. new_attempt_id: makes a random u64.

        begins_whole: whether every row must be told anew after this last publication; may raise ModelRewound or
        OtherDecisions.
        """
        self._settings = settings
        self._new_publisher = new_publisher
        self._read_last = read_last
        self._new_attempt_id = new_attempt_id
        self._begins_whole = begins_whole
        self._queries = queries
        self._topic = topic
        self._shards = shards
        self._policy = replace(policy, whole=learner.optimizer.moves)
        self._learner = learner
        self._publisher = new_publisher(settings, transactional_id)
        self._planners: list[PagePlanner[WeightRows]] = []
        self._must_pass = -1
        self._relist = False
        self._begun = False
        self.version = -1
        self.sequence = 0
        self.bytes = 0

    def begin(self) -> LastPublication:
        """Steps 1 and 2; returns what was published last.

        Raises BrokerUnreachable, Fenced, StateOfAnotherModel, ModelRewound, DamagedLog.
        """
        # Step 1: fence whoever published before.
        self._publisher.init()
        # Step 2: go on from what the topic holds.
        last = self._read_last(self._settings, self._queries, self._topic, self._shards)
        self._check_model(last)
        whole = self._begins_whole(last)
        self._planners = [
            PagePlanner(shard_prefix(shard, self._shards), self._policy, self._left_by(last, shard, whole=whole))
            for shard in range(self._shards)
        ]
        self.version = last.complete_up_to
        self._must_pass = last.latest
        self._relist = True
        self._begun = True
        return last

    def _left_by(self, last: LastPublication, shard: int, *, whole: bool) -> PageState | None:
        """The state of a shard's pages that the next publication goes on from, None if nothing is published."""
        version, torn = last.versions[shard], last.torn.get(shard)
        state = version.state if version is not None else None
        if torn is None and state is not None and whole:
            torn = state.sequence
        if torn is None:
            return state
        return (state or first_state(shard_prefix(shard, self._shards), self._policy.ring)).after_torn(torn)

    def _check_model(self, last: LastPublication) -> None:
        if last.model is None:
            return
        mine = self._learner.kind()
        found = {name: last.model.content[name] for name in ("optimizer", "loss") if name in last.model.content}
        if found != mine:
            raise StateOfAnotherModel(f"{self._topic} was published by a learner with {found}, this one has {mine}")

    def may_publish(self, tick: int) -> bool:
        """Step 3: whether the fold has passed every version in the topic, and this one would be new.

        A model without an example is not published: it would answer ½ to everything, so scorers wait for the first.
        """
        return self._learner.examples > 0 and tick > max(self._must_pass, self.version)

    def publish(self, tick: int, checkpoint_tick: int, content: Mapping[str, Any]) -> int:
        """Step 4: publish the model as of `tick`; returns how many bytes were sent.

        content: of the model record. Raises RetryLater or BrokerUnreachable where nothing became visible (publish again
        later), Fenced where another process has taken over.
        """
        self._renew_if_outdated(tick)
        table = self._learner.table
        if self._relist:
            table.restart_changes(checkpoint_tick, self.version)
            self._relist = False
        changed = self._weights(table.take_changed_for_publication(tick))
        self._relist = True  # until the transaction is through
        plans = [self._plan(shard, changed) for shard in range(self._shards)]
        records = self._records(plans, tick, content)
        self._publisher.publish(records)
        self._relist = False
        for planner, plan in zip(self._planners, plans, strict=True):
            planner.commit(plan)
        self.version = tick
        self.sequence = max(plan.sequence for plan in plans)
        return sum(len(record.value or b"") for record in records)

    def _renew_if_outdated(self, tick: int) -> None:
        """Begin again at step 1 with the credentials on disk, if they have changed; this fences the old publisher."""
        if self._publisher.outdated:
            before, self._publisher = (
                self._publisher,
                self._new_publisher(self._settings, self._publisher.transactional_id),
            )
            before.close()
            self._begun = False
        if not self._begun:
            self.begin()
            if not self.may_publish(tick):
                raise RetryLater(f"another publisher has published {self._topic} up to {self._must_pass}")

    def _plan(self, shard: int, changed: WeightRows) -> PagePlan[WeightRows]:
        root = shard_prefix(shard, self._shards)
        return self._planners[shard].plan(rows_between(changed, root.bits, root.last), self._rows_of)

    def _rows_of(self, prefix: Prefix) -> WeightRows:
        rows = self._learner.table.rows_with_prefix(prefix.number, prefix.nbits)
        return self._weights(rows)

    def _weights(self, rows: StateRows) -> WeightRows:
        with np.errstate(over="ignore"):
            weights = self._learner.weights(rows.columns).astype(np.float32)
        wrong = len(weights) - int(np.count_nonzero(np.isfinite(weights)))
        if wrong:
            raise RetryLater(f"{count_of(wrong, 'weight')} would be published that is no finite number")
        return WeightRows(rows.keys, weights)

    def _records(self, plans: list[PagePlan[WeightRows]], tick: int, content: Mapping[str, Any]) -> list[Record]:
        attempt = self._new_attempt_id()
        digest = self._learner.digest()
        records = []
        for shard, plan in enumerate(plans):
            stamp = Stamp(shard, self._shards, plan.sequence, attempt, tick)
            described = content if shard == MODEL_SHARD else None
            for key, value in publication(plan, stamp, digest, described):
                records.append(Record(self._topic, shard, key, value))
        return records

    def close(self) -> None:
        """Drop the producer. The brokers end an open transaction when it times out."""
        self._publisher.close()
