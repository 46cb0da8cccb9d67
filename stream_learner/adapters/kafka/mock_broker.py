"""The broker inside librdkafka, for the demo and for unit tests only.

It listens on the loopback interface. This file must never be used where exactly-once, replay, compaction, retention or
speed are tested or claimed. The mock broker

- keeps about 5 MiB of a partition, and drops older batches silently;
- hides nothing from `read_committed` readers, fences nobody, stores no offsets sent in a transaction;
- has no compaction, no retention, no topic settings, no topic ids;
- says of every record that it was appended at `APPENDED_MS`, whatever the time is;
- does not answer the admin client's calls for topics (`Admin` knows that);
- takes `session.timeout.ms` - 1 s for a rebalance, so set that to 3-6 s;
- is slow with batches of one record, so set a linger of at least 5 ms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import TracebackType

from confluent_kafka import cimpl

APPENDED_MS = 1234
_PRODUCER = 0
_CONF_OK = 0
_ERROR_TEXT_BYTES = 512


def _library() -> ctypes.CDLL:
    """librdkafka as linked into confluent-kafka, with the signatures used here."""
    lib = ctypes.CDLL(cimpl.__file__)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
        "rd_kafka_err2str": (text, [number]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class EmbeddedBroker:
    """A mock cluster of one broker, with the given topics (name to number of partitions).

    Use as a context manager; `bootstrap` is the address inside of it. Raises RuntimeError if librdkafka refuses.
    """

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self._topics = dict(topics or {})
        self._lib = _library()
        self._client: int | None = None
        self._cluster: int | None = None
        self.bootstrap = ""

    def __enter__(self) -> EmbeddedBroker:
        self._client = self._make_client()
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._client, 1)
        if not self._cluster:
            raise RuntimeError("librdkafka made no mock cluster")
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 100)
        self.bootstrap = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        for name, partitions in self._topics.items():
            self.create_topic(name, partitions)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._cluster:
            self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        if self._client:
            self._lib.rd_kafka_destroy(self._client)
        self._cluster = self._client = None

    def _make_client(self) -> int:
        """Make a client that owns the mock cluster and connects to nothing."""
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        conf = self._lib.rd_kafka_conf_new()
        for name, value in ((b"client.id", b"embedded-broker"), (b"log_level", b"0")):
            if self._lib.rd_kafka_conf_set(conf, name, value, text, len(text)) != _CONF_OK:
                raise RuntimeError(text.value.decode())
        client = self._lib.rd_kafka_new(_PRODUCER, conf, text, len(text))
        if not client:
            raise RuntimeError(f"librdkafka made no client: {text.value.decode()}")
        return int(client)

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic; the one broker leads all partitions."""
        self._check(self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1), name)

    def _check(self, code: int, what: str) -> None:
        if code != 0:
            raise RuntimeError(f"mock cluster, {what}: {self._lib.rd_kafka_err2str(code).decode()}")
