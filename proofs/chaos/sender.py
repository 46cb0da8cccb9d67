"""Sends the traffic while faults go on: each partition in its order, each record once, and none is given up."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests import scenarios
from tests.scenarios import Scenario

PROPERTIES = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": 0,
    "message.max.bytes": 12 << 20,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class TrafficSender:
    """Sends both topics of a model, up to a share of everything, or up to a time."""

    def __init__(self, bootstrap: str, scenario: Scenario, impressions: str, clicks: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **PROPERTIES})
        self._parts = [
            (topic, partition, messages)
            for topic, parts in ((impressions, scenario.impressions), (clicks, scenario.clicks))
            for partition, messages in enumerate(parts)
        ]
        self._sent = [0] * len(self._parts)
        self._failures: list[str] = []
        self.acknowledged = 0

    @property
    def sent(self) -> int:
        """The number of records handed to the producer."""
        return sum(self._sent)

    def send_share(self, share: float) -> None:
        """Send up to this share of every partition; with 1.0 everything."""
        for place, (_, _, messages) in enumerate(self._parts):
            self._send_up_to(place, len(messages) if share >= 1 else int(share * len(messages)))
        self._producer.poll(0)

    def send_until(self, now_ms: int) -> None:
        """Send the events up to this time, in the order of each partition."""
        for place, (_, _, messages) in enumerate(self._parts):
            up_to = self._sent[place]
            while up_to < len(messages) and messages[up_to].timestamp_ms <= now_ms:
                up_to += 1
            self._send_up_to(place, up_to)
        self._producer.poll(0)

    def _send_up_to(self, place: int, up_to: int) -> None:
        topic, partition, messages = self._parts[place]
        while self._sent[place] < up_to:
            m: scenarios.Message = messages[self._sent[place]]
            try:
                self._producer.produce(
                    topic, m.value, m.key, partition, timestamp=m.timestamp_ms, on_delivery=self._note
                )
            except BufferError:
                return
            except KafkaException as error:
                raise RuntimeError(f"the producer of the traffic has failed: {error}") from error
            self._sent[place] += 1

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failures.append(str(error))

    @property
    def settled(self) -> bool:
        """Whether everything sent is in its topic. Raises RuntimeError if something never will be."""
        self._producer.poll(0)
        if self._failures:
            raise RuntimeError(f"the producer of the traffic has failed: {self._failures[0]}")
        return self.acknowledged == self.sent

    def sent_of(self, scenario: Scenario) -> tuple[list[list[scenarios.Message]], list[list[scenarios.Message]]]:
        """The records sent to each partition of the impressions, and of the clicks."""
        sent = [messages[:count] for (_, _, messages), count in zip(self._parts, self._sent, strict=True)]
        return sent[: scenario.partitions], sent[scenario.partitions :]

    def close(self) -> None:
        """Close the producer and drop what is not sent yet."""
        self._producer.purge()
        self._producer.flush(1)
