"""Follows `<model>.snapshots` into a replica, in a thread of its own.

No thread that predicts waits for it. A record that cannot be used does not end it: it passes over the record, counts it
and names it in the log, and the replica keeps its last whole version until it has another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, ReaderPool, TopicWatch
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.errors import NewerVersion, RecordError, Where
from stream_learner.core.snapshots.records import MODEL_KEY, VERSION_KEY, ModelRecord, decode
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.replica_copy import WholeVersion
from stream_learner.errors import BrokenInvariant, BrokerUnreachable, NewerFormat, RetryLater, StreamLearnerError
from stream_learner.roles.common.lifecycle import BrokerOutage

READ_RECORDS = 500
FETCHED_BYTES = 32 << 20
"""Limit of what is fetched ahead, over all shards."""
REST_S = 0.1
"""How long the reader waits for a record before it looks at the topic again, and at whether it is to stop."""
LOOK_S = 0.2
"""Without news, every shard is looked at so often. Each look takes the interpreter lock from threads that predict."""
GRACE_S = 0.0005
"""How long the replica waits between two looks for readers of the bank that it wants to write to."""
SAY_EVERY_S = 1.0
"""Least time between two log lines that name a record that cannot be used; all of them are counted."""


def _nobody(version: int, published_ms: int) -> None:
    """Ignore the version."""


def _any_model(content: Mapping[str, Any]) -> None:
    """Accept the model record."""


def _count_nothing() -> None:
    """Ignore the record that cannot be used."""


class SnapshotReader:
    """Reads every partition of the snapshot topic. `replica` may be asked from any thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        log: Logger,
        on_version: Callable[[int, int], None] = _nobody,
        *,
        check_model: Callable[[Mapping[str, Any]], object] = _any_model,
        on_unusable: Callable[[], None] = _count_nothing,
    ) -> None:
        """on_version: is called in the reader's thread with every new version, once it is served, and the time of its
        records in epoch ms, -1 if they have none; an error that it raises for the first version ends the reader.
        check_model: is called with the content of every model record after the first version; raises NewerFormat for
        one that cannot be used. on_unusable: is called for every record that cannot be used.

        Raises TopicMissing, BrokerUnreachable, NotAuthorised.
        """
        admin = Admin(settings)
        found = admin.require([topic])[topic]
        self._topics = TopicWatch(admin, [found])
        shards = found.partitions
        places = [(topic, shard) for shard in range(shards)]
        ends = admin.offsets.last_stable_offsets(places)
        starts = admin.offsets.earliest(places)
        self._topic = topic
        self._log = log
        self._on_version = on_version
        self._check_model = check_model
        self._on_unusable = on_unusable
        self._unusable, self._said_s = 0, float("-inf")
        self._pool = ReaderPool(
            settings, topic, with_keys=True, buffer_bytes=FETCHED_BYTES, partitions=shards, name="snapshots"
        )
        self._readers = [self._pool.open(shard, starts[place]) for shard, place in enumerate(places)]
        self.replica = Replica([ends[place] for place in places], topic=topic, pause=lambda: time.sleep(GRACE_S))
        self.failure: StreamLearnerError | None = None
        self.outage = BrokerOutage(log, "snapshots_unreachable", "snapshots_reachable")
        self._published_ms = [-1] * shards
        """The time of the last version record of each shard, epoch ms; -1 for none."""
        self._hold = False
        self._is_working = True
        self._look_at_s = 0.0
        self._feeding = threading.Lock()
        """Held while records are taken in, so that a pin is never set in the middle of a new version."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshot-reader", daemon=True)

    def start(self) -> SnapshotReader:
        """Begin to follow."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread and close the consumer; the replica goes on answering."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def pin(self, version: int | None = None) -> None:
        """Serve no version after `version`; None holds the one served now, or the first that will be.

        The reader goes on, and the replica keeps what it has not applied. A replica that is past `version` stays at the
        version it serves.
        """
        with self._feeding:
            served = self.replica.version
            self._hold = version is None and served < 0
            self.replica.last_version = served if version is None and served >= 0 else version

    def unpin(self) -> None:
        """Serve the last version, and later ones as they come."""
        with self._feeding:
            self._hold, self.replica.last_version = False, None

    def whole_version(self) -> WholeVersion | None:
        """All rows of the version served, None before the first. Records wait meanwhile, predictions do not."""
        with self._feeding:
            served = self.replica.served
            return None if served is None else WholeVersion(served, self.replica.shards, *self.replica.all_rows())

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._topics.check()
                self.outage.answered(self._topics.answered_s)
                if not self._look():
                    self._wait()
        except StreamLearnerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 -- a bug; callers must learn that nothing new will come
            self._fail(BrokenInvariant(f"following {self._topic} failed: {type(error).__name__}: {error}"), error)
        finally:
            for reader in self._readers:
                reader.close()
            # These refer to the object that refers to this one. The weights would stay in memory until Python collects
            # cycles, which may be hours later.
            self._on_version, self._check_model, self._on_unusable = _nobody, _any_model, _count_nothing

    def _fail(self, failure: StreamLearnerError, cause: Exception | None = None) -> None:
        self.failure = failure
        self._log.error("snapshot_reader_stopped", reason=str(failure), action=failure.action, exc_info=cause)

    def _look(self) -> bool:
        """Read every partition once if there may be news. Whether anything came."""
        now_s = time.monotonic()
        if not (self._pool.has_news() or self._is_working or now_s >= self._look_at_s):
            return False
        self._look_at_s = now_s + LOOK_S
        came = [self._read(shard) for shard in range(len(self._readers))]
        self._is_working = any(came)
        return self._is_working

    def _wait(self) -> None:
        with suppress(RetryLater):  # raised again by a reader
            self._pool.poll(REST_S)

    def _read(self, shard: int) -> bool:
        """Read one partition once. Whether anything came."""
        reader = self._readers[shard]
        try:
            batch = reader.read(READ_RECORDS)
        except (BrokerUnreachable, RetryLater) as error:
            self.outage.report(str(error))
            return False
        if batch is None:
            with self._feeding:
                version = self._noted(self.replica.reached(shard, reader.position))
            self._tell(version)
            return False
        self.outage.answered(time.monotonic())
        times_ms = batch.record_times_ms.tolist()
        for offset, time_ms, key, value in zip(
            batch.offsets.tolist(), times_ms, batch.keys or (), batch.values, strict=True
        ):
            if key == VERSION_KEY and value is not None:
                self._published_ms[shard] = time_ms
            self._tell(self._take(shard, offset, key, value))
        return True

    def _take(self, shard: int, offset: int, key: bytes | None, value: bytes | None) -> int | None:
        try:
            if key == MODEL_KEY and value is not None and self.replica.served is not None:
                self._check(value, Where(offset, shard, self._topic))
            with self._feeding:
                return self._noted(self.replica.take(shard, offset, key, value))
        except RecordError as error:
            self._pass_over(error)
            return None

    def _check(self, value: bytes, where: Where) -> None:
        """Raise NewerVersion for a model record that this program cannot predict with: its version is not applied."""
        record = decode(MODEL_KEY, value, where)
        try:
            self._check_model(record.content if isinstance(record, ModelRecord) else {})
        except NewerFormat as error:
            raise NewerVersion(str(error), where) from error

    def _pass_over(self, error: RecordError) -> None:
        """Count a record that cannot be used; name it in the log if none was named within `SAY_EVERY_S`."""
        self._on_unusable()
        self._unusable += 1
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._log.error(
                "snapshot_record_unusable",
                reason=str(error),
                partition=error.partition,
                offset=error.offset,
                records=self._unusable,
            )
            self._unusable, self._said_s = 0, now_s

    def _noted(self, version: int | None) -> int | None:
        """Return `version`. If a pin holds the first version, no later one is served than this."""
        if version is not None and self._hold:
            self._hold, self.replica.last_version = False, version
        return version

    def _tell(self, version: int | None) -> None:
        if version is not None:
            self._on_version(version, min(self._published_ms))
