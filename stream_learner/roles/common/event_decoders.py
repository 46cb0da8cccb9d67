"""The decoders of both inputs as the configuration says: their form, their schema files, their registry."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from stream_learner.core.events.decoders import JSON, AsJson, ClickDecoder, Form, ImpressionDecoder
from stream_learner.errors import ConfigError

if TYPE_CHECKING:
    from stream_learner.adapters.registry import RegistrySchemas
    from stream_learner.config import Config
    from stream_learner.config.sections import Records, Registry
    from stream_learner.core.events.feature_spec import FeatureSpec
    from stream_learner.core.events.field_numbers import FieldNumbers

COMMANDS_WAIT_S = 30.0
"""So long a command waits for a schema; a role goes on with other partitions meanwhile."""


class EventForms:
    """The forms of both inputs: what their records are, and where their schemas come from."""

    def __init__(self, config: Config, *, wait_s: float = COMMANDS_WAIT_S) -> None:
        """wait_s: as of `RegistrySchemas`; the role that reads on with other partitions gives 0.

        Raises ConfigError where a schema file cannot be used, a library is missing, or TLS cannot be spoken.
        """
        self._specs, sides = config.event_specs(), config.input
        registry = config.registry
        asked = any(config.is_framed(side) and side.format != "json" for side in (sides.impressions, sides.clicks))
        schemas = _of_registry(registry, wait_s) if asked and registry.url is not None else None
        self._impressions = _form(config, "impressions", schemas)
        self._clicks = _form(config, "clicks", schemas)

    def impression_decoder(
        self, features: FeatureSpec, numbers: FieldNumbers | None = None, *, ones_left_out: bool = False
    ) -> ImpressionDecoder:
        """A decoder of impressions, as of `ImpressionDecoder`. Raises ConfigError for a schema that cannot be used."""
        with _as_config_error("impressions"):
            return ImpressionDecoder(self._specs[0], features, numbers, ones_left_out, self._impressions)

    def click_decoder(self) -> ClickDecoder:
        """A decoder of clicks. Raises ConfigError for a schema that cannot be used."""
        with _as_config_error("clicks"):
            return ClickDecoder(self._specs[1], self._clicks)

    def impressions_as_json(self, features: FeatureSpec) -> AsJson:
        """What makes JSON of an impression, whatever fields its schema has. Raises ConfigError as the decoder."""
        with _as_config_error("impressions"):
            return self._impressions.as_json(self._specs[0].impression_plan(features))

    def clicks_as_json(self) -> AsJson:
        """What makes JSON of a click, in the same way."""
        with _as_config_error("clicks"):
            return self._clicks.as_json(self._specs[1].click_plan())


def schema_problems(config: Config) -> Iterator[str]:
    """The findings of `config check` about schema files and the registry's files, one line each."""
    try:
        forms = EventForms(config)
    except ConfigError as error:
        yield error.message
        return
    for make in (lambda: forms.impression_decoder(config.feature_spec()), forms.click_decoder):
        try:
            make()
        except ConfigError as error:
            yield error.message


@contextmanager
def _as_config_error(side: str) -> Iterator[None]:
    from stream_learner.core.events.schemas import BadSchema

    try:
        yield
    except BadSchema as error:
        raise ConfigError(f"input.{side}.schema: {error}") from None


def _form(config: Config, side: str, registry: RegistrySchemas | None) -> Form:
    records: Records = getattr(config.input, side)
    framed = config.is_framed(records)
    if records.format == "json" and not framed:
        return JSON
    from stream_learner.core.events.schema_forms import SchemaForm
    from stream_learner.core.events.schemas import OneSchema, Schema, Schemas

    try:
        if records.format != "json":
            import_module(f"stream_learner.core.events.{records.format}")
    except ImportError as error:
        raise ConfigError(
            f"input.{side}.format: {records.format} needs {error.name}, which is not installed",
            action=f"Install stream-learner[{records.format}].",
        ) from None
    of_file = None
    if records.schema_file is not None:
        of_file = Schema(records.format.upper(), _text_of(records.schema_file, f"input.{side}.schema"))
    schemas: Schemas | None = registry if framed else None
    wanted = None
    if schemas is None and of_file is not None:
        schemas = OneSchema(of_file)
    elif records.format == "avro":
        wanted = of_file
    return SchemaForm(records.format, schemas, framed, records.message or "", wanted)


def _text_of(file: str, setting: str) -> str:
    """The text of a schema file; what is no text is a descriptor, and comes as base64."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {file}: {error.strerror}") from None
    try:
        text = content.decode()
        if "\0" not in text:
            return text
    except UnicodeDecodeError:
        pass
    return base64.b64encode(content).decode()


def _of_registry(registry: Registry, wait_s: float) -> RegistrySchemas:
    from stream_learner.adapters.registry import RegistryClient, RegistrySchemas, basic, tls_context

    def authorization() -> str:
        if registry.user_info is not None:
            return basic(registry.user_info.read("registry.basic.auth.user.info"))
        if registry.bearer_token is not None:
            return f"Bearer {registry.bearer_token.read('registry.bearer.auth.token')}"
        return ""

    urls = tuple(url.strip().rstrip("/") for url in (registry.url or "").split(","))
    context = None
    if any(url.startswith("https:") for url in urls):
        password = None if registry.key_password is None else registry.key_password.read("registry.ssl.key.password")
        context = tls_context(registry.ca, registry.certificate, registry.key, password)
    client = RegistryClient(urls, registry.timeout_ms / 1000, authorization, context)
    return RegistrySchemas(client.schema, wait_s)
