"""The `kafka` section: options handed to librdkafka, with secrets taken from files or the environment.

In: option names and values as written. Out: a plain dictionary for a client, and a text without secrets.
This file must never show the value of an option that may be a secret, in a message, a repr or a dump. Which
options there are, and which of them this program sets itself, is for the Kafka adapters to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, RootModel, field_validator, model_serializer

from stream_learner.config.references import FromEnvironment, FromFile
from stream_learner.errors import ConfigError

Scalar: TypeAlias = str | int | float | bool
MASK = "***"

_SHOWN_SASL_OPTIONS = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.method", "sasl.kerberos.service.name"}
)
_SECRET_WORDS = ("password", "secret", "token", "credential", ".pem", "jaas", "private", "api.key")


def is_secret(option: str) -> bool:
    """Whether an option's value may be a secret: most of `sasl.*`, and whatever has a telling word in it."""
    name = option.lower()
    if name in _SHOWN_SASL_OPTIONS:
        return False
    return name.startswith("sasl.") or any(word in name for word in _SECRET_WORDS)


KafkaValue: TypeAlias = Scalar | FromFile | FromEnvironment
_REFERENCES = ({"file"}, {"env"})


def _is_value(value: Any) -> bool:
    """Whether `value` is a scalar, or `{file: text}`, or `{env: text}`."""
    if isinstance(value, dict):
        return set(value) in _REFERENCES and all(isinstance(v, str) and v for v in value.values())
    return isinstance(value, (str, int, float, bool, FromFile, FromEnvironment))


class KafkaOptions(RootModel[dict[str, KafkaValue]]):
    """Options of librdkafka by name; `bootstrap.servers` must be one of them."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    @field_validator("root", mode="before")
    @classmethod
    def _check_values(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            raise ValueError("write options as `name: value`")
        wrong = [str(name) for name, value in options.items() if not _is_value(value)]
        if wrong:
            raise ValueError("must be text, a number, true or false, {file: PATH} or {env: NAME}: " + ", ".join(wrong))
        return options

    @field_validator("root")
    @classmethod
    def _check_brokers(cls, options: dict[str, KafkaValue]) -> dict[str, KafkaValue]:
        if not (options.get("bootstrap.servers") or options.get("metadata.broker.list")):
            raise ValueError('bootstrap.servers is missing, for example "localhost:9092"')
        return options

    def resolve(self) -> dict[str, Scalar]:
        """The options for a client, files and environment read now.

        Raises ConfigError where a file or a variable is missing. The result holds secrets: never log it.
        """
        return {
            name: value.read(f"kafka.{name}") if isinstance(value, (FromFile, FromEnvironment)) else value
            for name, value in self.root.items()
        }

    def unreadable(self) -> Iterator[str]:
        """One line for each value that cannot be read from its file or variable now."""
        for name, value in self.root.items():
            if isinstance(value, (FromFile, FromEnvironment)):
                try:
                    value.read(f"kafka.{name}")
                except ConfigError as error:
                    yield error.message

    @model_serializer
    def shown(self) -> dict[str, Any]:
        """The options as they may be shown: secrets as `***`, references as they were written."""
        return {
            name: value.model_dump() if isinstance(value, BaseModel) else MASK if is_secret(name) else value
            for name, value in self.root.items()
        }

    def __repr__(self) -> str:
        return f"KafkaOptions({self.shown()!r})"

    __str__ = __repr__
