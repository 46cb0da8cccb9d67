"""The copy of the learner's last checkpoint: whether a lost state directory could be restored from it.

`CopyCheck` reads the topic of the copies: every piece that the head names must be there, whole and of this model.
`CopyPosition` holds the positions of the checkpoint against the training log. The model at a tick is made of every
accepted tick up to it, so a position lies right behind the last mark that is accepted up to the tick of the checkpoint.
A position that the range of the audit does not reach must never count as wrong, nor a copy as torn that a newer one has
replaced while it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.adapters.rocksdb.copy import PieceId, piece_ids_of
from stream_learner.adapters.rocksdb.layout import key_of
from stream_learner.adapters.rocksdb.store import differing_identity
from stream_learner.core.errors import DamagedRecord, RecordError
from stream_learner.core.log.marks import GENESIS, MarkId
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.checkpoint_copy import CopyHead, piece_key
from stream_learner.core.snapshots.records import DeltaRecord, PageRecord, decode
from stream_learner.core.snapshots.rows import StateRows
from stream_learner.errors import DamagedLog, NewerFormat
from stream_learner.operations.audit.findings import COPIED_CHECKPOINT, Finding, Findings
from stream_learner.operations.audit.log_walk import LogWalk, Step
from stream_learner.operations.audit.request import AuditedPartition
from stream_learner.roles.learner.checkpoints import RISING, state_identity
from stream_learner.roles.learner.copies.restore import committed_records, read_last_copy
from stream_learner.roles.learner.log_follower import LogPosition
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config


LOOKS = 20
"""How often to begin again if a newer copy replaces the one that is read."""


class _Piece(NamedTuple):
    """A piece of a copy as it was read: its offset, and its fault, "" for none."""

    offset: int
    wrong: str


class CopyCheck:
    """The topic of the copies. Call `head` before the end of the training log is asked for, and `check` after."""

    def __init__(self, config: Config, settings: KafkaSettings, admin: Admin, findings: Findings) -> None:
        self._config, self._settings, self._admin, self._findings = config, settings, admin, findings
        self._topic = config.checkpoints_topic

    def head(self) -> CopyHead | None:
        """The head of the last copy; None if there is none, or if it cannot be read, which `check` reports.

        Raises BrokerUnreachable, NotAuthorised.
        """
        return self._look()[0]

    def check(self, log: TopicInfo, progress: Callable[[int], None]) -> CopyHead | None:
        """Check the last copy, and return its head, None if there is none. Raises BrokerUnreachable, NotAuthorised."""
        copy, trouble = self._look()
        for _ in range(LOOKS):
            if copy is None:
                break
            seen = self._read(copy, progress)
            missing = [place for place in piece_ids_of(copy) if place not in seen]
            newer, trouble = self._look() if missing else (copy, trouble)
            if newer is not None and newer.stamp == copy.stamp:
                self._note(copy, log, missing, seen)
                break
            copy = newer
        else:
            self._findings.leave_out(COPIED_CHECKPOINT, f"it was replaced by another {LOOKS} times while it was read")
        if trouble:
            self._findings.held(COPIED_CHECKPOINT)
            self._fail(trouble)
        return copy

    def _look(self) -> tuple[CopyHead | None, str]:
        """The last head, and why it cannot be read; None and "" if nothing was ever copied."""
        if not self._config.learner.copies or self._topic not in self._admin.describe([self._topic]):
            return None, ""
        try:
            last = read_last_copy(self._settings, self._admin.offsets, self._topic)
        except (DamagedLog, NewerFormat) as error:
            return None, str(error)
        return last.head, last.trouble

    def _read(self, copy: CopyHead, progress: Callable[[int], None]) -> dict[PieceId, _Piece]:
        """The pieces that the head names and the topic holds."""
        wanted: dict[tuple[int, bytes | None], PieceId] = {
            (place[0], piece_key(copy.lineage, place[1])): place for place in piece_ids_of(copy)
        }
        shards = min(len(copy.versions), self._admin.require([self._topic])[self._topic].partitions)
        seen: dict[PieceId, _Piece] = {}
        for shard in range(shards):
            at = (self._topic, shard)
            end, earliest = (
                self._admin.offsets.last_stable_offsets([at])[at],
                self._admin.offsets.earliest([at])[at],
            )
            for offset, key, value in committed_records(self._settings, *at, earliest, end):
                progress(1)
                place = wanted.get((shard, key))
                if place is None:
                    continue
                seen.pop(place, None)
                if value is not None:
                    seen[place] = _Piece(offset, _wrong(copy, place, value))
        return seen

    def _note(self, copy: CopyHead, log: TopicInfo, missing: list[PieceId], seen: dict[PieceId, _Piece]) -> None:
        """Report what does not hold of a copy that was read."""
        self._findings.held(COPIED_CHECKPOINT, len(missing) + len(seen))
        for shard, key in missing:
            self._fail(f"piece {key.hex()} is missing", shard, tick=copy.tick)
        for (shard, key), piece in seen.items():
            if piece.wrong:
                self._fail(f"piece {key.hex()}: {piece.wrong}", shard, piece.offset, copy.tick)
        for wrong in self._wrong_head(copy, log):
            self._fail(wrong, 0, tick=copy.tick)

    def _wrong_head(self, copy: CopyHead, log: TopicInfo) -> list[str]:
        """The faults of the head: it is of another model or log, or contradicts itself."""
        config = self._config
        learner = Learner(config.optimizer(), loss=config.loss())
        mine = state_identity(config, learner, log.partitions)
        mine |= {"shards": config.snapshots.shards, "ncols": len(learner.optimizer.columns)}
        theirs = copy.identity
        wrong = [
            f"a copy of another model's state: {name} is {theirs.get(name)!r} there, {mine[name]!r} here"
            for name in differing_identity({name: theirs.get(name) for name in mine}, mine, RISING)
        ]
        content = head_content(copy)
        if content.get("log_topic_id") != log.id.hex():
            wrong.append(f"its positions are of another {log.name}: the topic was deleted and made anew")
        positions = positions_of(copy)
        if sorted(positions) != list(range(len(positions))) or not 0 < len(positions) <= log.partitions:
            wrong.append(
                f"it has positions of {count_of(len(positions), 'partition')}, {log.name} has {log.partitions}"
            )
        digests = {f"{record.digest:016x}" for record in copy.version_records()}
        scalars = content.get("learner")
        digests.add(str(scalars.get("digest") if isinstance(scalars, dict) else None))
        if len(digests) > 1:
            wrong.append(f"its head and shards have the digests {', '.join(sorted(digests))}")
        return wrong

    def _fail(
        self, what: str, partition: int | None = None, offset: int | None = None, tick: int | None = None
    ) -> None:
        self._findings.fail(Finding(COPIED_CHECKPOINT, what, self._topic, partition, offset, tick))


def head_content(copy: CopyHead) -> dict[str, Any]:
    """The learner's own part of the head: positions, scalars, the id of the log."""
    content = copy.head_record().content.get("head")
    return content if isinstance(content, dict) else {}


def positions_of(copy: CopyHead) -> dict[int, LogPosition]:
    """The positions in the training log from which the checkpoint goes on, by partition; empty if unreadable."""
    try:
        return {
            int(partition): LogPosition(int(offset), MarkId(int(attempt), int(last_tick)))
            for partition, (offset, attempt, last_tick) in head_content(copy)["positions"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def digest_of(copy: CopyHead) -> int:
    """The digest of the model at the tick of the checkpoint."""
    return copy.version_records()[0].digest


def _wrong(copy: CopyHead, place: PieceId, value: bytes) -> str:
    """The fault of the value of a piece, "" for none."""
    shard, key = place
    try:
        record = decode(None, value)
        if not isinstance(record, DeltaRecord | PageRecord) or not isinstance(record.rows, StateRows):
            raise DamagedRecord(f"a {type(record).__name__} where rows of the state should be")
    except RecordError as error:
        return error.what
    is_of_place = (record.stamp.shard, record.stamp.shards, key_of(record)) == (shard, len(copy.versions), key)
    if not is_of_place or record.rows.ncols != copy.identity.get("ncols"):
        return "it holds rows of another place"
    return ""


class CopyPosition:
    """Checks one partition: call `take` with every step, those before the range too, then `finish`."""

    def __init__(self, place: AuditedPartition, topic: str, tick: int, position: LogPosition) -> None:
        """topic: that of the copies. tick: that of the checkpoint; position: where it goes on in this partition."""
        self._place, self._topic = place, topic
        self._tick, self._position = tick, position
        self._is_found = False

    def take(self, step: Step) -> None:
        """Compare the next accepted tick with the position."""
        mark, position = step.tick.mark, self._position
        if step.whole and position.mark == (GENESIS if step.before is None else step.before.id):
            self._is_found = True
            if mark.last_tick <= self._tick:
                self._fail(f"it leaves out the mark at offset {step.tick.mark_offset}, of tick {mark.last_tick}")
        if mark.id == position.mark:
            self._is_found = True
            if position.offset != step.tick.mark_offset + 1:
                self._fail(f"its mark is at offset {step.tick.mark_offset}, not right before it")
            if mark.last_tick > self._tick:
                self._fail(f"its mark is of tick {mark.last_tick}, behind that of the checkpoint")

    def finish(self, walk: LogWalk, earliest: int) -> None:
        """Report after the last step. earliest: the first offset that the log holds."""
        findings, position = self._place.findings, self._position
        if self._is_found:
            findings.held(COPIED_CHECKPOINT)
        elif position.offset < earliest:
            findings.held(COPIED_CHECKPOINT)
            self._fail(f"the log begins at offset {earliest}")
        elif walk.reaches_end and position.mark != GENESIS:
            if walk.gaps or earliest:
                self._place.leave_out(COPIED_CHECKPOINT, "the mark of its position was not read, as others before it")
                return
            findings.held(COPIED_CHECKPOINT)
            self._fail(f"its mark, {_text(position.mark)}, is not accepted in the log")

    def _fail(self, what: str) -> None:
        where = f"position {self._position.offset} of {self._place.topic} partition {self._place.partition}"
        self._place.findings.fail(Finding(COPIED_CHECKPOINT, f"{where}: {what}", self._topic, tick=self._tick))


def _text(mark: MarkId) -> str:
    return f"tick {mark.last_tick} of attempt {mark.attempt:016x}"
