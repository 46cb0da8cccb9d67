"""Finds the state that a learner goes on from: on its disk, in the topic of copies, or at the beginning of the log.

No learner goes on with a part of a state, and nothing that is damaged is deleted.

1. Load the last checkpoint on disk. If there is one, go on from it, even where the copy is further: the log is there.
2. A directory that is damaged is moved aside, file by file, and made anew. So is one that the log has left behind: its
   positions are gone from the log, and the copy is one that the log goes on from.
3. If there is a complete copy, write its pieces into the directory, and load it as in step 1. The digest decides.
4. If there is none, fold the training log from its beginning; if the log does not begin there any more, stop.

A state or a copy that is of other settings or of another log, and holds no example, has nothing to lose: where the log
has its beginning, the state makes room for a new one, and the copy counts as none.

| a crash after          | leaves                                  | the next start                                    |
|------------------------|-----------------------------------------|---------------------------------------------------|
| making room, partly    | a directory that is damaged             | moves the other files aside                       |
| step 2, some files     | a directory that is damaged still       | moves the other files aside                       |
| step 2                 | an empty directory                      | begins with step 3                                |
| step 3, some pieces    | a directory with pieces, without a head | drops them, and begins with step 3                |
| step 3, the head       | a checkpoint                            | loads it in step 1                                |
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo
from stream_learner.adapters.record_errors import DELETE
from stream_learner.adapters.rocksdb.database import explained
from stream_learner.adapters.rocksdb.store import CheckpointStore
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.checkpoint_copy import CopyHead
from stream_learner.errors import LogTrimmed, StateDamaged, StateOfAnotherModel, TopicRecreated
from stream_learner.roles.learner.checkpoints import Checkpoints, has_learned, open_store
from stream_learner.roles.learner.copies.restore import (
    RestoreProgress,
    check_copy_identity,
    copy_has_learned,
    read_last_copy,
    restore_copy,
)
from stream_learner.roles.learner.log_follower import LogPosition
from stream_learner.roles.learner.state_dir import damage_seen, quarantine_state
from stream_learner.roles.learner.state_swap import finish_swap
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config

TRIES = 5
"""How many copies are tried: while one is read, another learner may replace it."""
NOTHING_LEARNED = "it holds no example, so nothing is lost by it"
SHOW_EVERY_S = 10.0
LINE_EVERY_S = 0.2

Positions = dict[int, LogPosition]


class Recovery:
    """The search for the state at one start of a learner. Used once, by the learner's thread.

    A learner that does not publish goes by its disk alone, and asks no broker.
    """

    def __init__(
        self,
        config: Config,
        settings: KafkaSettings,
        admin: Admin,
        log_topic: TopicInfo,
        make_learner: Callable[[], Learner],
        metrics: Metrics,
        log: Logger,
        *,
        subset_of_features: Mapping[str, Any] | None = None,
        piece_bytes: int | None = None,
    ) -> None:
        """make_learner: makes a learner without a row; called again after a load that failed.

        subset_of_features, piece_bytes: as of `Checkpoints`.
        """
        self._config, self._settings, self._admin, self._log_topic = config, settings, admin, log_topic
        self._make_learner, self._metrics, self._log = make_learner, metrics, log
        self._subset, self._piece_bytes = subset_of_features, piece_bytes
        self._damage = ""

    def run(self) -> tuple[Checkpoints, Positions]:
        """Returns the checkpoints, with the state in `Checkpoints.learner`, and the positions in the training log.

        Raises StateInUse, StateOfAnotherModel, NewerFormat, DiskFull, TopicRecreated; LogTrimmed where no state is left
        to go on from; StateDamaged where too many damaged states are kept already; what reading the topic raises.
        """
        # Steps 1 and 2: the disk.
        checkpoints, positions = self._from_disk()
        if not self._config.learner.publish or (
            checkpoints.tick >= 0 and not self._left_behind(checkpoints, positions)
        ):
            return checkpoints, positions
        checkpoints.close()
        if checkpoints.tick >= 0:
            aside = quarantine_state(self._config.state_dir)
            self._log.warning("state_left_behind", found=self._damage, moved_to=str(aside), note="nothing was deleted")
        # Step 3: the copy.
        trouble = self._restore() if self._config.learner.copies else "learner.copies is off"
        if not trouble:
            checkpoints, positions = self._from_disk()
            if checkpoints.tick >= 0:
                self._metrics.inc(names.LEARNER_RESTORED)
                return checkpoints, positions
            checkpoints.close()
            trouble = f"what it restores is damaged: {self._damage}"
        # Step 4: the beginning of the log.
        self._check_beginning(trouble)
        return self._from_disk()

    def _from_disk(self) -> tuple[Checkpoints, Positions]:
        """Load the state directory. If it is damaged, move the damage out of the way, and load the empty directory."""
        try:
            return self._load()
        except StateDamaged as error:
            self._damage = str(error)
            _let_go(error)
        aside = quarantine_state(self._config.state_dir)
        self._log.warning("state_damaged", found=self._damage, moved_to=str(aside), note="nothing was deleted")
        return self._load()

    def _left_behind(self, checkpoints: Checkpoints, positions: Positions) -> bool:
        """Whether the log lacks what follows the state on disk, and has what follows the last copy."""
        config, log = self._config, self._log_topic
        if not config.learner.copies:
            return False
        admin = self._admin
        earliest = admin.offsets.earliest([(log.name, partition) for partition in positions])
        gone = sorted(p for p, position in positions.items() if position.offset < earliest[log.name, p])
        if not gone or config.checkpoints_topic not in admin.describe([config.checkpoints_topic]):
            return False
        copy = read_last_copy(self._settings, admin.offsets, config.checkpoints_topic).head
        if copy is None or copy.tick <= checkpoints.tick:
            return False
        self._check_copy(config.checkpoints_topic, copy, checkpoints.store)
        follows = copy.head_record().content["head"]["positions"]
        if any(offset < earliest[log.name, int(partition)] for partition, (offset, *_) in follows.items()):
            return False
        self._damage = (
            f"{config.state_dir} is as of tick {checkpoints.tick}, and {log.name} partition "
            f"{', '.join(map(str, gone))} no longer has what follows it"
        )
        return True

    def _load(self) -> tuple[Checkpoints, Positions]:
        with explained(self._config.state_dir):
            finish_swap(self._config.state_dir)
            seen = damage_seen(self._config.state_dir)
        if seen:
            raise StateDamaged(seen)
        checkpoints = Checkpoints(
            self._config,
            self._make_learner(),
            self._log_topic,
            subset_of_features=self._subset,
            piece_bytes=self._piece_bytes,
            gives_way=self._gives_way,
        )
        try:
            return checkpoints, checkpoints.load()
        except BaseException:
            checkpoints.close()
            raise

    def _gives_way(self, differing: Sequence[str], head: Mapping[str, Any] | None) -> bool:
        """Whether the state on disk makes room for a new one: it is of this model, but of other settings or of another
        log, holds no example, and the log can be folded from its beginning.
        """
        of_another_log = head is not None and head["log_topic_id"] != self._log_topic.id.hex()
        if "model" in differing or has_learned(head) or not (differing or of_another_log) or self._trimmed():
            return False
        why = f"other {', '.join(differing)}" if differing else "another training log"
        self._log.warning("state_begins_again", state_dir=str(self._config.state_dir), reason=why, note=NOTHING_LEARNED)
        return True

    def _trimmed(self) -> list[int]:
        """The partitions of the training log that have lost their beginning."""
        topic = self._log_topic
        earliest = self._admin.offsets.earliest([(topic.name, p) for p in range(topic.partitions)])
        return sorted(partition for (_, partition), offset in earliest.items() if offset > 0)

    def _restore(self) -> str:
        """Step 3 without the load. Returns why nothing could be restored, "" if the copy is on disk."""
        topic, admin = self._config.checkpoints_topic, self._admin
        if topic not in admin.describe([topic]):
            return f"{topic} does not exist"
        trouble, tried = "", -1
        for _ in range(TRIES):
            last = read_last_copy(self._settings, admin.offsets, topic)
            if last.head is None:
                return last.trouble or f"{topic} holds no complete copy"
            if last.head.stamp.attempt == tried:
                return trouble
            tried = last.head.stamp.attempt
            trouble = self._restore_from(topic, last.head)
            if not trouble:
                return ""
        return trouble

    def _restore_from(self, topic: str, copy: CopyHead) -> str:
        learner, partitions = self._make_learner(), self._log_topic.partitions
        with open_store(self._config, learner, partitions) as store:
            try:
                self._check_copy(topic, copy, store)
            except (StateOfAnotherModel, TopicRecreated):
                if copy_has_learned(copy):
                    raise
                return f"the copy in {topic} is of other settings or another log, and holds no example"
            self._log.info("restoring_state", topic=topic, tick=copy.tick, disk=self._damage or "no checkpoint")
            shown = RestoreView(self._log)
            missing = restore_copy(self._settings, self._admin.offsets, topic, copy, store.parts, shown.show)
            last = shown.end()
        if missing:
            return f"{topic} lacks {missing} of the {count_of(last.of, 'piece')} of the copy of tick {copy.tick}"
        self._log.info(
            "state_restored", tick=copy.tick, pieces=last.of, bytes=last.size_bytes, seconds=round(last.seconds, 3)
        )
        return ""

    def _check_copy(self, topic: str, copy: CopyHead, store: CheckpointStore) -> None:
        """Refuse a copy of another model, or with positions of another training log."""
        check_copy_identity(topic, copy, store.parts)
        if copy.head_record().content["head"]["log_topic_id"] != self._log_topic.id.hex():
            raise TopicRecreated(
                f"{topic} holds positions of another training log: {self._log_topic.name} was deleted and made anew",
                action="Start a model under another name. Or, to learn this one anew from the log that is there, "
                f"delete {topic} and make it again with `stream-learner topics ensure`. {DELETE}",
            )

    def _check_beginning(self, copy_trouble: str) -> None:
        """Step 4: raise LogTrimmed if the training log has lost its beginning."""
        topic, disk = self._log_topic, self._damage or f"{self._config.state_dir} holds no checkpoint"
        trimmed = self._trimmed()
        if trimmed:
            raise LogTrimmed(
                f"there is no state to go on from ({disk}; {copy_trouble}), and {topic.name} partition "
                f"{', '.join(map(str, trimmed))} no longer begins at its beginning",
                action=f"Put a backup of the state directory back into {self._config.state_dir}; or learn the model "
                "from the inputs under a new name with `stream-learner backfill`, and promote it.",
            )
        say = self._log.warning if self._damage else self._log.info
        say("no_state", disk=disk, copy=copy_trouble, does="folds the training log from its beginning")


def _let_go(error: BaseException | None) -> None:
    """Clear the frames of an error: the database stays open as long as anything refers to it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class RestoreView:
    """Shows how far a restoration is: on a terminal in a line that changes, else now and then in the log."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._line = sys.stderr.isatty()
        self._every_s = LINE_EVERY_S if self._line else SHOW_EVERY_S
        self._said_s = time.monotonic()
        self._last = RestoreProgress(0, 0, 0, 0.0)

    def show(self, progress: RestoreProgress) -> None:
        """Show the progress if it is time. To be called for every piece."""
        self._last = progress
        now_s = time.monotonic()
        if now_s - self._said_s < self._every_s:
            return
        self._said_s = now_s
        if self._line:
            share = 100 * progress.pieces // max(1, progress.of)
            sys.stderr.write(f"\rrestoring the state: {share} %, {progress.size_bytes >> 20} MiB")
            sys.stderr.flush()
        else:
            self._log.info("restoring", pieces=progress.pieces, of=progress.of, bytes=progress.size_bytes)

    def end(self) -> RestoreProgress:
        """Clear the line; returns the last progress."""
        if self._line and self._last.pieces:
            sys.stderr.write("\r\x1b[K")
        return self._last
