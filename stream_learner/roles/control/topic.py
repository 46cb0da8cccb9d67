"""Reads the control topic whole, and writes to it.

Records are appended by an idempotent producer; nothing is locked. For an alias, these steps make that safe:

1. Read to the last stable offset; make the new record from what is there.
2. Append it, and see whether it went to the offset expected.
3. Read on past it. All records of the key together say what holds (`core/control/state.py`, `merged`).
4. If the last record of the key says something else, because somebody wrote in between, append what holds; back to 3.

| a crash after | leaves                                         | the next writer                           |
|---------------|------------------------------------------------|-------------------------------------------|
| step 1        | nothing new                                    | begins at step 1                          |
| step 2 or 3   | a record that may lack another one's change    | merges both in step 1, writes both        |
| step 4        | a last record that says what holds             | begins at step 1                          |
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from stream_learner.adapters.kafka import Admin, Appender, KafkaSettings, PartitionReader, TopicInfo
from stream_learner.adapters.record_errors import error_in_topic
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.control.records import Record, encode
from stream_learner.core.control.state import ControlState
from stream_learner.core.errors import RecordError, Where
from stream_learner.errors import ConfigError, NotAuthorised, PartitionCountsDiffer, RetryLater, TopicMissing
from stream_learner.wording import count_of

PARTITION = 0
READ_RECORDS = 1_000
APPEND_TIMEOUT_S = 30.0
ROUNDS = 20
POLICY = "cleanup.policy"
MISSING = "Run `stream-learner topics ensure`, which makes it; `topics.control` is its name."


@dataclass(frozen=True)
class Written:
    """offset: of the record. now: what all records of its key say together, None where somebody deleted them. between:
    the records of others that came between the reading and the writing.
    """

    offset: int
    now: Record | None
    between: list[Record] = field(default_factory=list)


class ControlTopic:
    """The control topic for one command: read, then perhaps written. Used by one thread."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        """Reads it whole.

        Raises TopicMissing, PartitionCountsDiffer, ConfigError, BrokerUnreachable, RetryLater, NotAuthorised.
        """
        self._settings = settings
        self._admin = Admin(settings)
        self.topic = topic
        require_control(self._admin, topic)
        self.state = ControlState()
        self._position = self._admin.offsets.earliest([(topic, PARTITION)])[topic, PARTITION]
        self._log = get_logger("control")
        self.read()

    def read(self) -> list[tuple[int, Record]]:
        """Read on to the present last stable offset. Returns the records that can be used, with their offsets.

        A record that cannot be used is logged, and kept in `state.unusable`.
        """
        place = (self.topic, PARTITION)
        end = self._admin.offsets.last_stable_offsets([place])[place]
        found: list[tuple[int, Record]] = []
        if self._position >= end:
            return found
        with PartitionReader(
            self._settings, self.topic, PARTITION, self._position, with_keys=True, name="control"
        ) as reader:
            while reader.position < end:
                batch = reader.read(READ_RECORDS, 0.5)
                if batch is None:
                    continue
                for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
                    record = self._take(offset, key, value)
                    found += [(offset, record)] if record is not None else []
            self._position = reader.position
        return found

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> Record | None:
        try:
            return self.state.take(key, value, Where(offset, PARTITION, self.topic))
        except RecordError as error:
            self._log.warning("control_record_unusable", reason=str(error))
            return None

    def check(self, key: bytes) -> None:
        """Raise DamagedLog or NewerFormat where the last record of this key cannot be used."""
        error = self.state.unusable.get(key)
        if error is not None:
            raise error_in_topic(error, self.topic, PARTITION, error.offset or 0)

    def write(self, record: Record) -> Written:
        """Take steps 2 to 4 for a record that was made from `state`.

        Raises RetryLater or BrokerUnreachable where it is not known whether the record was written, NotAuthorised.
        """
        appender = Appender(self._settings, name="control")
        try:
            return self._write(appender, record)
        finally:
            appender.close()

    def _write(self, appender: Appender, record: Record) -> Written:
        key, between, first = record.key, list[Record](), -1
        for _ in range(ROUNDS):
            # Step 2: append, and compare the offset.
            offset = self._append(appender, key, record)
            first = offset if first < 0 else first
            # Step 3: read on past it.
            found = self.read()
            between += [other for at, other in found if at < offset and other.key == key]
            # Step 4: append what all records say together, if the last one says something else.
            current = self.state.current(key)
            if current is None or current == self.state.latest[key]:
                return Written(first, current, between)
            record = current
        raise RetryLater(f"{self.topic}: others wrote {key!r} {ROUNDS} times in between; look at what is there now")

    def _append(self, appender: Appender, key: bytes, record: Record) -> int:
        appender.append(self.topic, PARTITION, encode(record), key=key)
        (delivery,) = appender.flush(APPEND_TIMEOUT_S)
        if delivery.error is not None:
            raise delivery.error
        return delivery.offset


def require_control(admin: Admin, topic: str) -> TopicInfo:
    """Require the control topic, with one partition and compacted. Without the right DescribeConfigs on it, it is not
    known whether it is compacted.

    Raises TopicMissing, PartitionCountsDiffer, ConfigError, and what `Admin.require` raises.
    """
    try:
        found = admin.require([topic])[topic]
    except TopicMissing as error:
        raise TopicMissing(f"there is no control topic: {error.message}", action=MISSING) from error
    if found.partitions != 1:
        raise PartitionCountsDiffer(
            f"{topic} has {count_of(found.partitions, 'partition')}, the control topic has one",
            action="Make it anew with one partition, or set topics.control to another name.",
        )
    with suppress(NotAuthorised):
        policy = admin.describe([topic], with_configs=True)[topic].configs.get(POLICY, "compact")
        if policy != "compact":
            raise ConfigError(
                f"{topic} has {POLICY} {policy}: aliases, pins, pauses and decisions would be deleted with time",
                action=f"Set {POLICY} to compact; `stream-learner topics ensure --apply` does it.",
            )
    return found
