"""`rewind`: take a stopped learner's state back to a kept checkpoint, from which it learns on.

1. Open the state, so that no learner has it; choose the newest kept checkpoint that is not too late.
2. Make a database of it beside the state, and load it as a learner does: its digest must be right, and the training
   log must still hold what follows it.
3. Say in its head which rewinds it went through, and close it.
4. Write the record of this rewind to the control topic; from then on no state that holds more is published.
5. Swap the databases (`roles/learner/state_swap.py`).

| a crash after     | leaves                                    | what next                                        |
|-------------------|-------------------------------------------|--------------------------------------------------|
| step 1, 2 or 3    | the state as it was                       | nothing was changed                              |
| step 4            | the state as it was, not published now    | the same command again, which writes no record   |
| step 5, partly    | a swap that was decided                   | the next start of the learner finishes it        |

A state that has missed a rewind of its model, as that of a standby, is taken back by the same command. It goes back no
less far than the model did, and takes over the record that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.adapters.rocksdb.history import KeptCheckpoint, amend_head, copy_out, kept_in
from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.control.rewinds import Rewind, Rewinds, Span, missed_by
from stream_learner.core.model.fold import Learner
from stream_learner.errors import LogTrimmed, NotFound, StateDamaged
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.learner.checkpoints import Checkpoints, open_store, rewinds_field, spans_of
from stream_learner.roles.learner.state_dir import damage_seen
from stream_learner.roles.learner.state_swap import finish_swap, new_database, swap
from stream_learner.wording import moment_of

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.roles.learner.log_follower import LogPosition

Fields = dict[str, Any]
LISTED = "`stream-learner rewind --list` shows those there are."


@dataclass(frozen=True)
class RewindRequest:
    """The request of an operator: a state with no tick after `to_tick`. who, why: for the record."""

    to_tick: int
    who: str
    why: str


@dataclass(frozen=True)
class _State:
    """The state as it is: its last tick, the rewinds it went through, and the features that it was learned from."""

    tick: int
    rewinds: tuple[Span, ...]
    subset: dict[str, Any] | None


def tick_before(config: Config, moment_ms: int) -> int:
    """The last tick that ends at a moment or before it."""
    return moment_ms // config.join.tick_ms - 1


def list_kept(config: Config) -> list[Fields]:
    """The checkpoints that are kept, newest first. A learner may have the state open."""
    return [_row(config, kept) for kept in reversed(kept_in(config.state_dir))]


def rewind(config: Config, request: RewindRequest, clock_ms: Callable[[], int] = wall_clock_ms) -> Fields:
    """Take the state back, and return what was done.

    Raises StateInUse; NotFound where there is no state, or nothing kept that is early enough; LogTrimmed where the
    training log no longer holds what follows; TopicMissing without a control topic; StateDamaged, StateOfAnotherModel,
    TopicRecreated, DiskFull, BrokerUnreachable.
    """
    return _Rewind(config, request, clock_ms).run()


class _Rewind:
    def __init__(self, config: Config, request: RewindRequest, clock_ms: Callable[[], int]) -> None:
        self._config, self._request, self._clock_ms = config, request, clock_ms
        self._settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.learner")
        self._admin = Admin(self._settings)
        self._log = get_logger("rewind")

    def run(self) -> Fields:
        config, path = self._config, self._config.state_dir
        # Step 1: the state, and what to go back to.
        if not (path / "CURRENT").exists() and not kept_in(path):
            raise NotFound(
                f"{path} holds no state", action="Check learner.state_dir: a rewind is of the state on disk."
            )
        topic = self._admin.require([config.examples_topic])[config.examples_topic]
        control = ControlTopic(self._settings, config.control_topic)
        control.check(b"rewind/" + config.model.encode())
        finish_swap(path)
        damage = damage_seen(path)
        if damage:
            raise StateDamaged(damage)
        with self._open(topic) as store:
            state = _state_of(store)
            there = control.state.rewinds.get(config.model)
            missed = None if there is None else missed_by(there.spans, known=len(state.rewinds), tick=state.tick)
            kept = self._choose(state, missed)
            # Step 2 and 3: the other database.
            rewinds = self._after(state, there, kept, missed=missed is not None)
            digest = self._make(kept, topic, state, rewinds)
            # Step 4: the record.
            if missed is None:
                control.write(rewinds)
            self._renew_gate(control, kept.tick)
        # Step 5: the swap.
        swap(path)
        last = rewinds.history[-1]
        self._log.warning(
            "rewound", from_tick=last.from_tick, to_tick=kept.tick, who=self._request.who, why=self._request.why
        )
        return {
            "model": config.model,
            "from_tick": state.tick,
            "to_tick": kept.tick,
            "to_time": moment_of((kept.tick + 1) * config.join.tick_ms),
            "digest": digest,
            "published_again_after": last.from_tick,
            "rewinds": len(rewinds.history),
            "follows": "" if missed is None else f"the rewind to tick {missed[0]} of {last.who}",
            "who": self._request.who,
            "why": self._request.why,
        }

    def _open(self, topic: TopicInfo) -> CheckpointStore:
        return open_store(self._config, self._new_learner(), topic.partitions)

    def _new_learner(self) -> Learner:
        config, settings = self._config, self._config.learner
        return Learner(
            config.optimizer(), loss=config.loss(), slice_ms=settings.metrics_slice_ms, max_rows=settings.max_rows
        )

    def _choose(self, state: _State, missed: Span | None) -> KeptCheckpoint:
        """The newest kept checkpoint that is early enough, and earlier than the state."""
        limit = self._request.to_tick if missed is None else min(self._request.to_tick, missed[0])
        if limit >= state.tick:
            time = moment_of((state.tick + 1) * self._config.join.tick_ms)
            raise NotFound(
                f"the state is of tick {state.tick} ({time}): it has nothing after tick "
                f"{limit} to take back; nothing was changed",
                action="Give an earlier `--to`. " + LISTED,
            )
        kept = kept_in(self._config.state_dir)
        found = [one for one in kept if one.tick <= limit]
        if not found:
            what = f"no checkpoint of tick {limit} or before is kept in {self._config.state_dir}"
            there = f"; the first is of tick {kept[0].tick}" if kept else ""
            raise NotFound(what + there + f"; the state is of tick {state.tick}", action=_instead(bool(kept)))
        return found[-1]

    def _after(self, state: _State, there: Rewinds | None, kept: KeptCheckpoint, *, missed: bool) -> Rewinds:
        """The rewinds of the model after this one; the same as before where the state only catches up with them."""
        config, request = self._config, self._request
        before = () if there is None else there.history
        if missed:
            return Rewinds(config.model, before)
        # A control topic that was made anew has forgotten what the state still says.
        forgotten = [Rewind(*span, who="", when_ms=0) for span in state.rewinds[len(before) :]]
        from_tick = max(state.tick, self._published())
        new = Rewind(kept.tick, from_tick, request.who, self._clock_ms(), request.why)
        return Rewinds(config.model, (*before, *forgotten, new))

    def _published(self) -> int:
        """The last version in the snapshot topic, -1 without one."""
        topic = self._config.snapshots_topic
        info = self._admin.describe([topic]).get(topic)
        if info is None:
            return -1
        return read_last_publication(self._settings, self._admin.offsets, topic, info.partitions).latest

    def _make(self, kept: KeptCheckpoint, topic: TopicInfo, state: _State, rewinds: Rewinds) -> str:
        """Steps 2 and 3; returns the digest of the state gone back to."""
        into = new_database(self._config.state_dir)
        copy_out(kept, into)
        config = self._config.with_values({("learner", "state_dir"): str(into)})
        checkpoints = Checkpoints(config, self._new_learner(), topic, subset_of_features=state.subset)
        try:
            positions = checkpoints.load()
            self._check_log(kept, positions)
            amend_head(checkpoints.store, rewinds_field(rewinds.spans))
            return f"{checkpoints.learner.digest():016x}"
        finally:
            checkpoints.close()

    def _check_log(self, kept: KeptCheckpoint, positions: dict[int, LogPosition]) -> None:
        topic = self._config.examples_topic
        earliest = self._admin.offsets.earliest([(topic, partition) for partition in positions])
        gone = sorted(p for p, position in positions.items() if position.offset < earliest[topic, p])
        if gone:
            raise LogTrimmed(
                f"{topic} partition {', '.join(map(str, gone))} no longer holds what follows the checkpoint of tick "
                f"{kept.tick}; nothing was changed",
                action="Go back to a later checkpoint, with `--to`; " + LISTED + " Or learn the model from the inputs "
                "under another name with `stream-learner backfill`, and promote it.",
            )

    def _renew_gate(self, control: ControlTopic, tick: int) -> None:
        """Take back what the learner has said of its gate beyond the tick that the state goes back to.

        A tick that it held is not reached, a model that it held is another now; decisions that came too late for the
        state before are in time for this one.
        """
        gate = control.state.gates.get(self._config.model)
        if gate is None:
            return
        in_time = {one.id for one in control.state.decisions_of(gate.log) if one.from_tick > tick}
        renewed = replace(
            gate,
            late=tuple(one for one in gate.late if one not in in_time),
            holding=None if gate.holding is None or gate.holding.tick > tick else gate.holding,
            publication=None,
        )
        if renewed != gate:
            note = f"rewound to tick {tick}"
            control.write(replace(renewed, who=self._request.who, when_ms=self._clock_ms(), note=note))


def _state_of(store: CheckpointStore) -> _State:
    loaded = store.load()
    if loaded is None:
        raise NotFound(f"{store.parts.path} holds no checkpoint", action="There is nothing to go back from.")
    return _State(loaded.version, spans_of(loaded.head), loaded.head.get("subset_of_features"))


def _instead(any_kept: bool) -> str:
    if any_kept:
        return LISTED + " To go back further, learn the model from the log again, with an empty state directory."
    return "learner.history says what a learner keeps. " + LISTED


def _row(config: Config, kept: KeptCheckpoint) -> Fields:
    note = kept.note
    named: Sequence[str] = ("examples", "rows", "digest", "rewinds")
    return {
        "tick": kept.tick,
        "time": moment_of((kept.tick + 1) * config.join.tick_ms),
        **{name: note.get(name) for name in named},
        "size_mib": round(kept.size_bytes / 2**20, 1),
    }
