"""What the records of the inputs are: which settings go together, and where a registry's secrets may be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream_learner.config import load_config
from stream_learner.config.checked import Config
from stream_learner.core.events.reasons import Refused
from stream_learner.errors import ConfigError
from stream_learner.roles.common.event_decoders import EventForms, schema_problems

URL = {"url": "http://registry:8081"}
ONE = '{"type": "record", "name": "E", "fields": [{"name": "id", "type": "string"}]}'


def made(impressions: dict[str, Any], registry: dict[str, Any] | None = None) -> Config:
    """A configuration with these settings of the impressions."""
    sides = {"impressions": {"topic": "i", **impressions}, "clicks": {"topic": "c"}}
    tree = {"model": "m", "kafka": {"bootstrap.servers": "x:1"}, "input": sides, "registry": registry or {}}
    return Config.model_validate(tree)


@pytest.mark.parametrize(
    ("impressions", "registry", "words"),
    [
        ({"format": "avro"}, {}, "schema: is missing"),
        ({"format": "avro", "framed": False}, URL, "schema: is missing"),
        ({"schema": "x"}, {}, "no use for format json"),
        ({"format": "protobuf", "message": "M"}, URL, "is for format protobuf without frames"),
        ({"format": "protobuf", "schema": "x"}, URL, "must be left out"),
        ({}, {**URL, "basic.auth.user.info": {"env": "A"}, "bearer.auth.token": {"env": "B"}}, "only one can be shown"),
        ({}, {"ssl.key.location": "k"}, "ssl.certificate.location: is missing"),
    ],
)
def test_settings_that_do_not_go_together(impressions: dict[str, Any], registry: dict[str, Any], words: str) -> None:
    """Each is named with what to do."""
    with pytest.raises(ValueError, match=words):
        made(impressions, registry)


def test_records_are_framed_where_a_registry_has_their_schemas() -> None:
    """Unless it is said otherwise; the form is part of what a training log was made from."""
    for impressions, form in (
        ({}, "json"),
        ({"framed": True}, "json, framed"),
        ({"format": "avro"}, "avro, framed"),
        ({"format": "avro", "framed": False, "schema": "x"}, "avro"),
    ):
        config = made(impressions, URL)
        assert config.event_specs()[0].format == form
        assert config.event_specs()[1].format == "json"


def test_no_secret_of_a_registry_is_in_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor in the message that refuses it; names with dots are set from the environment as well."""
    file = tmp_path / "m.yaml"
    text = "model: m\nkafka: {bootstrap.servers: x}\ninput: {impressions: {topic: i}, clicks: {topic: c}}\n"
    for written in (
        "registry: {basic.auth.user.info: 'user:never-shown'}",
        "registry: {bearer.auth.token: never-shown}",
        "registry: {url: 'http://user:never-shown@host'}",
    ):
        file.write_text(text + written, encoding="utf-8")
        with pytest.raises(ConfigError) as refused:
            load_config(file)
        assert "never-shown" not in f"{refused.value} {refused.value.problems} {capsys.readouterr()}"
    file.write_text(text, encoding="utf-8")
    environ = {"STREAM_LEARNER__REGISTRY__BASIC_AUTH_USER_INFO": "{env: A}"}
    config = load_config(file, environ=environ, overrides=["registry.ssl.ca.location=/ca"])
    assert config.registry.user_info is not None and config.registry.ca == "/ca"


def test_a_schema_file_is_read_when_it_is_needed(tmp_path: Path) -> None:
    """Not by a scorer, which may not have it; `config check` and the joiner say what is amiss."""
    file = tmp_path / "e.avsc"
    config = made({"format": "avro", "schema": str(file)})
    assert "cannot read" in next(schema_problems(config))
    file.write_text("{", encoding="utf-8")
    assert list(schema_problems(config)) == [
        "input.impressions.schema: the schema cannot be used: it is no Avro schema: JSONDecodeError"
    ]
    file.write_text(ONE, encoding="utf-8")
    assert list(schema_problems(config)) == []
    as_json = EventForms(config).impressions_as_json(config.feature_spec())
    assert as_json(b"\2x") == b'{"id":"x"}'
    with pytest.raises(Refused, match="not what the schema says"):
        as_json(b"")
    proto = tmp_path / "e.proto"
    proto.write_text('syntax = "proto3"; message A { string id = 1; } message B { string x = 1; }', encoding="utf-8")
    config = made({"format": "protobuf", "schema": str(proto)})
    assert "`message` must say which of A, B" in next(schema_problems(config))
    assert list(schema_problems(made({"format": "protobuf", "schema": str(proto), "message": "A"}))) == []
