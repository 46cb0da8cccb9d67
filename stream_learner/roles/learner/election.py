"""Decides whether a learner is to lead its model, by the model's lease.

The lease only says when it is time to take over. It must never be what keeps two learners from publishing: that is the
publisher's transactional id (`leadership.py`). `roles/learner/__init__.py` has the table of the states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import KafkaSettings, Lease, holder_of
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.errors import Fenced, RetryLater, StreamLearnerError

if TYPE_CHECKING:
    from stream_learner.config import Config


RESTART = (
    "Leave only one of them, or start this one with `learn --standby`: it follows, and takes over when the other one "
    "ends. A plain `learn` would take the other one's place."
)


class Election:
    """The part of one learner in the election of its model's leader. Used by its thread, which polls in every turn."""

    def __init__(
        self,
        config: Config,
        settings: KafkaSettings,
        *,
        standby: bool,
        with_lease: bool = True,
        new_lease: Callable[..., Lease] = Lease,
    ) -> None:
        """standby: lead only while this learner holds the lease. with_lease: whether it asks for one."""
        self.standby = standby
        self._new_lease = new_lease
        self._with_lease = with_lease or standby
        self._config = config
        self._settings = settings.with_group(config.lease_group)
        self._log = get_logger("learner").bind(model=config.model)
        self._lease: Lease | None = None
        self._held = False
        self._woke_after_s = 0.0
        self._candidate_since_s = 0.0
        self._trouble: type[StreamLearnerError] | None = None

    @property
    def stood_by_s(self) -> float:
        """Seconds since this learner became a candidate for the lease."""
        return time.monotonic() - self._candidate_since_s

    def poll(self, *, caught_up: bool) -> bool:
        """Whether this learner is to lead now.

        caught_up: whether the fold has reached the end that the log had at the start; a standby is no candidate before.

        Raises Fenced for a standby that slept through the end of its lease while another learner holds it, and what
        `Lease.poll` raises. A learner that waits for nobody goes on where it cannot ask for the lease.
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
            self._log_once(error)
        self._note(self._lease)
        return self._lease.held or not self.standby

    def _ask(self) -> Lease:
        config = self._config
        self._candidate_since_s = time.monotonic()
        return self._new_lease(
            self._settings,
            config.control_topic,
            timeout_ms=config.learner.lease_timeout_ms,
            name="standby" if self.standby else "leader",
        )

    def _note(self, lease: Lease) -> None:
        """Log that the lease has come or gone. Raises Fenced, as `poll`."""
        if lease.held != self._held:
            self._held = lease.held
            self._log.info("lease_held" if lease.held else "lease_lost", group=self._settings.group)
            self._woke_after_s = lease.silent_s
        if self.standby and self._woke_after_s and lease.elsewhere:
            raise self.taken_over(
                f"this learner did nothing for {self._woke_after_s:.1f} s, and its lease ({self._settings.group}) ended"
            )

    def _log_once(self, error: StreamLearnerError) -> None:
        """Log once that the lease cannot be asked for."""
        if self._trouble is not type(error):
            self._trouble = type(error)
            self._log.warning("lease_not_asked_for", reason=str(error), action=error.action)

    def taken_over(self, what: str) -> Fenced:
        """The error for a learner that must not lead any more; it names the holder of the lease if the brokers know."""
        holder = holder_of(self._settings, self._config.control_topic)
        named = f", held now by {holder}" if holder else ""
        return Fenced(
            f"{what}; another learner publishes {self._config.model}, or may: lease {self._settings.group}{named}",
            action=RESTART,
        )

    def awake(self) -> None:
        """Tell the lease that this learner did not sleep since the last `poll`: it waited for brokers."""
        if self._lease is not None:
            self._lease.awake()

    def leave(self) -> None:
        """Give the lease up, so that a standby gets it at once."""
        if self._lease is not None:
            self._lease.close()
