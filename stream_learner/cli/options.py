"""Options that several commands share, and the configuration they lead to, with logging set up by it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from stream_learner.config import ENVIRONMENT_PREFIX, Config, KafkaOptions, load_config
from stream_learner.config.values import parse_duration_ms
from stream_learner.errors import ConfigError

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="STREAM_LEARNER_CONFIG",
        metavar="FILE",
        help="The configuration, YAML. Environment variables STREAM_LEARNER__A__B and --set win over it.",
    ),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set one setting, such as join.window=10m; repeatable."),
]
FailWithoutBrokers: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--fail-without-brokers", help="End with exit code 20 where no broker answers at the start; else it waits."
    ),
]
Who: TypeAlias = Annotated[
    str | None, typer.Option("--who", metavar="TEXT", help="Who does this, for the record; user@host if left out.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else on stdout.")]


def load(file: Path | None, overrides: Sequence[str] | None, *, secrets: bool = True) -> Config:
    """Load the configuration and check it completely, the options of librdkafka included.

    secrets: False to leave out the checks that need the files and variables of secrets. Raises ConfigError with every
    finding.
    """
    _need_settings(file, overrides)
    _refuse_secrets(overrides or ())
    check = _kafka_problems if secrets else None
    return load_config(file, environ=os.environ, overrides=overrides or (), check_kafka=check)


def _kafka_problems(options: KafkaOptions) -> Sequence[str]:
    """The findings of the Kafka client about its options, files and variables of secrets included."""
    from stream_learner.adapters.kafka import KafkaSettings
    from stream_learner.adapters.kafka.credentials import text_of
    from stream_learner.adapters.kafka.settings import forbidden

    unreadable = list(options.unreadable())
    if unreadable:
        written = {name: text_of(value) for name, value in options.root.items() if isinstance(value, (str, int, float))}
        return [*unreadable, *forbidden(written)]
    try:
        KafkaSettings(options.root)
    except ConfigError as error:
        return error.problems or (error.message,)
    return ()


def start_logging(config: Config, *, is_role: bool = False) -> None:
    """Set up logging as the configuration says, with the model's name in each line.

    is_role: whether the command runs for long, beside others. Then the format `auto` is JSON on a pipe; a command that
    ends by itself writes text there too.
    """
    from stream_learner.adapters.telemetry.logs import configure_logging

    telemetry = config.telemetry
    log_format = "console" if telemetry.log_format == "auto" and not is_role else telemetry.log_format
    configure_logging(log_format=log_format, log_level=telemetry.log_level, model=config.model)


def load_for_role(file: Path | None, overrides: Sequence[str] | None) -> Config:
    """Load the configuration and set up logging; every command of a role begins with it.

    Logs a warning for each check of the brokers' certificates that is switched off.
    """
    return _load(file, overrides, is_role=True)


def load_for_command(file: Path | None, overrides: Sequence[str] | None) -> Config:
    """`load_for_role` for a command that ends by itself."""
    return _load(file, overrides, is_role=False)


def _load(file: Path | None, overrides: Sequence[str] | None, *, is_role: bool) -> Config:
    config = load(file, overrides)
    start_logging(config, is_role=is_role)
    for option, consequence in config.kafka.unchecked():
        _warn_of(option, consequence)
    return config


def _warn_of(option: str, consequence: str) -> None:
    from stream_learner.adapters.telemetry.logs import get_logger

    get_logger("process").warning(
        "certificates_not_checked",
        option=option,
        reason=consequence,
        action="Remove the option; name the brokers' authority in kafka.ssl.ca.location.",
    )


def seconds(text: str | float) -> float:
    """An option's duration in seconds: "20", "20s" or "2m"; a default is a number. Raises typer.BadParameter."""
    if not isinstance(text, str):
        return text
    try:
        return parse_duration_ms(f"{text}s" if text.replace(".", "", 1).isdigit() else text) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def who_of(given: str | None) -> str:
    """user@host; if the user has no name, as in a container, its number."""
    if given:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _refuse_secrets(overrides: Sequence[str]) -> None:
    """Raise ConfigError for a secret in `--set`: everybody on the machine can see it in the list of processes."""
    from stream_learner.config.kafka import secrets_in

    named = [name for override in overrides for name in secrets_in(override)]
    if named:
        raise ConfigError(
            f"a secret was given on the command line, where every user of the machine can read it: {', '.join(named)}",
            action="Change the secret, then write {file: PATH} or {env: NAME} in its place.",
        )


def _need_settings(file: Path | None, overrides: Sequence[str] | None) -> None:
    given_in_environment = any(name.startswith(ENVIRONMENT_PREFIX) for name in os.environ)
    if file is None and not overrides and not given_in_environment:
        raise ConfigError(
            "there is no configuration", action="Give a file with -c; configs/minimal.yaml is one to begin with."
        )
