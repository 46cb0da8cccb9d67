"""Follows `<model>.snapshots` into a replica, in a thread of its own.

In: the snapshot topic, a pin. Out: a `Replica` that is kept current, and a call for every version served.
This file must never make a thread that predicts wait, and never end because of a record that cannot be used: the
replica keeps its last whole version and says why it is not ready.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stream_learner.core.errors import RecordError
from stream_learner.core.replica import Replica
from stream_learner.edges.kafka import Admin, KafkaSettings, ReaderPool, TopicWatch
from stream_learner.edges.telemetry import Logger
from stream_learner.errors import BrokenInvariant, BrokerUnreachable, RetryLater, StreamLearnerError

READ_RECORDS = 500
FETCHED_BYTES = 32 << 20
"""What may be fetched ahead, all shards together."""
IDLE_S = 0.02
"""How long the reader rests when nothing came; it takes the interpreter from threads that predict when it looks."""
GRACE_S = 0.0005


def _nobody(version: int) -> None:
    """Is told of versions, and does nothing."""


class SnapshotReader:
    """Reads every partition of the snapshot topic. `replica` may be asked from any thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        log: Logger,
        on_version: Callable[[int], None] = _nobody,
    ) -> None:
        """on_version: called in the reader's thread with every new version, once it is served.

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
        pool = ReaderPool(
            settings, topic, with_keys=True, buffer_bytes=FETCHED_BYTES, partitions=shards, name="snapshots"
        )
        self._readers = [pool.open(shard, starts[place]) for shard, place in enumerate(places)]
        self.replica = Replica([ends[place] for place in places], topic=topic, pause=lambda: time.sleep(GRACE_S))
        self.applied_at_s = time.monotonic()
        self.failure: StreamLearnerError | None = None
        self._unreachable = False
        self._hold = False
        self._feeding = threading.Lock()
        """Held while records are taken in, so that a pin is never set in the middle of a new version."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshot-reader", daemon=True)

    def start(self) -> SnapshotReader:
        """Begin to follow."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread and give the consumer back; the replica goes on answering."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def pin(self, version: int | None = None) -> None:
        """Serve no version after `version`; None holds the one served now, or the first that will be.

        Versions go on being read and kept. A replica that is past `version` stays where it is.
        """
        with self._feeding:
            served = self.replica.version
            self._hold = version is None and served < 0
            self.replica.last_version = served if version is None and served >= 0 else version

    def unpin(self) -> None:
        """Serve the last version again, and those to come."""
        with self._feeding:
            self._hold, self.replica.last_version = False, None

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._topics.check()
                came = [self._read(shard) for shard in range(len(self._readers))]
                if not any(came):
                    self._stop.wait(IDLE_S)
        except StreamLearnerError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 -- a bug; whoever predicts must learn that nothing new will come
            self._fail(BrokenInvariant(f"following {self._topic} failed: {type(error).__name__}: {error}"), error)
        finally:
            for reader in self._readers:
                reader.close()
            # It holds who holds us: the weights would stay until Python's collector of cycles comes by, hours later.
            self._on_version = _nobody

    def _fail(self, failure: StreamLearnerError, cause: Exception | None = None) -> None:
        self.failure = failure
        self._log.error("snapshot_reader_stopped", reason=str(failure), action=failure.action, exc_info=cause)

    def _read(self, shard: int) -> bool:
        """Read one partition once; whether anything came."""
        reader = self._readers[shard]
        try:
            batch = reader.read(READ_RECORDS)
        except (BrokerUnreachable, RetryLater) as error:
            if not self._unreachable:
                self._log.warning("snapshots_unreachable", reason=str(error))
            self._unreachable = True
            return False
        if batch is None:
            with self._feeding:
                version = self._noted(self.replica.reached(shard, reader.position))
            self._tell(version)
            return False
        self._unreachable = False
        for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
            self._tell(self._take(shard, offset, key, value))
        return True

    def _take(self, shard: int, offset: int, key: bytes | None, value: bytes | None) -> int | None:
        try:
            with self._feeding:
                return self._noted(self.replica.take(shard, offset, key, value))
        except RecordError as error:
            self._log.error("snapshot_record_unusable", reason=str(error))
            return None

    def _noted(self, version: int | None) -> int | None:
        """A version that is served from now on; the first one is the last where the pin says so."""
        if version is not None:
            self.applied_at_s = time.monotonic()
            if self._hold:
                self._hold, self.replica.last_version = False, version
        return version

    def _tell(self, version: int | None) -> None:
        if version is not None:
            self._on_version(version)
