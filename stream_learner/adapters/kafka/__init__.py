"""Kafka: reading, appending, publishing, group membership, topics. The only user of confluent-kafka.

In: settings, topics, offsets, records. Out: batches, delivery results, events, and errors that say what happens next.
This package must never decide what is read or written when: that is the roles' business.
"""

from stream_learner.adapters.kafka.admin import NO_TOPIC_ID, Admin, Difference, TopicInfo, TopicPlan
from stream_learner.adapters.kafka.appender import Appender, Delivery
from stream_learner.adapters.kafka.ends import BEYOND_END, End, EndWatch, OffsetQueries
from stream_learner.adapters.kafka.group import Assigned, Committed, Event, Lost, Membership, Revoked
from stream_learner.adapters.kafka.leaders import TopicAndPartition
from stream_learner.adapters.kafka.lease import Lease, holder_of
from stream_learner.adapters.kafka.mock_broker import EmbeddedBroker
from stream_learner.adapters.kafka.publisher import Record, TransactionalPublisher
from stream_learner.adapters.kafka.raw_batch import RawBatch
from stream_learner.adapters.kafka.reader import PartitionReader
from stream_learner.adapters.kafka.reader_pool import READ_COMMITTED, READ_UNCOMMITTED, ReaderPool, ReaderPools
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.adapters.kafka.shared_reader import Reader
from stream_learner.adapters.kafka.topic_watch import ADDED, TopicWatch

__all__ = [
    "ADDED",
    "BEYOND_END",
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
    "OffsetQueries",
    "PartitionReader",
    "RawBatch",
    "Reader",
    "ReaderPool",
    "ReaderPools",
    "Record",
    "Revoked",
    "TopicAndPartition",
    "TopicInfo",
    "TopicPlan",
    "TopicWatch",
    "TransactionalPublisher",
    "holder_of",
]
