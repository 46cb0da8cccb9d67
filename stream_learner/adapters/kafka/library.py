"""The functions of the librdkafka that the client was built with, for what the client does record by record in Python.

Only documented functions of librdkafka's public interface are here, with their C types. `library` is None where the
client does not show them, as on another platform, or brings a librdkafka that this was not tried with; then everything
goes through the client. docs/adr/0022 says how a new version is tried.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import cache
from typing import Any

from confluent_kafka import cimpl, libversion

from stream_learner.adapters.kafka.clients import log

LIBRDKAFKA = libversion()[0]
"""The version of the library."""
TRIED = ("2.16",)
"""The versions of librdkafka whose functions and structures this was tried with; corrections of one change neither."""
CONSUMER = 1
"""`RD_KAFKA_CONSUMER`"""
CONF_OK = 0
LIVES_ON = 0x8
"""`RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE`: the consumer was closed already."""
ErrorCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
LogCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)


class TopicMetadata(ctypes.Structure):
    """`rd_kafka_metadata_topic_t`"""

    _fields_ = (
        ("topic", c_char_p),
        ("partition_cnt", c_int),
        ("partitions", c_void_p),
        ("err", c_int),
    )


class Metadata(ctypes.Structure):
    """`rd_kafka_metadata_t`"""

    _fields_ = (
        ("broker_cnt", c_int),
        ("brokers", c_void_p),
        ("topic_cnt", c_int),
        ("topics", POINTER(TopicMetadata)),
    )


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_conf_destroy": (None, (c_void_p,)),
    "rd_kafka_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "rd_kafka_conf_set_error_cb": (None, (c_void_p, ErrorCallback)),
    "rd_kafka_conf_set_log_cb": (None, (c_void_p, LogCallback)),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_name": (c_char_p, (c_void_p,)),
    "rd_kafka_err2str": (c_char_p, (c_int,)),
    "rd_kafka_set_log_queue": (c_int, (c_void_p, c_void_p)),
    "rd_kafka_poll_set_consumer": (c_int, (c_void_p,)),
    "rd_kafka_consumer_close": (c_int, (c_void_p,)),
    "rd_kafka_destroy_flags": (None, (c_void_p, c_int)),
    "rd_kafka_queue_get_consumer": (c_void_p, (c_void_p,)),
    "rd_kafka_queue_io_event_enable": (None, (c_void_p, c_int, c_char_p, c_size_t)),
    "rd_kafka_queue_destroy": (None, (c_void_p,)),
    "rd_kafka_consume_batch_queue": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
    "rd_kafka_message_errstr": (c_char_p, (c_void_p,)),
    "rd_kafka_message_timestamp": (c_int64, (c_void_p, c_void_p)),
    "rd_kafka_message_destroy": (None, (c_void_p,)),
    "rd_kafka_last_error": (c_int, ()),
    "rd_kafka_topic_partition_list_new": (c_void_p, (c_int,)),
    "rd_kafka_topic_partition_list_add": (c_void_p, (c_void_p, c_char_p, c_int32)),
    "rd_kafka_topic_partition_list_set_offset": (c_int, (c_void_p, c_char_p, c_int32, c_int64)),
    "rd_kafka_topic_partition_list_destroy": (None, (c_void_p,)),
    "rd_kafka_incremental_assign": (c_void_p, (c_void_p, c_void_p)),
    "rd_kafka_incremental_unassign": (c_void_p, (c_void_p, c_void_p)),
    "rd_kafka_error_code": (c_int, (c_void_p,)),
    "rd_kafka_error_string": (c_char_p, (c_void_p,)),
    "rd_kafka_error_destroy": (None, (c_void_p,)),
    "rd_kafka_query_watermark_offsets": (c_int, (c_void_p, c_char_p, c_int32, c_void_p, c_void_p, c_int)),
    "rd_kafka_topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "rd_kafka_topic_destroy": (None, (c_void_p,)),
    "rd_kafka_metadata": (c_int, (c_void_p, c_int, c_void_p, c_void_p, c_int)),
    "rd_kafka_metadata_destroy": (None, (c_void_p,)),
}


@cache
def library() -> Any:
    """The library that the client itself uses, with the C types of the functions above set.

    None if one is missing, or the version is another than those that were tried: that is logged. A symbol is looked up
    in the client's extension module and in what that was linked with, so it is the same copy.
    """
    if ctypes.sizeof(c_void_p) != 8:
        return None
    if not LIBRDKAFKA.startswith(tuple(f"{tried}." for tried in TRIED)):
        log.warning("records are read with the ordinary client: librdkafka %s is not among %s", LIBRDKAFKA, TRIED)
        return None
    try:
        found = ctypes.CDLL(cimpl.__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return found


def address_of_function(name: str) -> int:
    """Where a function of the library lies in memory."""
    address = ctypes.cast(getattr(library(), name), c_void_p).value
    assert address is not None
    return address
