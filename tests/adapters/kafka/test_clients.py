"""Clients are made, and made anew, in a process that has no threads or files left for a while."""

from __future__ import annotations

import pytest

from tests.children import run_python

LEFT = {"NPROC": 0, "NOFILE": 2}
"""What is left of each: no thread, and two files, with which a secret can be read and a client cannot connect."""
PREPARE = """
import logging, os, resource, sys, tempfile, threading, time
from pathlib import Path
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from stream_learner.adapters.kafka import Appender, EmbeddedBroker, KafkaSettings
from stream_learner.adapters.kafka.clients import new_client
from stream_learner.adapters.kafka.packed_consumer import PackedConsumer
from stream_learner.adapters.kafka.reader_pool import ReaderPool
from stream_learner.config.references import FromFile
from stream_learner.core.parts import JOIN, compile_parts
from stream_learner.errors import RetryLater

limit, left = getattr(resource, "RLIMIT_" + sys.argv[1]), int(sys.argv[2])
compile_parts([JOIN])
if os.getuid() == 0:  # no limit of threads holds for root
    os.setgid(65534), os.setuid(65534)

def take():
    free = os.dup(0)
    os.close(free)
    used = free if limit == resource.RLIMIT_NOFILE else 0
    resource.setrlimit(limit, (used + left, resource.getrlimit(limit)[1]))

def give_back():
    most = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (most, most))
"""
MADE = """
given = {"bootstrap.servers": "127.0.0.1:1"}
take()
for kind in (Consumer, PackedConsumer, AdminClient, Producer):
    try:
        new_client(kind, {**given, "group.id": "g", "log_level": "0"})
        print(kind.__name__, "was made")
    except RetryLater as error:
        assert "a client cannot be made now" in str(error), error
try:
    KafkaSettings(given)
    print("settings were tried")
except RetryLater:
    give_back()
    KafkaSettings(given)
"""
RENEWED = """
said = []
logging.getLogger("stream_learner.kafka").addFilter(lambda record: said.append(record.getMessage()) or False)

def until(true):
    while not true():
        time.sleep(0.01)

def read(reader):
    appender.append("t", 0, b"x")
    appender.flush(60)
    until(lambda: reader.read(10, 0.1))

with tempfile.TemporaryDirectory() as folder, EmbeddedBroker({"t": 1}) as broker:
    secret = Path(folder, "secret")
    secret.write_text("old")
    settings = KafkaSettings({"bootstrap.servers": broker.bootstrap, "client.rack": FromFile(file=str(secret))})
    settings._credentials._period_s = 0.05
    appender = Appender(settings)
    with ReaderPool(settings, "t", packed=True).open(0, 0) as reader:
        read(reader)
        consumer = reader._pool.consumer
        secret.write_text("new")
        take()
        until(lambda: settings.credentials_version() or said)
        for _ in range(3):
            read(reader)
        assert reader._pool.consumer is consumer and len(said) == 1, said
        assert "cannot be used, the ones before stay: kafka: a client cannot be made now" in said[0], said
        give_back()
        until(settings.credentials_version)
        read(reader)
        assert reader._pool.consumer is not consumer and settings.get("client.rack") == "new"
    appender.close()
"""


@pytest.mark.parametrize("what", LEFT)
def test_a_client_that_lacks_threads_or_files_is_an_error_and_no_end_of_the_process(what: str) -> None:
    """Of every kind, and of the trial that settings make; with room again it is made."""
    done = run_python(PREPARE + MADE, what, str(LEFT[what]))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("what", LEFT)
def test_credentials_that_change_meanwhile_are_said_and_count_once_there_is_room(what: str) -> None:
    """Until then the reader goes on with the consumer that it has."""
    done = run_python(PREPARE + RENEWED, what, str(LEFT[what]))
    assert done.returncode == 0, done.stderr
