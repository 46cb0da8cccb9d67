"""Decides when a learner's last checkpoint is copied, and has `CopyWriter` copy it in a thread of its own.

The fold never waits for a copy, and does not end when a copy fails; it ends when another process copies the same model.

The pace is bounded twice: copies begin `learner.copy_interval` apart, and send at most `learner.copy_rate` bytes in a
second. A copy that takes longer than the interval is finished all the same.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import Admin, KafkaSettings, TransactionalPublisher
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.errors import BrokenInvariant, BrokerUnreachable, Fenced, RetryLater, StreamLearnerError
from stream_learner.roles.learner.copies.writer import CopyWriter, WrittenCopy

if TYPE_CHECKING:
    from collections.abc import Callable

    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.roles.learner.checkpoints import Checkpoints

AGAIN_S = 1.0
AGAIN_AT_MOST_S = 60.0
FINISH_S = 10.0
"""How long the end of a learner waits for the copy of its last checkpoint."""
STOP_S = 15.0
LOOK_S = 0.01
AWAY = "brokers"
"""One name for all failures while brokers are away, so that they are logged once."""


class CopySchedule:
    """The copies of one learner's checkpoints.

    All methods are for the learner's thread. Only `begin`, `finish` and `close` wait.
    """

    def __init__(
        self,
        make_writer: Callable[[Callable[[int], bool]], CopyWriter],
        metrics: Metrics,
        log: Logger,
        *,
        interval_s: float,
        rate_bytes_per_s: float,
    ) -> None:
        """make_writer: makes the writer with the function that it calls before it sends.

        interval_s: copies begin at least so far apart. rate_bytes_per_s: the most that is sent in a second.
        """
        self._writer = make_writer(self._wait_for_rate)
        self._metrics, self._log = metrics, log
        self._interval_s, self._rate = interval_s, rate_bytes_per_s
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._checkpoint_tick = -1
        self._committed_s = self._copied_s = time.monotonic()
        self._fenced: Fenced | None = None
        self._failing = ""
        self._again_s = AGAIN_S
        self._began_s = float("-inf")
        self._free_at_s = 0.0
        self._thread = threading.Thread(target=self._run, name="checkpoint-copies", daemon=True)

    @property
    def tick(self) -> int:
        """The tick of the last complete copy of this state directory, -1 without one."""
        return self._writer.tick

    def begin(self) -> None:
        """Begin the writer, then the thread. Raises what `CopyWriter.begin` raises."""
        self._writer.begin()
        self._metrics.follow(names.LEARNER_COPY_AGE, lambda: time.monotonic() - self._copied_s)
        self._metrics.set(names.LEARNER_COPIED_VERSION, self.tick)
        self._thread.start()

    def committed(self, tick: int) -> None:
        """Note that a checkpoint of this tick is in the state directory."""
        with self._lock:
            self._checkpoint_tick, self._committed_s = tick, time.monotonic()
        self._news.set()

    def check(self) -> None:
        """Raise Fenced if another process copies the checkpoints of this model."""
        if self._fenced is not None:
            raise self._fenced

    def finish(self, limit_s: float = FINISH_S) -> None:
        """Copy the last checkpoint at once, without a limit of the rate.

        Waits for it until `limit_s` are over, but not if copies fail.
        """
        self._hurry.set()
        self._news.set()
        until_s = time.monotonic() + limit_s
        while self._checkpoint_tick > self.tick and self._thread.is_alive() and not self._failing:
            if time.monotonic() > until_s:
                return
            time.sleep(LOOK_S)

    def close(self) -> None:
        """End the thread. A copy without its head does not count."""
        self._stop.set()
        self._hurry.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._writer.close()

    def _run(self) -> None:
        while self._is_due():
            try:
                self._copy()
            except Fenced as error:
                self._fenced = error
                return
            except StreamLearnerError as error:
                self._note_failure(error)
            except Exception as error:  # noqa: BLE001 -- a bug; the fold goes on without copies
                self._note_failure(
                    BrokenInvariant(f"copying to {self._writer.topic} failed: {type(error).__name__}: {error}")
                )

    def _is_due(self) -> bool:
        """Wait until there is something to copy and it is time; False when told to stop."""
        while not self._stop.is_set():
            if self._checkpoint_tick <= self.tick:
                self._news.wait()
                self._news.clear()
                continue
            wait_s = self._began_s + self._interval_s - time.monotonic()
            if wait_s <= 0 or self._hurry.wait(wait_s):
                self._began_s = time.monotonic()
                return not self._stop.is_set()
        return False

    def _note_failure(self, error: StreamLearnerError) -> None:
        """Log the first of several failures of one kind, and wait, longer each time."""
        trouble = AWAY if isinstance(error, BrokerUnreachable | RetryLater) else type(error).__name__
        if self._failing != trouble:
            self._failing = trouble
            self._log.warning(
                "checkpoint_copy_failed", topic=self._writer.topic, reason=str(error), action=error.action
            )
        self._metrics.inc(names.RETRIES, role="learner", error=type(error).__name__)
        self._stop.wait(self._again_s)
        self._again_s = min(2 * self._again_s, AGAIN_AT_MOST_S)
        self._began_s = float("-inf")

    def _copy(self) -> None:
        with self._lock:
            committed_s = self._committed_s
        began_s = time.monotonic()
        copied = self._writer.copy()
        if copied is not None:
            self._copied_s = committed_s
            self._note_copy(copied, time.monotonic() - began_s)

    def _wait_for_rate(self, size_bytes: int) -> bool:
        """Wait until the rate allows to send so many bytes more; False when told to stop."""
        wait_s = self._free_at_s - time.monotonic()
        if wait_s > 0:
            self._hurry.wait(wait_s)
        self._free_at_s = time.monotonic() + size_bytes / self._rate
        self._metrics.inc(names.LEARNER_COPIED_BYTES, size_bytes)
        return not self._stop.is_set()

    def _note_copy(self, copied: WrittenCopy, seconds: float) -> None:
        if self._failing:
            self._log.info("checkpoint_copied_again", topic=self._writer.topic, tick=copied.tick)
        self._failing, self._again_s = "", AGAIN_S
        self._metrics.inc(names.LEARNER_COPIES)
        self._metrics.observe(names.LEARNER_COPY, seconds)
        self._metrics.set(names.LEARNER_COPIED_VERSION, copied.tick)
        self._log.debug(
            "checkpoint_copied",
            tick=copied.tick,
            pieces=copied.pieces,
            sent=copied.sent,
            bytes=copied.size_bytes,
            seconds=round(seconds, 3),
        )


def begin_copies(
    config: Config,
    settings: KafkaSettings,
    admin: Admin,
    checkpoints: Checkpoints,
    metrics: Metrics,
    log: Logger,
    *,
    new_publisher: Callable[[KafkaSettings, str], TransactionalPublisher] = TransactionalPublisher,
) -> CopySchedule:
    """Make the copies of a learner's checkpoints, and begin them. Raises what `CopySchedule.begin` raises."""

    def make(before_sending: Callable[[int], bool]) -> CopyWriter:
        return CopyWriter(
            settings,
            admin,
            checkpoints.store,
            topic=config.checkpoints_topic,
            new_publisher=partial(new_publisher, settings, config.copier_id),
            before_sending=before_sending,
            topic_made_anew=lambda: log.warning(
                "checkpoints_topic_made_anew", topic=config.checkpoints_topic, does="copies every piece again"
            ),
        )

    copies = CopySchedule(
        make,
        metrics,
        log,
        interval_s=config.learner.copy_interval_ms / 1000,
        rate_bytes_per_s=config.learner.copy_rate_bytes,
    )
    try:
        copies.begin()
    except BaseException:
        copies.close()
        raise
    if checkpoints.tick >= 0:
        copies.committed(checkpoints.tick)
    return copies
