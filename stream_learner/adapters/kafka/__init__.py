"""Kafka, by way of confluent-kafka and librdkafka. No other package uses these libraries.

The clients
-----------

A role holds several clients. Each does one thing:

    object                  client of librdkafka       what it does
    ----------------------  -------------------------  ----------------------------------------------------------
    Membership              consumer in the group      learns which partitions are ours; reads no record
    Lease                   consumer in its own group  learns whether this learner leads; reads no record
    ReaderPool              consumer outside a group   reads many partitions of one topic, each from a given offset
    PartitionReader         consumer outside a group   a pool of one partition
    Appender                idempotent producer        appends in order, and tells the offset of each record
    TransactionalPublisher  transactional producer     makes records of several partitions visible together
    Admin                   admin client               describes topics, creates them, compares them with a plan
    OffsetQueries           consumer outside a group   asks the leaders for ends, beginnings and offsets at a time

`deletion.py` deletes a topic or a group by its name; no role uses it.

A pool may read with a `PackedConsumer`, which hands records over as columns and one buffer: a Python object for each
costs more than all the rest of reading. It calls librdkafka's C functions (`library.py`), has the same properties and
errors as the ordinary consumer, and is left for that one where tokens must be fetched or the functions are not found
(`packed_consumer.py`).

Membership is apart from reading, so that a rebalance which gives a partition back does not interrupt its work.

`KafkaSettings` holds the `kafka:` section and makes the properties of each kind of client (`settings.py`,
`properties.py`). librdkafka reads certificates and passwords only when a client is made. When they have changed on
disk, `credentials_version()` rises, and each object makes its client anew, or says that it must be made anew, at a
moment when nothing is lost (`credentials.py`).

Threads
-------

One thread uses an object, unless its docstring says "thread-safe": `KafkaSettings`, `Admin`, `OffsetQueries`.
librdkafka has threads of its own. They call none of our code: callbacks run inside `poll`, `consume` or
`flush`, in the thread that calls. (`Admin` and `OffsetQueries` call `poll(0)` and `consume` before and after a request,
for its callbacks.) Two objects have threads of their own, which ask again and again: `EndWatch` for the ends
of partitions, `RetentionWatch` for how long what is needed will be kept.

How partitions share a consumer
-------------------------------

    broker --> librdkafka's queue --ReaderPool.poll--> what is held, by partition --SharedReader.read--> RawBatch
               all partitions mixed                    [7] records, end, records
                                                       [8] records, error

Each reader has its own position. Whoever reads one partition takes what lies at the head of the common queue, and the
pool holds what belongs to the others. A partition that nobody reads would fill the memory of all. So when the pool
holds too much, it takes the partitions with more than an equal share out of the consumer's assignment ("set aside"),
and puts them back when most of what it holds of them is read. `reader_pool.py` says why that is not `pause` and
`resume`.

Leaders and offsets
-------------------

The leader of a partition answers what its offsets are. A consumer asks, not an admin client: `list_offsets` of
librdkafka can end the process (`docs/adr/0025-offsets-are-asked-by-a-consumer.md`). An answer holds as of a moment
before the question: `EndWatch` keeps that moment with the answer (`asked_at_ms`), and never moves it forward without a
new answer.

What each error means
---------------------

`faults.py` turns each `KafkaError` into a class of `stream_learner.errors`, which says what happens next:

    Kafka reports                                      raised                what happens next
    -------------------------------------------------  --------------------  ------------------------------------
    no connection, no answer in time                   BrokerUnreachable     the role waits and tries again
    no leader, a rebalance, too few replicas, quotas   RetryLater            the role waits and tries again
    (nothing: no threads or files left for a client)   RetryLater            the client that is there goes on
    a right is missing                                 NotAuthorised         stop: an operator grants it
    credentials or a certificate are refused           AuthenticationFailed  stop
    the topic or partition does not exist              TopicMissing          stop
    the topic has another id than before               TopicRecreated        stop
    the offset is not in the partition any more        LogTrimmed            stop, or `seek`
    another process took the place of this one         Fenced                stop
    a setting cannot work                              ConfigError           stop
    anything that is not known to be retriable         Stop                  stop, with the code to look up

librdkafka tells refused credentials only in its error callback; the call itself says that nobody answered. `Reports`
keeps what the callback said, and `instead_of` puts it in the place of the vaguer error.

Read `settings.py` and `faults.py` first, then the file of the object that you need.
"""

from stream_learner.adapters.kafka.admin import NO_TOPIC_ID, Admin, Difference, TopicInfo, TopicPlan, differences
from stream_learner.adapters.kafka.appender import Appender, Delivery
from stream_learner.adapters.kafka.ends import BEYOND_END, End, EndWatch, Moments, OffsetQueries, TopicAndPartition
from stream_learner.adapters.kafka.group import Assigned, Committed, Event, Lost, Membership, Revoked, ToCommit
from stream_learner.adapters.kafka.lease import Lease, holder_of
from stream_learner.adapters.kafka.library import LIBRDKAFKA
from stream_learner.adapters.kafka.mock_broker import EmbeddedBroker
from stream_learner.adapters.kafka.publisher import Record, TransactionalPublisher
from stream_learner.adapters.kafka.raw_batch import RawBatch
from stream_learner.adapters.kafka.reader_pool import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    PartitionReader,
    ReaderPool,
    ReaderPools,
)
from stream_learner.adapters.kafka.retention import Retention, RetentionWatch
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.adapters.kafka.shared_reader import Reader, SharedReader
from stream_learner.adapters.kafka.topic_watch import ADDED, TopicWatch
from stream_learner.adapters.kafka.wake import Wake

__all__ = [
    "ADDED",
    "BEYOND_END",
    "LIBRDKAFKA",
    "NO_TOPIC_ID",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Admin",
    "Appender",
    "Assigned",
    "Committed",
    "Delivery",
    "Difference",
    "EmbeddedBroker",
    "End",
    "EndWatch",
    "Event",
    "KafkaSettings",
    "Lease",
    "Lost",
    "Membership",
    "Moments",
    "OffsetQueries",
    "PartitionReader",
    "RawBatch",
    "Reader",
    "ReaderPool",
    "ReaderPools",
    "Record",
    "Retention",
    "RetentionWatch",
    "Revoked",
    "SharedReader",
    "ToCommit",
    "TopicAndPartition",
    "TopicInfo",
    "TopicPlan",
    "TopicWatch",
    "TransactionalPublisher",
    "Wake",
    "differences",
    "holder_of",
]
