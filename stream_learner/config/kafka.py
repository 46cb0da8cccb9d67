"""The `kafka` section: options handed to librdkafka, with secrets taken from files or the environment.

In: option names and values as written. Out: a plain dictionary for a client, and a text without secrets.
This file must never show the value of an option that may be a secret, in a message, a repr or a dump. Which
options there are, and which of them this program sets itself, is for the Kafka adapters to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator, model_serializer

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


class FromFile(BaseModel):
    """A value that is the content of a file, without the line break at its end."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    file: str = Field(min_length=1, description="path of the file that holds the value")

    def read(self, option: str) -> str:
        """The value now. Raises ConfigError, naming option and file, where it cannot be read."""
        try:
            return Path(self.file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"kafka.{option}: cannot read the file {self.file}: {reason}") from None


class FromEnvironment(BaseModel):
    """A value that is an environment variable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    env: str = Field(min_length=1, description="name of the environment variable that holds the value")

    def read(self, option: str) -> str:
        """The value now. Raises ConfigError, naming option and variable, where it is not set."""
        value = os.environ.get(self.env)
        if value is None:
            raise ConfigError(f"kafka.{option}: the environment variable {self.env} is not set")
        return value


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
            name: value.read(name) if isinstance(value, (FromFile, FromEnvironment)) else value
            for name, value in self.root.items()
        }

    def unreadable(self) -> Iterator[str]:
        """One line for each value that cannot be read from its file or variable now."""
        for name, value in self.root.items():
            if isinstance(value, (FromFile, FromEnvironment)):
                try:
                    value.read(name)
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
