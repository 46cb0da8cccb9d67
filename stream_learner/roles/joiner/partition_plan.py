"""`PartitionPlan`: what all partitions of a joiner have in common."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from stream_learner.adapters.kafka import Appender, EndWatch, KafkaSettings, OffsetQueries
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.field_bound import FieldBound
from stream_learner.core.log.marks import InputIdentity
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.roles.joiner.first_examples import FirstExamples
from stream_learner.roles.joiner.inputs import InputPlan
from stream_learner.roles.joiner.log_origin import LogOrigin
from stream_learner.roles.joiner.made_with import MadeWith
from stream_learner.roles.joiner.start_offsets import StartRule

MAX_LETTER_BYTES = 8 << 20
"""A longer dead record is cut to this length; the header `value_bytes` of its letter then tells the whole length."""


def _new_attempt_id() -> int:
    return secrets.randbelow(2**64 - 1) + 1


@dataclass(frozen=True)
class PartitionPlan:
    """Clients, topics and settings of a joiner.

    made_from: the input topics as resume points name them. record_bytes: the longest record of the training log.
    letter_bytes: the longest value of a dead letter. resume_within_s: the age at which a resume point is written
    whatever it costs. until_tick: the last tick to make, None for no end. clock_s: monotonic. new_attempt_id: u64,
    random, never 0. bound: on the rows of each field, None for none. unusable: counts the foreign records of the
    training log; None where nobody asks for their number. log_id: as of `Hint`. first_examples: None for a joiner that
    never begins a log again. made_with: None where nobody asks which settings differ.
    """

    settings: KafkaSettings
    queries: OffsetQueries
    appender: Appender
    ends: EndWatch
    inputs: InputPlan
    spec: JoinSpec
    log_topic: str
    dead_letters_topic: str
    start: StartRule
    origin: LogOrigin
    made_from: InputIdentity
    record_bytes: int
    resume_within_s: float
    log: Logger
    until_tick: int | None = None
    clock_s: Callable[[], float] = time.monotonic
    new_attempt_id: Callable[[], int] = _new_attempt_id
    letter_bytes: int = MAX_LETTER_BYTES
    unusable: UnusableRecords | None = None
    bound: FieldBound | None = None
    log_id: str = ""
    first_examples: FirstExamples | None = None
    made_with: MadeWith | None = None

    @property
    def coupled(self) -> bool:
        """Whether ticks and stream time are always one: no clock closes windows, or they end with `until_tick`."""
        return self.until_tick is not None or self.inputs.clock is None

    @property
    def partitions(self) -> int:
        """The number of partitions of each input topic."""
        return self.made_from.partitions

    def log_partition(self, partition: int) -> str:
        """A partition of the training log as messages name it."""
        return f"{self.log_topic} partition {partition}"
