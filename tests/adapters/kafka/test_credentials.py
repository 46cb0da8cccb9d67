"""Credentials on disk: what counts as a change, and what certificates say."""

from __future__ import annotations

import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stream_learner.adapters.kafka import Appender, KafkaSettings, OffsetQueries
from stream_learner.adapters.kafka.credentials import Credentials, subject_of
from stream_learner.config.references import FromEnvironment, FromFile
from stream_learner.errors import BrokerUnreachable, ConfigError, RetryLater
from tests.adapters.kafka.kafka_help import without_waiting
from tests.conftest import MakeTopic
from tests.security.certificates import Authority
from tests.waiting import patience

PERIOD_S = 10.0


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """At zero."""
    return Clock()


def looked(credentials: Credentials, clock: Clock, times: int = 2) -> int:
    """The version after some looks at the files."""
    for _ in range(times):
        clock.now_s += PERIOD_S
        version = credentials.version()
    return version


def test_a_secret_counts_when_its_file_was_the_same_at_two_looks(tmp_path: Path, clock: Clock) -> None:
    """Until then the old value stays; other options are never touched."""
    file = tmp_path / "password"
    file.write_text("first\n")
    options = {"sasl.username": "ada", "sasl.password": FromFile(file=str(file))}
    credentials = Credentials(options, period_s=PERIOD_S, clock_s=clock)
    assert looked(credentials, clock) == 0
    file.write_text("second")
    assert credentials.version() == 0, "it does not look more often than told"
    assert looked(credentials, clock, 1) == 0
    file.write_text("third")
    assert looked(credentials, clock, 1) == 0
    assert credentials.values["sasl.password"] == "first"
    assert looked(credentials, clock, 1) == 1
    assert credentials.values == {"sasl.username": "ada", "sasl.password": "third"}
    assert looked(credentials, clock) == 1


def test_a_file_that_is_gone_leaves_what_was_in_it(tmp_path: Path, clock: Clock) -> None:
    """The file may be in the middle of being replaced; once it is back, it counts."""
    file = tmp_path / "password"
    file.write_text("first")
    credentials = Credentials({"sasl.password": FromFile(file=str(file))}, period_s=PERIOD_S, clock_s=clock)
    file.unlink()
    assert looked(credentials, clock, 3) == 0
    assert credentials.values["sasl.password"] == "first"
    file.write_text("second")
    assert looked(credentials, clock) == 1


def test_a_variable_that_is_not_there_is_named() -> None:
    """A variable that is missing at the start is named in the error, as a file would be."""
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.password: the environment variable NO_SUCH_VARIABLE"):
        Credentials({"sasl.password": FromEnvironment(env="NO_SUCH_VARIABLE")})


def test_a_certificate_without_its_key_is_waited_for(tmp_path: Path) -> None:
    """One that librdkafka refuses leaves the pair before in use, and settings say so by their version."""
    authority = Authority(tmp_path, "ca")
    old, new = authority.issue("joiner", file="old"), authority.issue("joiner", file="new")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text(old.pem)
    key.write_text(old.key_pem)
    clock = Clock()
    options = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "ssl",
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    refused = KafkaSettings(options)._refused_by_library
    credentials = Credentials(options, refused=refused, period_s=PERIOD_S, clock_s=clock)
    certificate.write_text(new.pem)
    assert looked(credentials, clock, 3) == 0
    key.write_text(new.key_pem)
    assert looked(credentials, clock) == 1


def test_a_certificate_tells_its_subject_and_its_end(tmp_path: Path) -> None:
    """Subject and end are those that openssl reads; a file without a certificate gives None."""
    made = Authority(tmp_path, "ca").issue("joiner")
    found = subject_of(str(made.certificate))
    assert found is not None
    assert found.name == "CN=joiner,O=Ads"
    command = ["openssl", "x509", "-in", str(made.certificate), "-noout", "-enddate", "-dateopt", "iso_8601"]
    end = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert end == f"notAfter={found.valid_until:%Y-%m-%d %H:%M:%S}Z"
    assert subject_of(str(made.key)) is None
    assert subject_of("/nowhere") is None
    made.certificate.write_text(made.pem[:200] + "\n-----END CERTIFICATE-----\n")
    assert subject_of(str(made.certificate)) is None


class Changing(KafkaSettings):
    """Settings whose credentials have changed as often as `changes` says."""

    changes = 0

    def credentials_version(self) -> int:
        return self.changes


def test_a_question_under_way_when_credentials_change_gets_its_answer() -> None:
    """A thread waits for brokers that do not answer while another makes the shared client anew: it hears that they
    did not answer, and is not left waiting for a client that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        settings = Changing({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        queries = OffsetQueries(settings, request_timeout_s=1.0)
        waiting = pool.submit(queries.high_watermarks, [("topic", 0)])
        silent.accept()
        settings.changes += 1
        for asked in (lambda: queries.high_watermarks([("topic", 0)]), waiting.result):
            with pytest.raises(BrokerUnreachable):
                without_waiting(asked)


def test_an_appender_that_is_never_idle_says_that_credentials_have_changed(kafka: str, topics: MakeTopic) -> None:
    """The results in hand are given out once more; then it says so, although every call finds a result."""
    settings = Changing({"bootstrap.servers": kafka})
    topic, appender = topics("busy"), Appender(settings)

    def turn() -> int:
        appender.append(topic, 0, b"x")
        return len(appender.flush(patience()))

    try:
        assert [turn() for _ in range(3)] == [1, 1, 1]
        settings.changes += 1
        assert turn() == 1
        with pytest.raises(RetryLater, match="credentials have changed"):
            turn()
    finally:
        appender.close()
