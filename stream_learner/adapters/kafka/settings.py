"""From the `kafka:` section to the properties of each kind of client, our own fixed properties included.

This file must never print or log a secret, nor let a property through that breaks a protocol of this program.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from stream_learner.adapters.kafka.clients import log, require_room
from stream_learner.adapters.kafka.credentials import Credentials, subject_of, text_of
from stream_learner.adapters.kafka.diagnosis import diagnosis, why_not_understood
from stream_learner.adapters.kafka.faults import Operation
from stream_learner.adapters.kafka.properties import (
    ALIASES,
    CALLBACKS,
    COMMON,
    CONSUMER_ONLY,
    FIXED,
    IN_A_COMMAND,
    OURS,
    PRODUCER_ONLY,
)
from stream_learner.config.kafka import is_secret
from stream_learner.errors import ConfigError

DEFAULT_GROUP = "stream-learner"
BATCH_BYTES = "1000000"
"""librdkafka's default of `batch.size`."""
DEFAULTS = {"client.id": "stream-learner", "topic.metadata.propagation.max.ms": "5000"}
"""Our defaults where librdkafka has others: a topic that does not exist is reported after 5 s, not 30."""
_NOT_IN_A_COMMAND = re.compile(r"[^A-Za-z0-9._/@:+=-]|^-")


class KafkaSettings:
    """The properties every client of a role shares; immutable.

    properties: librdkafka's own; values are text, numbers or booleans, or references to a file or a variable. A file is
    read again when it has changed. `bootstrap.servers` is required. group: the consumer group's id; even readers
    outside the group must name one.

    Raises ConfigError with one problem per property: those in `OURS`, those in `FIXED` with another value, callbacks,
    and what librdkafka does not know or accept. Raises RetryLater where the process has no threads or files left for a
    client. Making an instance takes some milliseconds.
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
        """Rises when a certificate, key or secret has changed on disk. Clients made before should be made anew."""
        return self._credentials.version()

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers, comma-separated."""
        return self._properties["bootstrap.servers"]

    @property
    def principal(self) -> str:
        """The name that the brokers see, if the settings tell it: a user, an OAuth client, a certificate's subject."""
        mechanism = (self.get("sasl.mechanism") or self.get("sasl.mechanisms")).upper()
        protocol = self.get("security.protocol").lower()
        if protocol.startswith("sasl") or not protocol:
            named = "sasl.oauthbearer.client.id" if mechanism == "OAUTHBEARER" else "sasl.username"
            if self.get(named):
                return self.get(named)
        subject = subject_of(self.get("ssl.certificate.location")) if protocol == "ssl" else None
        return subject.name if subject is not None else f"client {self.get('client.id')}"

    def operation(self, what: str, topic: str = "", partition: int = -1, **names: str) -> Operation:
        """An operation of a client with these settings, for errors. names: further fields of `Operation`."""
        who = {"principal": self.principal, "bootstrap": self.bootstrap}
        return Operation(what, topic, partition, **{**who, **names}, explain=self.explain)

    def explain(self, words: str = "") -> str:
        """The reason why brokers and client do not understand each other, "" if unknown. May take some seconds."""
        return diagnosis(self._properties, words)

    def why_not_understood(self) -> str:
        """The reason why no address of `bootstrap.servers` can be a broker for these settings, "" if one may be."""
        return why_not_understood(self._properties)

    def with_group(self, group: str) -> KafkaSettings:
        """A copy of these settings for another consumer group."""
        other = copy.copy(self)
        other.group = group
        return other

    def with_batches(self, limit_bytes: int | None) -> KafkaSettings:
        """A copy of these settings whose producers send batches of at most `limit_bytes`; None sets no limit.

        A topic limits the size of batches, not of records.
        """
        other = copy.copy(self)
        other._batch_bytes = limit_bytes
        return other

    @property
    def batch_bytes(self) -> int | None:
        """The limit that `with_batches` has set; None without one."""
        return self._batch_bytes

    def get(self, name: str, default: str = "") -> str:
        """A property: as given, else our default, else `default`."""
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
        """The properties that our own rules forbid, one line each."""
        problems = []
        if not self._properties.get("bootstrap.servers"):
            problems.append("kafka.bootstrap.servers: required, as host:port[,host:port]")
        return problems + forbidden(self._properties)

    def _refused_by_library(self, values: Mapping[str, str]) -> list[str]:
        """The properties that librdkafka refuses, found out with clients that connect to nothing."""
        require_room()
        offline = {"bootstrap.servers": "", "log_level": "0"}
        try:
            Consumer({**self.consumer(), **_without(PRODUCER_ONLY, values), **offline}, logger=log).close()
            Producer({**self.producer(), **_without(CONSUMER_ONLY, values), **offline}, logger=log).close()
            return []
        except (KafkaException, ValueError, TypeError) as error:
            return [self._named(error, values)]

    def _named(self, error: Exception, values: Mapping[str, str]) -> str:
        """One line for librdkafka's refusal. It names the setting and holds no secret."""
        cause = error.args[0] if error.args else error
        text = (cause.str() if hasattr(cause, "str") else str(error)).strip()
        for name, value in values.items():
            if is_secret(name) and value:
                text = text.replace(value, "***")
        named = next((name for name in values if f'"{name}"' in text or f"`{name}`" in text), None)
        if named is None:
            return f"kafka: {text}"
        return f"kafka.{named}: {text}{_nearest(named) if 'No such' in text else ''}"


def forbidden(properties: Mapping[str, str]) -> list[str]:
    """The properties that `OURS`, `FIXED` and `CALLBACKS` forbid, or forbid with this value, one line each."""
    problems = []
    for name, value in properties.items():
        if name in OURS:
            problems.append(f"kafka.{name}: not settable here: {OURS[name]}")
        elif name in CALLBACKS:
            problems.append(f"kafka.{name}: not a setting")
        elif name in IN_A_COMMAND and _NOT_IN_A_COMMAND.search(value):
            problems.append(f"kafka.{name}: may hold letters, digits and . _ / @ : + = - only: a shell reads it")
        elif name in FIXED and value not in _accepted(name):
            problems.append(f"kafka.{name}: must be {FIXED[name][0]}: {FIXED[name][1]}")
    return problems


def _without(names: frozenset[str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def _accepted(name: str) -> set[str]:
    value = FIXED[name][0]
    return {value, "-1"} if value == "all" else {value}


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, [*PRODUCER_ONLY, *CONSUMER_ONLY, *COMMON], n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _dotted(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as properties: `__` becomes a dot. Names of callbacks have a single underscore and keep it."""
    return {
        name.replace("__", "."): text_of(value) if isinstance(value, bool) else value for name, value in ours.items()
    }
