"""The largest record that a topic takes, as its settings say: records are made to fit before a role begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_learner.adapters.kafka import Admin
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.core.log.examples import largest_record_bytes
from stream_learner.errors import ConfigError, NotAuthorised

if TYPE_CHECKING:
    from stream_learner.config import Config

OVERHEAD_BYTES = 2_048
"""The bytes of a batch of one record besides its value: its own header, a key, the headers of a dead letter."""
LIMIT = "max.message.bytes"


class RecordSizes:
    """The limits of some topics, asked once each. Where they may not be asked for, our settings alone count."""

    def __init__(self, admin: Admin, log: Logger) -> None:
        self._admin = admin
        self._log = log
        self._limits: dict[str, int | None] = {}

    def fitting(self, topic: str, wanted_bytes: int, setting: str) -> int:
        """The largest value of a record: `wanted_bytes`, or what the topic takes. setting: is named in the log."""
        limit_bytes = self.limit_bytes(topic)
        if limit_bytes is None or wanted_bytes <= limit_bytes:
            return wanted_bytes
        self._log.info("records_made_smaller", topic=topic, bytes=limit_bytes, setting=setting, wanted=wanted_bytes)
        return limit_bytes

    def limit_bytes(self, topic: str) -> int | None:
        """The largest value that a topic takes; None where that cannot be asked."""
        if topic not in self._limits:
            self._limits[topic] = self._ask(topic)
        return self._limits[topic]

    def batch_bytes(self, *topics: str) -> int | None:
        """The largest batch of records that each of these topics takes; None where that cannot be asked."""
        return min((limit for topic in topics if (limit := self.limit_bytes(topic)) is not None), default=None)

    def _ask(self, topic: str) -> int | None:
        if self._admin.is_mock():
            return None
        try:
            found = self._admin.describe([topic], with_configs=True).get(topic)
        except NotAuthorised as error:
            self._log.info("record_limit_not_known", topic=topic, reason=str(error))
            return None
        text = "" if found is None else found.configs.get(LIMIT, "")
        return max(int(text) - OVERHEAD_BYTES, 1) if text.isdigit() else None


def example_record_bytes(sizes: RecordSizes, topic: str, config: Config) -> int:
    """The largest record of the training log, whose topic this is.

    Raises ConfigError where a single example of `features.max_features` would not fit.
    """
    fitting_bytes = sizes.fitting(topic, config.join.record_bytes, "join.record_bytes")
    features = config.features
    least_bytes = largest_record_bytes(features.max_features + 1, counted=features.max_rows_per_field is not None)
    if fitting_bytes < least_bytes:
        raise ConfigError(
            f"{topic} takes records of {fitting_bytes + OVERHEAD_BYTES} bytes ({LIMIT}), and an example of "
            f"features.max_features = {features.max_features} may need {least_bytes + OVERHEAD_BYTES}",
            action=f"Raise {LIMIT} of the topic (`stream-learner topics ensure --apply` does it), or lower "
            "features.max_features.",
        )
    return fitting_bytes
