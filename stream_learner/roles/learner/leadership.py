"""Who leads: of all learners of a model, the one that publishes. The others follow the log with a state of their own.

In: the lease, a consumer group on the control topic. Out: whether this learner is to lead now.
This file must never be what keeps two learners from publishing: that is the publisher's transactional id. The lease
only says when it is time to take over.

| learner           | leads                                           | ends                                      |
|-------------------|-------------------------------------------------|-------------------------------------------|
| `learn`           | from its start; it asks for the lease, no more  | when another one has fenced it            |
| `learn --standby` | once it has caught up, while it holds the lease | as well; or when it wakes, another has it |
| `backfill`        | from its start, without a lease                 | when another one has fenced it            |

A standby that lost the lease while it was awake, as one does that no broker answers, follows again. A standby that was
never caught up is no candidate. Each model has a lease of its own.

Publishers that are connected before they are needed, so that whoever takes over does not wait for a connection.

In: settings and transactional ids. Out: publishers that have not been initialised.
This part must never initialise one: that would fence a learner that leads, before it is time.

A client that is told to initialise its id before it knows a broker looks again half a second later; one that knows its
broker is through in some milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import KafkaSettings, Lease, TransactionalPublisher, holder_of
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.errors import Fenced, RetryLater, StreamLearnerError

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config


RESTART = (
    "Leave only one of them, or start this one with `learn --standby`: it follows, and takes over when the other one "
    "ends. A plain `learn` would take the other one's place."
)


class Leadership:
    """Whether a model's learner is to lead. Used by the learner's thread, which calls `poll` in every turn."""

    def __init__(
        self, config: Config, settings: KafkaSettings, metrics: Metrics, *, standby: bool, with_lease: bool = True
    ) -> None:
        """standby: lead only while this learner holds the lease. with_lease: whether it asks for one."""
        self.standby = standby
        self._with_lease = with_lease or standby
        self._config = config
        self._settings = settings.with_group(config.lease_group)
        self._metrics = metrics
        self._log = get_logger("learner").bind(model=config.model)
        self._lease: Lease | None = None
        self._held = False
        self._woke_after_s = 0.0
        self._candidate_since_s = 0.0
        self._trouble: type[StreamLearnerError] | None = None

    @property
    def stood_by_s(self) -> float:
        """How long this learner has been a candidate for the lease."""
        return time.monotonic() - self._candidate_since_s

    def poll(self, *, caught_up: bool) -> bool:
        """Whether this learner is to lead now.

        caught_up: whether it could go on from where another one ends; a standby is no candidate before. Raises Fenced
        for a standby that has slept through the end of its lease while another one holds it, and what `Lease.poll`
        raises; a learner that waits for nobody goes on without a lease.
        """
        if self._lease is None:
            if not self._with_lease:
                return True
            if self.standby and not caught_up:
                return False
            self._lease = self._ask()
        try:
            self._lease.poll()
        except StreamLearnerError as error:
            if self.standby and not isinstance(error, RetryLater):
                raise
            self._say(error)
        self._note(self._lease)
        return self._lease.held or not self.standby

    def _ask(self) -> Lease:
        config = self._config
        self._candidate_since_s = time.monotonic()
        return Lease(
            self._settings,
            config.control_topic,
            timeout_ms=config.learner.lease_timeout_ms,
            name="standby" if self.standby else "leader",
        )

    def _note(self, lease: Lease) -> None:
        """Say when the lease has come or gone."""
        if lease.held != self._held:
            self._held = lease.held
            self._log.info("lease_held" if lease.held else "lease_lost", group=self._settings.group)
            self._woke_after_s = lease.silent_s
        if self.standby and self._woke_after_s and lease.elsewhere:
            raise self.taken_over(
                f"this learner did nothing for {self._woke_after_s:.1f} s, and its lease ({self._settings.group}) ended"
            )

    def _say(self, error: StreamLearnerError) -> None:
        """Say once that there is no lease to be had."""
        if self._trouble is not type(error):
            self._trouble = type(error)
            self._log.warning("lease_not_asked_for", reason=str(error), action=error.action)

    def taken_over(self, what: str) -> Fenced:
        """The error of a learner that has led and must not go on, with who leads now if the brokers tell."""
        holder = holder_of(self._settings, self._config.control_topic)
        named = f", held now by {holder}" if holder else ""
        return Fenced(
            f"{what}; another learner publishes {self._config.model}, or may: lease {self._settings.group}{named}",
            action=RESTART,
        )

    def awake(self) -> None:
        """Say that this learner has waited for brokers since the last `poll`."""
        if self._lease is not None:
            self._lease.awake()

    def note(self, leads: bool) -> None:
        """Show whether this learner leads."""
        self._metrics.set(names.LEARNER_LEADS, float(leads))

    def leave(self) -> None:
        """Give the lease up, so that a standby has it at once."""
        if self._lease is not None:
            self._lease.close()


@dataclass(frozen=True)
class TakeOver:
    """What a take-over took: how long the standby had waited, and from when on it had the lease."""

    stood_by_s: float
    begun_s: float
    fence_s: float = 0.0
    seconds: float = 0.0

    def fenced(self) -> TakeOver:
        """Whoever published before no longer can, and what was published last is known."""
        return replace(self, fence_s=time.monotonic() - self.begun_s)

    def published(self) -> TakeOver:
        """The first version is out."""
        return replace(self, seconds=time.monotonic() - self.begun_s)

    def fields(self) -> dict[str, float]:
        """For the log."""
        found = {"stood_by_seconds": self.stood_by_s, "fence_seconds": self.fence_s}
        if self.seconds:
            found["first_publication_seconds"] = self.seconds - self.fence_s
        return {name: round(value, 3) for name, value in found.items()}


class WarmPublishers:
    """One learner's publishers until it leads. Used by the learner's thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[KafkaSettings, TransactionalPublisher]] = {}

    def connect(self, settings: KafkaSettings, transactional_id: str) -> None:
        """Begin to connect a publisher; returns at once."""
        self._waiting[transactional_id] = (settings, TransactionalPublisher(settings, transactional_id))

    def take(self, settings: KafkaSettings, transactional_id: str) -> TransactionalPublisher:
        """The one that was connected, if it is of these settings and the credentials on disk; else a new one."""
        waiting = self._waiting.pop(transactional_id, None)
        if waiting is not None:
            made_with, publisher = waiting
            if made_with.batch_bytes == settings.batch_bytes and not publisher.outdated:
                return publisher
            publisher.close()
        return TransactionalPublisher(settings, transactional_id)

    def close(self) -> None:
        """Drop those that nobody has taken."""
        for _, publisher in self._waiting.values():
            publisher.close()
        self._waiting.clear()
