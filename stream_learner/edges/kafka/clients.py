"""Makes librdkafka's clients.

In: a class of confluent-kafka, properties. Out: a client. This file must never keep a client, or properties, which hold
secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from stream_learner.edges.kafka.client_log import log
from stream_learner.edges.kafka.faults import kafka_error
from stream_learner.errors import ConfigError

T = TypeVar("T")
ATTEMPTS = 5
PAUSE_S = 0.3


def new_client(kind: Callable[..., T], properties: dict[str, Any]) -> T:
    """A client of these properties, which logs where the others do.

    Tries again for a moment: certificate and key may just be on their way to the disk, one after the other. Raises
    ConfigError with librdkafka's words when that does not help.
    """
    for attempt in range(ATTEMPTS):
        try:
            return kind(properties, logger=log)
        except KafkaException as error:
            if attempt == ATTEMPTS - 1:
                found = kafka_error(error)
                words = found.str() if found is not None else str(error)
                raise ConfigError(f"kafka: a client cannot be made any more: {words.strip()}") from error
        time.sleep(PAUSE_S)
    raise AssertionError("unreachable")
