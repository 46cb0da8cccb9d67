"""Copies of checkpoints on a real Kafka and a real RocksDB.

Whatever is killed or lost, the next learner has the digest of an undisturbed one, or stops with a clear message.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters.kafka import Record
from stream_learner.core.log.marks import MarkId
from stream_learner.core.snapshots.checkpoint_copy import HEAD_KEY
from stream_learner.errors import Fenced, LogTrimmed, RetryLater, StateOfAnotherModel, TopicRecreated
from stream_learner.roles.learner.log_follower import LogPosition
from tests.adapters.kafka.kafka_help import VisiblePublisher
from tests.kafka_broker.broker import delete_topics
from tests.roles.learner.kept_model import COMPACTED, TICKS, Kept, MakeKept, Started, undisturbed

COPIES = 10


def test_a_copy_restores_the_bits_of_its_tick_and_the_fold_goes_on_from_them(make_kept: MakeKept) -> None:
    """This is so at every tick, and little more is sent than the checkpoints wrote."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    sent = []
    with kept.started() as learner:
        copies = learner.copy_writer()
        for tick in range(COPIES):
            copied = learner.fold_to(tick).checkpoint() and copies.copy()
            assert copied is not None and copied.tick == tick
            sent.append(copied.sent)
            if tick % 4 == 0:
                kept.assert_nothing_left_over()
                assert kept.restored() == (tick, digests[tick])
        assert max(sent[2:]) < copied.pieces, "a copy sends what has changed"
    shutil.rmtree(kept.path)
    with kept.started() as learner:
        assert (learner.tick, learner.digest) == (COPIES - 1, digests[COPIES - 1])
        assert learner.fold_to(TICKS - 1).digest == digests[TICKS - 1]


class Killed(Exception):
    """The process is killed here."""


def killed_after(transactions: int, *, outcome: bool) -> Callable[..., Any]:
    """A publisher whose process is killed before a transaction, or after it has committed if `outcome` says so."""

    class Publisher(VisiblePublisher):
        left = transactions

        def publish(self, records: Any) -> Any:
            if self.left == 0 and not outcome:
                # The transaction is open, with half of its records, when the process ends.
                self._producer.begin_transaction()
                for topic, partition, key, value in records[: len(records) // 2]:
                    self._producer.produce(topic, value, key, partition)
                self._producer.flush(10)
                raise Killed
            result = super().publish(records)
            if self.left == 0:
                raise Killed
            self.left -= 1
            return result

    return Publisher


def test_a_copy_writer_killed_at_any_step_leaves_a_complete_copy(make_kept: MakeKept) -> None:
    """Killed in any transaction or after the last, it leaves the copy before or this one. The next one cleans up."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    with kept.started() as learner:
        learner.fold_to(0).checkpoint().copy_writer().copy()
    for at in range(TICKS // 4 - 1):
        if not killed(kept, digests, 4 * at, killed_after(at, outcome=False)):
            break
    assert at >= 4, "a copy is of several transactions"
    assert killed(kept, digests, 4 * at + 4, killed_after(2, outcome=True))


def killed(kept: Kept, digests: dict[int, str], tick: int, publisher: Callable[..., Any]) -> bool:
    """Kill a copy writer that goes on from the copy of `tick`, and check the next one; False if it was not killed."""
    with kept.started() as learner:
        copies = learner.copy_writer(publisher)
        learner.fold_to(tick + 3).checkpoint()
        try:
            copies.copy()
            found = False
        except Killed:
            found = True
        learner.fold_to(tick + 4).checkpoint()
    with kept.started() as learner:
        again = learner.copy_writer()
        # What is there before anything else is copied: the transaction that was open is aborted by now.
        left = (tick, digests[tick]) if found else (tick + 3, digests[tick + 3])
        assert kept.restored() == left
        again.copy()
    assert kept.restored() == (tick + 4, digests[tick + 4])
    kept.assert_nothing_left_over()
    return found


def test_a_disk_put_back_to_an_earlier_day_is_never_mixed_with_its_former_copies(make_kept: MakeKept) -> None:
    """It folds other ticks than before under the same numbers of checkpoints; the copy is of its state now."""
    kept = make_kept()
    backup = kept.folder / "backup"
    with kept.started() as learner:
        learner.fold_to(3).checkpoint().copy_writer().copy()
    shutil.copytree(kept.path, backup)
    with kept.started() as learner:
        copies = learner.copy_writer()
        for tick in range(4, 12):
            learner.fold_to(tick).checkpoint()
            copies.copy()
    shutil.rmtree(kept.path)
    shutil.copytree(backup, kept.path)
    with kept.started() as learner:
        for tick in range(4, 15):
            learner.fold_to(tick, seed=2).checkpoint()
        learner.copy_writer().copy()
        assert kept.restored() == (14, learner.digest)
    kept.assert_nothing_left_over()


def test_of_two_that_copy_the_later_one_goes_on_and_the_other_stops(make_kept: MakeKept) -> None:
    """Even between two transactions of the former, whose pieces then count for nothing."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    other = kept.folder / "other"
    with kept.started() as former, kept.started(other) as later:
        former.fold_to(5).checkpoint()
        later.fold_to(8).checkpoint()
        taken_over: list[bool] = []

        def take_over(size_bytes: int) -> bool:
            if not taken_over:
                later.copy_writer().copy()
            taken_over.append(True)
            return True

        with pytest.raises(Fenced):
            former.copy_writer(before_sending=take_over).copy()
        assert taken_over
        assert kept.restored() == (8, digests[8])


def test_pieces_that_are_gone_are_noticed(make_kept: MakeKept) -> None:
    """A head without its pieces is no copy. That is logged, and the log is folded from its beginning, if it has one."""
    kept = make_kept()
    with kept.started() as learner:
        learner.fold_to(5).checkpoint().copy_writer().copy()
    held = kept.in_topic()
    place = next((shard, key) for shard, key in held if key.startswith(b"piece/"))
    publisher = VisiblePublisher(kept.settings, f"{kept.config.model}-somebody")
    publisher.init()
    publisher.publish([Record(kept.config.checkpoints_topic, *place, None)])
    value = held[place]
    compacted_away(kept, place)
    shutil.rmtree(kept.path)
    with capture_logs() as logged, kept.started() as learner:
        assert learner.tick == -1 and learner.learner.table.count == 0
    (said,) = [event for event in logged if event["event"] == "no_state"]
    assert "lacks 1 of the" in said["copy"]
    assert not list(kept.path.glob("damaged-*")), "nothing of the copy was taken for a state"
    publisher.publish([Record(kept.config.checkpoints_topic, *place, value)])
    publisher.close()
    assert kept.restored()[0] == 5


def compacted_away(kept: Kept, place: tuple[int, bytes]) -> None:
    """Copy the topic as a compaction would leave it, without one key, into a topic made anew under its name."""
    held = {at: value for at, value in kept.in_topic().items() if at != place}
    topic = kept.config.checkpoints_topic
    delete_topics(kept.settings.bootstrap, [topic])
    kept.make_topics(COMPACTED)
    publisher = VisiblePublisher(kept.settings, f"{kept.config.model}-compaction")
    publisher.init()
    publisher.publish([Record(topic, shard, key, value) for (shard, key), value in held.items()])
    publisher.close()


def test_a_damaged_piece_in_the_topic_is_never_loaded(make_kept: MakeKept) -> None:
    """Its checksum is wrong, so the restored state is quarantined, and the log is folded from its beginning."""
    kept = make_kept()
    with kept.started() as learner:
        learner.fold_to(5).checkpoint().copy_writer().copy()
    shard, key = next((shard, key) for shard, key in kept.in_topic() if key.startswith(b"piece/"))
    value = bytearray(kept.in_topic()[shard, key])
    value[-1] ^= 1
    publisher = VisiblePublisher(kept.settings, f"{kept.config.model}-somebody")
    publisher.init()
    publisher.publish([Record(kept.config.checkpoints_topic, shard, key, bytes(value))])
    publisher.close()
    shutil.rmtree(kept.path)
    with capture_logs() as logged, kept.started() as learner:
        assert learner.tick == -1 and learner.learner.table.count == 0
    assert [event["event"] for event in logged if event["log_level"] == "warning"] == ["state_damaged", "no_state"]


def test_copies_of_another_optimizer_are_refused(make_kept: MakeKept) -> None:
    """With an empty disk and with a full one; nothing is overwritten."""
    kept = make_kept()
    with kept.started() as learner:
        learner.fold_to(5).checkpoint().copy_writer().copy()
    head = kept.in_topic()
    kept.config = kept.config.with_values({("learner", "optimizer", "alpha"): 0.123})
    with pytest.raises(StateOfAnotherModel, match="alpha"):
        kept.restored()
    kept.config = kept.config.with_values(
        {("learner", "state_dir"): str(kept.folder / "b"), ("learner", "copies"): False}
    )
    with kept.started() as learner, pytest.raises(StateOfAnotherModel, match="alpha"):
        learner.fold_to(2).checkpoint().copy_writer()
    assert kept.in_topic() == head


def test_copies_with_positions_of_another_training_log_are_refused(make_kept: MakeKept) -> None:
    """The log was deleted and made anew: its offsets mean something else."""
    kept = make_kept()
    with kept.started() as learner:
        learner.fold_to(5).checkpoint().copy_writer().copy()
    delete_topics(kept.settings.bootstrap, kept.topics[:1])
    kept.make_topics(COMPACTED)
    with pytest.raises(TopicRecreated, match="checkpoints"):
        kept.restored()
    assert not list(kept.folder.glob("empty-*/damaged-*"))


def test_a_log_without_its_beginning_and_no_copy_stop_the_learner(make_kept: MakeKept) -> None:
    """The message names what was found, and the ways out."""
    kept = make_kept()
    publisher = VisiblePublisher(kept.settings, f"{kept.config.model}-log")
    publisher.init()
    publisher.publish([Record(kept.log.name, 0, None, b"old")])
    publisher.close()
    delete_before(kept, 1)
    with pytest.raises(LogTrimmed, match=r"no checkpoint.*no complete copy.*partition 0") as stopped:
        kept.restored()
    assert "backup" in stopped.value.action and "backfill" in stopped.value.action


def delete_before(kept: Kept, offset: int) -> None:
    """Trim the training log."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kept.settings.bootstrap})
    for answer in admin.delete_records([TopicPartition(kept.log.name, 0, offset)]).values():
        answer.result(30)


def test_a_directory_that_the_log_has_left_behind_is_replaced_by_the_copy(make_kept: MakeKept) -> None:
    """As after a backup of an earlier day was put back. If the log has left the copy behind too, nothing is touched."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    publisher = VisiblePublisher(kept.settings, f"{kept.config.model}-log")
    publisher.init()
    for _ in range(10):
        publisher.publish([Record(kept.log.name, 0, None, b"old")])
    publisher.close()
    backup, other = kept.folder / "backup", kept.folder / "other"
    with kept.started() as learner:
        checkpoint_at(learner.fold_to(3), 2)
    for path in (backup, other):
        shutil.copytree(kept.path, path)
    with kept.started() as learner:
        checkpoint_at(learner.fold_to(8), 6)
        learner.copy_writer().copy()
    for trimmed, tick, warned in ((2, 3, []), (6, 8, ["state_left_behind"])):
        delete_before(kept, trimmed)
        with capture_logs() as logged, kept.started(backup) as learner:
            assert (learner.tick, learner.digest) == (tick, digests[tick])
            assert learner.positions == {0: LogPosition(2 if tick == 3 else 6, MarkId(1, tick))}
        assert [event["event"] for event in logged if event["log_level"] == "warning"] == warned
    assert list(backup.glob("damaged-*/CURRENT"))
    delete_before(kept, 7)
    with kept.started(other) as learner:
        assert learner.tick == 3
    assert not list(other.glob("damaged-*"))


def checkpoint_at(learner: Started, offset: int) -> None:
    """Write a checkpoint that goes on at this offset of the training log."""
    learner.checkpoints.begin(learner.tick, {0: LogPosition(offset, MarkId(1, learner.tick))})
    learner.checkpoints.finish()


def test_a_topic_made_anew_while_a_copy_is_sent_is_filled_again(make_kept: MakeKept) -> None:
    """Pieces that went to the topic before do not count: at any moment, what is restored is whole."""
    kept, said = make_kept(), []
    digests = undisturbed(kept.config)

    def make_anew(size_bytes: int) -> bool:
        if not said and not made:
            made.append(True)
            delete_topics(kept.settings.bootstrap, kept.topics[1:])
            kept.make_topics(COMPACTED)
        return True

    made = [True]
    with kept.started() as learner:
        copies = learner.copy_writer(before_sending=make_anew, topic_made_anew=lambda: said.append("anew"))
        learner.fold_to(9).checkpoint()
        copies.copy()
        made.clear()
        learner.fold_to(12).checkpoint()
        with suppress(RetryLater):
            copies.copy()
        assert made and (0, HEAD_KEY) not in kept.in_topic(), "no head names pieces of the topic before"
        copied = None
        while copied is None:
            with suppress(RetryLater):
                copied = copies.copy()
        assert said == ["anew"] and copied.sent == copied.pieces
    assert kept.restored() == (12, digests[12])


def test_a_topic_made_anew_is_filled_again(make_kept: MakeKept) -> None:
    """While the learner runs: the next copy is a whole one."""
    kept = make_kept()
    digests = undisturbed(kept.config)
    with kept.started() as learner:
        copies = learner.copy_writer()
        learner.fold_to(9).checkpoint()
        copies.copy()
        delete_topics(kept.settings.bootstrap, kept.topics[1:])
        kept.make_topics(COMPACTED)
        learner.fold_to(10).checkpoint()
        copied = copies.copy()
        assert copied is not None and copied.sent == copied.pieces
        assert kept.restored() == (10, digests[10])
