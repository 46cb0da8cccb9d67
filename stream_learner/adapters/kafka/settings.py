"""From the `kafka:` section to the properties of each kind of client.

In: any librdkafka property, by name; values may be kept in files and variables. Out: the dictionaries that consumers,
producers and admin clients are made with, our own fixed properties included.
This file must never print or log a secret, nor let a property through that breaks a protocol of this program.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from stream_learner.adapters.kafka.client_log import log
from stream_learner.adapters.kafka.credentials import Credentials, subject_of, text_of
from stream_learner.adapters.kafka.diagnosis import diagnosis
from stream_learner.adapters.kafka.faults import Operation
from stream_learner.adapters.kafka.properties import (
    ALIASES,
    CALLBACKS,
    COMMON,
    CONSUMER_ONLY,
    FIXED,
    OURS,
    PRODUCER_ONLY,
)
from stream_learner.config.kafka import is_secret
from stream_learner.errors import ConfigError

DEFAULT_GROUP = "stream-learner"
BATCH_BYTES = "1000000"
"""librdkafka's own default of `batch.size`."""
DEFAULTS = {"client.id": "stream-learner", "topic.metadata.propagation.max.ms": "5000"}
"""What is not librdkafka's own default: a topic that does not exist is reported after 5 s, not 30."""


class KafkaSettings:
    """The properties every client of a role shares; immutable.

    `properties` are librdkafka's own, values as text, numbers or booleans, or references to a file or a variable,
    which are read anew when the file has changed; `bootstrap.servers` is required. `group` is the consumer group's id,
    which even readers outside the group must name.

    Raises ConfigError with one problem a property: those in `OURS`, those in `FIXED` with another value,
    callbacks, and whatever librdkafka does not know or accept. Making one takes some milliseconds.
    """

    def __init__(self, properties: Mapping[str, Any], *, group: str = DEFAULT_GROUP) -> None:
        given = {str(name): value for name, value in properties.items() if value is not None}
        named = {ALIASES.get(name, name): value for name, value in given.items()}
        self._credentials = Credentials(named, refused=self._refused_by_library)
        self.group = group
        self._batch_bytes: int | None = None
        problems = self._problems() or self._refused_by_library(self._properties)
        if problems:
            raise ConfigError(f"the settings under `kafka:` cannot work: {'; '.join(problems)}", problems=problems)

    def __repr__(self) -> str:
        shown = {name: "***" if is_secret(name) else value for name, value in self._properties.items()}
        return f"KafkaSettings({shown!r}, group={self.group!r})"

    @property
    def _properties(self) -> Mapping[str, str]:
        return self._credentials.values

    def credentials_version(self) -> int:
        """Grows when a certificate, key or secret has changed on disk; a client made before should be made anew."""
        return self._credentials.version()

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers, comma-separated."""
        return self._properties["bootstrap.servers"]

    @property
    def principal(self) -> str:
        """Who the brokers see, as far as the settings tell: a user, an OAuth client, or a certificate's subject."""
        mechanism = (self.get("sasl.mechanism") or self.get("sasl.mechanisms")).upper()
        protocol = self.get("security.protocol").lower()
        if protocol.startswith("sasl") or not protocol:
            named = "sasl.oauthbearer.client.id" if mechanism == "OAUTHBEARER" else "sasl.username"
            if self.get(named):
                return self.get(named)
        subject = subject_of(self.get("ssl.certificate.location")) if protocol == "ssl" else None
        return subject.name if subject is not None else f"client {self.get('client.id')}"

    def operation(self, what: str, topic: str = "", partition: int = -1, **names: str) -> Operation:
        """What a client of these settings is about to do, for errors; `names` are further fields of `Operation`."""
        who = {"principal": self.principal, "bootstrap": self.bootstrap}
        return Operation(what, topic, partition, **{**who, **names}, explain=self.explain)

    def explain(self, words: str = "") -> str:
        """Why the brokers and we do not understand each other, "" if that cannot be told; takes up to some seconds."""
        return diagnosis(self._properties, words)

    def with_group(self, group: str) -> KafkaSettings:
        """The same properties for another consumer group."""
        other = copy.copy(self)
        other.group = group
        return other

    def with_batches(self, limit_bytes: int | None) -> KafkaSettings:
        """The same properties for producers whose batches are no larger: a topic's limit is one of batches of records.

        None sets no limit.
        """
        other = copy.copy(self)
        other._batch_bytes = limit_bytes
        return other

    @property
    def batch_bytes(self) -> int | None:
        """The bound that `with_batches` has set, None without one."""
        return self._batch_bytes

    def get(self, name: str, default: str = "") -> str:
        """A property as given, or our default, or the one given here."""
        return self._properties.get(name, DEFAULTS.get(name, default))

    def client_id(self, name: str) -> str:
        """The `client.id` of one client among several."""
        return f"{self.get('client.id')}-{name}"

    def consumer(self, **ours: Any) -> dict[str, Any]:
        """Properties of a consumer; `ours` (with `__` for `.`) win over what was given."""
        fixed = {name: value for name, (value, _) in FIXED.items() if name in CONSUMER_ONLY}
        return self._merged(PRODUCER_ONLY, {"group.id": self.group, **fixed, **_dotted(ours)})

    def producer(self, **ours: Any) -> dict[str, Any]:
        """Properties of a producer; idempotent, `acks=all`; `ours` win over what was given."""
        fixed = {"enable.idempotence": "true", "acks": "all"}
        if self._batch_bytes is not None:
            fixed["batch.size"] = str(min(self._batch_bytes, int(self.get("batch.size", BATCH_BYTES))))
        return self._merged(CONSUMER_ONLY, {**fixed, **_dotted(ours)})

    def admin(self, **ours: Any) -> dict[str, Any]:
        """Properties of an admin client; `ours` win over what was given."""
        return self._merged(PRODUCER_ONLY | CONSUMER_ONLY, _dotted(ours))

    def _merged(self, not_for: frozenset[str], ours: dict[str, Any]) -> dict[str, Any]:
        return {**DEFAULTS, **_without(not_for, self._properties), **ours}

    def _problems(self) -> list[str]:
        """What is wrong by our own rules."""
        problems = []
        if not self._properties.get("bootstrap.servers"):
            problems.append("kafka.bootstrap.servers: required, as host:port[,host:port]")
        for name, value in self._properties.items():
            if name in OURS:
                problems.append(f"kafka.{name}: not settable here: {OURS[name]}")
            elif name in CALLBACKS:
                problems.append(f"kafka.{name}: not a setting")
            elif name in FIXED and value not in _accepted(name):
                problems.append(f"kafka.{name}: must be {FIXED[name][0]}: {FIXED[name][1]}")
        return problems

    def _refused_by_library(self, values: Mapping[str, str]) -> list[str]:
        """What librdkafka says about properties, asked with clients that connect to nothing."""
        offline = {"bootstrap.servers": "", "log_level": "0"}
        try:
            Consumer({**self.consumer(), **_without(PRODUCER_ONLY, values), **offline}, logger=log).close()
            Producer({**self.producer(), **_without(CONSUMER_ONLY, values), **offline}, logger=log).close()
            return []
        except (KafkaException, ValueError, TypeError) as error:
            return [self._named(error, values)]

    def _named(self, error: Exception, values: Mapping[str, str]) -> str:
        """librdkafka's refusal as a line that names the setting and holds no secret."""
        cause = error.args[0] if error.args else error
        text = (cause.str() if hasattr(cause, "str") else str(error)).strip()
        for name, value in values.items():
            if is_secret(name) and value:
                text = text.replace(value, "***")
        named = next((name for name in values if f'"{name}"' in text or f"`{name}`" in text), None)
        if named is None:
            return f"kafka: {text}"
        return f"kafka.{named}: {text}{_nearest(named) if 'No such' in text else ''}"


def _without(names: frozenset[str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def _accepted(name: str) -> set[str]:
    value = FIXED[name][0]
    return {value, "-1"} if value == "all" else {value}


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, [*PRODUCER_ONLY, *CONSUMER_ONLY, *COMMON], n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _dotted(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as properties; callbacks keep their underscore, since it is a single one."""
    return {
        name.replace("__", "."): text_of(value) if isinstance(value, bool) else value for name, value in ours.items()
    }
