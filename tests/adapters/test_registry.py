"""Schemas from a registry: which answers settle what a schema is, and which only mean that it must be asked again."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from stream_learner.adapters import registry as adapter
from stream_learner.adapters.registry import RegistryClient, RegistrySchemas, basic, tls_context
from stream_learner.core.events.schemas import Schema
from stream_learner.errors import ConfigError, SchemaNotKnown
from tests.schema_registry import SchemaRegistry, running_registry
from tests.waiting import wait_until

AVRO = {"schema": '"string"'}
SECRET = "user:never-show-this"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        running.ids[1] = dict(AVRO)
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "ABSENT_AGAIN_S", 0.05)
    monkeypatch.setattr(adapter, "LONGEST_WAIT_S", 0.2)


def client(registry: SchemaRegistry, *before: str, timeout_s: float = 5.0, authorization: str = "") -> RegistryClient:
    """A client of the registry; addresses before it are tried first."""
    return RegistryClient((*before, registry.url), timeout_s, lambda: authorization)


def test_a_schema_with_its_type_and_references(registry: SchemaRegistry) -> None:
    """Avro is the type where none is named. What a reference needs itself comes before it, each once."""
    registry.ids[2] = {
        "schema": "m",
        "schemaType": "PROTOBUF",
        "references": [
            {"name": "a.proto", "subject": "a/b c", "version": 3},
            {"name": "b.proto", "subject": "b", "version": 1},
        ],
    }
    inner = [{"name": "b.proto", "subject": "b", "version": 1}]
    registry.versions["a%2Fb%20c", 3] = {"schema": "a", "references": inner}
    registry.versions["b", 1] = {"schema": "b"}
    assert client(registry).schema(1) == Schema("AVRO", '"string"')
    a, b = Schema("PROTOBUF", "a"), Schema("PROTOBUF", "b")
    assert client(registry).schema(2) == Schema("PROTOBUF", "m", (("b.proto", b), ("a.proto", a)))
    assert registry.asked.count("/subjects/b/versions/1") == 1


def test_a_descriptor_is_asked_for_instead_of_its_text(registry: SchemaRegistry) -> None:
    """Where the registry knows that form."""
    registry.ids[1], registry.serialized[1] = {"schema": "text", "schemaType": "PROTOBUF"}, "ZGVzY3JpcHRvcg=="
    assert client(registry).schema(1) == Schema("PROTOBUF", "ZGVzY3JpcHRvcg==")


def test_only_the_registrys_own_word_says_that_there_is_no_schema(registry: SchemaRegistry) -> None:
    """Its JSON with its code. All other answers say nothing."""
    assert client(registry).schema(9) is None
    for answers, words in (
        ("proxy", "answered 404"),
        ("empty", "without a schema for schema id 1"),
        ("503", "answered 503"),
        ("302", "answered 302"),
        ("away", "cannot be asked"),
    ):
        registry.answers = answers
        with pytest.raises(SchemaNotKnown, match=words):
            client(registry).schema(1)


def test_a_schema_that_is_too_large_or_refers_without_end_is_none(registry: SchemaRegistry) -> None:
    """Neither fills the memory."""
    registry.ids[2] = {"schema": "x" * ((1 << 20) + 1)}
    registry.ids[3] = {"schema": "x" * (4 << 20)}
    registry.ids[4] = {"schema": "x", "references": [{"name": "n0", "subject": "s0", "version": 1}]}
    for n in range(200):
        following = [{"name": f"n{n + 1}", "subject": f"s{n + 1}", "version": 1}]
        registry.versions[f"s{n}", 1] = {"schema": "x", "references": following}
    registry.ids[5] = {"schema": "x", "references": [{"name": "n"}]}
    registry.ids[6] = {"schema": "x", "references": [{"name": "n", "subject": "gone", "version": 1}]}
    for schema_id, words in (
        (2, "without a schema of at most"),
        (3, "more than"),
        (4, "more than 100 references"),
        (5, "no good references"),
        (6, "lacks gone version 1"),
    ):
        with pytest.raises(SchemaNotKnown, match=words):
            client(registry).schema(schema_id)


def test_the_next_address_is_asked_where_one_does_not_answer(registry: SchemaRegistry) -> None:
    """Several addresses are one registry."""
    assert client(registry, "http://127.0.0.1:1").schema(1) == Schema("AVRO", '"string"')


def test_a_password_goes_to_the_registry_and_into_no_message(registry: SchemaRegistry) -> None:
    """Not after a redirect either, which is not followed."""
    registry.authorization = basic(SECRET)
    assert client(registry, authorization=basic(SECRET)).schema(1) is not None
    with pytest.raises(SchemaNotKnown, match=r"answered 401; look at registry\.basic") as refused:
        client(registry, authorization=basic("user:other-secret")).schema(1)
    assert "other-secret" not in str(refused.value) and basic("user:other-secret") not in str(refused.value)
    asked = len(registry.asked)
    registry.answers = "302"
    with pytest.raises(SchemaNotKnown):
        client(registry, authorization=basic(SECRET)).schema(1)
    assert len(registry.asked) == asked + 1


def test_known_schemas_go_on_while_the_registry_is_away(registry: SchemaRegistry) -> None:
    """An unknown one is asked for until there is an answer; the log says once that it waits, and once that not."""
    schemas = RegistrySchemas(client(registry).schema)
    with capture_logs() as logs:
        wait_until(lambda: schemas.known([1]), "the schema is known")
        registry.answers, registry.ids[2] = "away", dict(AVRO)
        assert schemas.known([1, 2]) == {1: Schema("AVRO", '"string"')}
        wait_until(lambda: registry.asked.count("/schemas/ids/2") > 3, "it was asked for several times")
        assert schemas.known([2]) == {} and "cannot be asked" in schemas.trouble
        registry.answers = "well"
        wait_until(lambda: schemas.known([2]), "the schema is known")
        assert schemas.trouble == ""
    assert [line["event"] for line in logs] == ["registry_silent", "registry_answers"]
    assert registry.asked.count("/schemas/ids/1") == 1


def test_one_schema_that_is_known_is_no_answer_for_another(registry: SchemaRegistry) -> None:
    """The log says that the registry answers when nothing waits for it any more, and not before."""
    registry.ids[2], registry.lost = dict(AVRO), {2}
    schemas = RegistrySchemas(client(registry).schema)
    with capture_logs() as logs:
        wait_until(lambda: not schemas.known([2]) and schemas.trouble, "one is waited for")
        wait_until(lambda: schemas.known([1]), "the other is known")
        assert "schema id 2" in schemas.trouble
        assert [line["event"] for line in logs] == ["registry_silent"]
        registry.lost = set()
        wait_until(lambda: schemas.known([2]), "both are known")
        wait_until(lambda: len(logs) == 2, "it is said")
    assert [line["event"] for line in logs] == ["registry_silent", "registry_answers"]


def test_an_id_is_absent_after_several_answers_and_not_for_ever(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas of a registry may be behind: one that has it at last is heard."""
    monkeypatch.setattr(adapter, "ABSENT_FOR_S", 0.2)
    schemas = RegistrySchemas(client(registry).schema)
    wait_until(lambda: schemas.known([7]) == {7: Schema("")}, "it is absent")
    assert registry.asked.count("/schemas/ids/7") == 3
    registry.ids[7] = dict(AVRO)
    wait_until(lambda: schemas.known([7]).get(7) == Schema("AVRO", '"string"'), "it is there")


def test_a_command_waits_for_a_schema_and_then_says_why_there_is_none(registry: SchemaRegistry) -> None:
    """Unlike a role, which has other partitions."""
    assert RegistrySchemas(client(registry).schema, wait_s=30.0).known([1]) == {1: Schema("AVRO", '"string"')}
    registry.answers = "503"
    with pytest.raises(SchemaNotKnown, match=r"schema id 2: .* answered 503"):
        RegistrySchemas(client(registry).schema, wait_s=0.3).known([2])


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schemas used last stay. The thread ends with the last question."""
    monkeypatch.setattr(adapter, "MOST_KEPT_BYTES", 10 * adapter.SCHEMA_BYTES)
    asked, before = list[int](), {*threading.enumerate()}

    def ask(schema_id: int) -> Schema:
        asked.append(schema_id)
        return Schema("AVRO", "")

    schemas = RegistrySchemas(ask, wait_s=30.0)
    for schema_id in range(15):
        schemas.known([0, schema_id])
    assert asked == list(range(15))
    schemas.known([0, 14])
    schemas.known([1])
    assert asked == [*range(15), 1]
    wait_until(lambda: {*threading.enumerate()} <= before, "the thread has ended")


def test_files_of_tls_that_cannot_be_used_are_named() -> None:
    """At the start, and without what is in them."""
    with pytest.raises(ConfigError, match=r"registry\.ssl\.ca\.location: /nowhere is no file"):
        tls_context("/nowhere", None, None, None)
    with pytest.raises(ConfigError, match="certificates cannot be used"):
        tls_context(__file__, None, None, None)
    assert tls_context(None, None, None, None).verify_mode is ssl.CERT_REQUIRED
