"""The `kafka` section: options handed to librdkafka, with secrets taken from files or the environment.

The value of an option that may be a secret must never appear in a message, a repr or a dump. The Kafka adapters know
which options there are, and which of them this program sets itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, RootModel, field_validator, model_serializer

from stream_learner.config.references import FromEnvironment, FromFile
from stream_learner.config.yaml import YamlError, read_yaml
from stream_learner.errors import ConfigError

Scalar: TypeAlias = str | int | float | bool
MASK = "***"

_SHOWN_SASL_OPTIONS = frozenset(
    {"sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.method", "sasl.kerberos.service.name"}
)
PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_OF_REGISTRY = ("basic.auth.user.info", "bearer.auth.token", "ssl.key.password")
_NOTHING = ("", "null", "~")
_SECRET_WORDS = ("password", "secret", "token", "credential", ".pem", "jaas", "private", "api.key")


def is_secret(option: str) -> bool:
    """Whether an option's value may be a secret: most of `sasl.*`, and every option with a word such as `password` in
    its name."""
    name = option.lower()
    if name in _SHOWN_SASL_OPTIONS:
        return False
    return name.startswith("sasl.") or has_secret_word(name)


def has_secret_word(option: str) -> bool:
    """Whether a word in an option's name says that its value is a secret; names of files and URLs do not count."""
    name = option.lower()
    return not name.endswith((".url", ".location", ".file")) and any(word in name for word in _SECRET_WORDS)


def secrets_in(override: str) -> list[str]:
    """The options whose secret is written in `name=value` itself, not in a file or variable that it names."""
    name, _, text = override.partition("=")
    section, _, option = name.strip().lower().partition(".")
    text = text.strip()
    if (section in ("serve", "telemetry") and option == "token") or (section == "registry" and option in _OF_REGISTRY):
        return [] if text.startswith("{") or text in _NOTHING else [f"{section}.{option}"]
    if section != "kafka":
        return []
    if option:
        secret = has_secret_word(option) and not text.startswith(("{file:", "{env:"))
        return [f"kafka.{option}"] if secret else []
    try:
        options = read_yaml(text).data
    except YamlError:
        return []
    found = options.items() if isinstance(options, dict) else ()
    return [f"kafka.{name}" for name, value in found if has_secret_word(str(name)) and not isinstance(value, dict)]


KafkaValue: TypeAlias = Scalar | FromFile | FromEnvironment
_REFERENCES = ({"file"}, {"env"})


def _is_value(value: Any) -> bool:
    """Whether `value` is a scalar, or `{file: text}`, or `{env: text}`."""
    if isinstance(value, dict):
        return set(value) in _REFERENCES and all(isinstance(v, str) and v for v in value.values())
    return isinstance(value, (str, int, float, bool, FromFile, FromEnvironment))


def _check_address(name: str, server: str) -> None:
    """Raise ValueError for what cannot be an address of a broker. It never says the text: there may be a password."""
    scheme, separator, address = server.rpartition("://")
    if "@" in address:
        raise ValueError(
            f"{name} is HOST:PORT,… without user and password; they go into sasl.username and sasl.password, as "
            "{file: PATH} or {env: NAME}"
        )
    if separator and scheme.lower() not in PROTOCOLS:
        raise ValueError(f"{name} is HOST:PORT,… of Kafka's own protocol, not a URL")


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
        for name in ("bootstrap.servers", "metadata.broker.list"):
            given = options.get(name)
            for server in given.split(",") if isinstance(given, str) else ():
                _check_address(name, server.strip())
        return options

    def unreadable(self) -> Iterator[str]:
        """One line for each value that cannot be read from its file or variable now."""
        for name, value in self.root.items():
            if isinstance(value, (FromFile, FromEnvironment)):
                try:
                    value.read(f"kafka.{name}")
                except ConfigError as error:
                    yield error.message

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """The options that switch a check of the brokers' certificates off, each with what follows from that.

        A value in a file or variable that cannot be read counts as not given.
        """
        if self._text("security.protocol") not in ("ssl", "sasl_ssl"):
            return
        if self._text("enable.ssl.certificate.verification") in ("false", "f", "0"):
            name = "kafka.enable.ssl.certificate.verification"
            yield name, "is false: whoever is on the way can pass for the brokers, read all and take the password"
        elif self._text("ssl.endpoint.identification.algorithm") == "none":
            name = "kafka.ssl.endpoint.identification.algorithm"
            yield name, "is none: any certificate of the authority will do for a broker, whatever name it has"

    def _text(self, name: str) -> str:
        """An option as librdkafka compares it, "" where there is none."""
        value = self.root.get(name, "")
        try:
            found = value.read(f"kafka.{name}") if isinstance(value, (FromFile, FromEnvironment)) else value
        except ConfigError:
            return ""
        return str(found).strip().lower()

    @model_serializer
    def shown(self) -> dict[str, Any]:
        """The options with secrets as `***`, and references as they were written."""
        return {
            name: value.model_dump() if isinstance(value, BaseModel) else MASK if is_secret(name) else value
            for name, value in self.root.items()
        }

    def __repr__(self) -> str:
        return f"KafkaOptions({self.shown()!r})"

    __str__ = __repr__
