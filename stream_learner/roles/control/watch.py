"""Follows the control topic in a thread of its own, for roles that obey it.

Nothing that is read, and no topic or broker that is away, ends the watch: it keeps what it knew, logs the trouble once,
and goes on looking.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stream_learner.adapters.kafka import Admin, KafkaSettings, PartitionReader, TopicWatch
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.control.state import ControlState
from stream_learner.core.errors import RecordError, Where
from stream_learner.errors import BrokenInvariant, BrokerUnreachable, RetryLater, StreamLearnerError, TopicMissing
from stream_learner.roles.control.topic import PARTITION, READ_RECORDS, require_control

LOOK_S = 0.5
"""How long one look waits for a record."""
AGAIN_S = 5.0
"""How long it waits before it looks for the topic again."""
CALM_S = 30.0
"""The topic counts as readable again, though no record came, when no error has come for so long: while brokers are away
librdkafka reports an error every ten seconds or so."""
STOP_S = 2.0
"""How long `stop` waits for the thread; while brokers do not answer it may take longer to end."""
BUFFER_BYTES = 1 << 20


class ControlWatch:
    """The present content of the control topic. `state` and the properties may be read from any thread; none waits."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        log: Logger,
        *,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        """on_look: called in the watch's thread after every look, a few times a second, also while nothing can be
        read; an exception of it ends the watch.
        """
        self.topic = topic
        self.state = ControlState()
        self.problem: StreamLearnerError | None = None
        """The reason why the topic cannot be read now, None while it can."""
        self._settings = settings
        self._log = log
        self._on_look = on_look
        self._admin: Admin | None = None
        self._topics: TopicWatch | None = None
        self._reader: PartitionReader | None = None
        self._reading = ControlState()
        self._end = 0
        self._troubled_s = 0.0
        self._was_read = False
        self._settled = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control-watch", daemon=True)

    def start(self) -> ControlWatch:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread; what is known stays."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def wait_settled(self, timeout_s: float) -> bool:
        """Wait until the topic has been read to its end, or is known not to be readable. Returns whether it is so."""
        return self._settled.wait(timeout_s)

    @property
    def is_settled(self) -> bool:
        """Whether the topic has been read to its end, or is known not to be readable."""
        return self._settled.is_set()

    @property
    def is_read(self) -> bool:
        """Whether the topic has been read to its end at least once."""
        return self._was_read

    def paused(self, model: str) -> bool:
        """Whether the publication of a model is paused, as far as is known."""
        return self.state.paused(model)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._look()
                self._on_look()
        finally:
            self._drop_reader()

    def _look(self) -> None:
        """Read what is there, for at most LOOK_S."""
        try:
            if self._reader is None:
                self._open()
            came = self._read()
            calm = time.monotonic() - self._troubled_s > CALM_S
            if self.problem is not None and (came or calm):
                self._log.info("control_topic_read", topic=self.topic)
                self.problem = None
        except StreamLearnerError as error:
            self._note(error)
            self._stop.wait(LOOK_S if isinstance(error, RetryLater) and self._reader is not None else AGAIN_S)
        except Exception as error:  # noqa: BLE001 -- a bug; whoever obeys the topic must not miss a pause for it
            self._note(BrokenInvariant(f"reading {self.topic} failed: {type(error).__name__}: {error}"), error)
            self._stop.wait(AGAIN_S)

    def _open(self) -> None:
        """Begin at the beginning, into a new state: `state` stays as it is until the topic has been read to its end."""
        place = (self.topic, PARTITION)
        self._admin = self._admin or Admin(self._settings)
        found = require_control(self._admin, self.topic)
        self._topics = TopicWatch(self._admin, [found])
        self._end = self._admin.offsets.last_stable_offsets([place])[place]
        start = self._admin.offsets.earliest([place])[place]
        self._reading = ControlState()
        self._reader = PartitionReader(
            self._settings, *place, start, with_keys=True, buffer_bytes=BUFFER_BYTES, name="control-watch"
        )

    def _read(self) -> bool:
        """Take the records that come within LOOK_S. Returns whether any came."""
        assert self._reader is not None and self._topics is not None
        self._topics.check()
        batch = self._reader.read(READ_RECORDS, LOOK_S)
        if batch is not None:
            for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
                self._take(key, value, Where(offset, PARTITION, self.topic))
        if self._reader.position >= self._end:
            self.state, self._was_read = self._reading, True
            self._settled.set()
        return batch is not None

    def _take(self, key: bytes | None, value: bytes | None, where: Where) -> None:
        try:
            self._reading.take(key, value, where)
        except RecordError as error:
            self._log.error("control_record_unusable", reason=str(error))

    def _note(self, error: StreamLearnerError, cause: Exception | None = None) -> None:
        """Log once that the topic cannot be read, and close the reader where it cannot go on.

        A topic that never was is logged for debugging only: a site without aliases, pauses and pins needs none.
        """
        if type(self.problem) is not type(error):
            never_was = isinstance(error, TopicMissing) and not self._was_read
            say = self._log.debug if never_was else self._log.warning
            say("control_topic_not_read", topic=self.topic, reason=str(error), action=error.action, exc_info=cause)
        self.problem, self._troubled_s = error, time.monotonic()
        if not isinstance(error, BrokerUnreachable | RetryLater):
            self._drop_reader()
            self._settled.set()

    def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
