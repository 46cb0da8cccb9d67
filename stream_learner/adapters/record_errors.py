"""What `core` says of a record that cannot be used, as the error to stop with. This is the one table of it:

| `core.errors`                    | read from a topic | read from a state directory |
|----------------------------------|-------------------|-----------------------------|
| `NewerVersion`                   | `NewerFormat`     | `NewerFormat`               |
| `BrokenLog`                      | `LogTrimmed`      |                             |
| `ForeignRecord`, `DamagedRecord` | `DamagedLog`      | `StateDamaged`              |

In: the error, and where the record was read. Out: an error that names the place, and what an operator can do.
"""

from __future__ import annotations

from pathlib import Path

from stream_learner.core.errors import BrokenLog, NewerVersion, RecordError
from stream_learner.errors import DamagedLog, LogTrimmed, NewerFormat, StateDamaged, Stop

ANOTHER_NAME = (
    "Train a model under another name from what the inputs still hold (`stream-learner backfill --as NAME --from "
    "earliest`) and promote it: docs/backfill.md, docs/promotion.md. It knows nothing of records that were deleted; "
    "scorers serve the last version of this one until then."
)
"""What is left to do where a training log cannot be gone on with at all."""
RESTORE = "Records before this offset are missing: restore the log. If that cannot be: " + ANOTHER_NAME


def error_in_topic(error: RecordError, topic: str, partition: int, offset: int) -> Stop:
    """The error to stop with for a record of a topic that only this program may write to.

    `offset` is where reading had come to; the record itself may lie before it, a mark may accept it later.
    """
    at = offset if error.offset is None else error.offset
    text = f"{topic} partition {partition} offset {at}: {error.what}"
    if isinstance(error, NewerVersion):
        return NewerFormat(text)
    if isinstance(error, BrokenLog):
        return LogTrimmed(text, action=RESTORE)
    return DamagedLog(text)


def error_in_state(error: RecordError, path: Path) -> Stop:
    """The error to stop with for a record of a state directory."""
    text = f"{path}: {error.what}"
    return NewerFormat(text) if isinstance(error, NewerVersion) else StateDamaged(text)
