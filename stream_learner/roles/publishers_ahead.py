"""Publishers that are connected before they are needed, so that whoever takes over does not wait for a connection.

In: settings and transactional ids. Out: publishers that have not been initialised.
This file must never initialise one: that would fence a learner that leads, before it is time.

A client that is told to initialise its id before it knows a broker looks again half a second later; one that knows its
broker is through in some milliseconds.
"""

from __future__ import annotations

from stream_learner.edges.kafka import KafkaSettings, TransactionalPublisher


class PublishersAhead:
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
