"""What core says of a record that cannot be used, as an error that names the record and what to do.

This file must never hide which record it was.
"""

from __future__ import annotations

from stream_learner.core.errors import NewerVersion, RecordError
from stream_learner.errors import DamagedLog, NewerFormat, Stop


def damaged(error: RecordError, topic: str, partition: int, offset: int) -> Stop:
    """The error to stop with for a record of a topic that only this program may write to.

    `offset` is where reading had come to; the record itself may lie before it, a mark may accept it later.
    """
    at = offset if error.offset is None else error.offset
    text = f"{topic} partition {partition} offset {at}: {error.what}"
    return NewerFormat(text) if isinstance(error, NewerVersion) else DamagedLog(text)
