"""Turns what `core` says of a record that cannot be used into the error to stop with.

The error names where the record lies and what an operator can do. This is the one table of it:

| `core.errors`                    | read from a topic | read from a state directory |
|----------------------------------|-------------------|-----------------------------|
| `NewerVersion`                   | `NewerFormat`     | `NewerFormat`               |
| `BrokenLog`                      | `LogTrimmed`      |                             |
| `ForeignRecord`, `DamagedRecord` | `DamagedLog`      | `StateDamaged`              |
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
"""The action that is left to an operator if the training log cannot be used any more."""
DELETE = (
    "If nothing that was learned is needed any more: `stream-learner delete` shows what there is of the model, and "
    "with --write removes it, so that the name can be used again at once."
)
"""The action that is left where a name is to be used again."""
RESTORE = "Records before this offset are missing: restore the log. If that cannot be: " + ANOTHER_NAME


def error_in_topic(error: RecordError, topic: str, partition: int, offset: int) -> Stop:
    """The error to stop with for a record of a topic that only this program may write to.

    offset: how far reading had come. The record itself may lie before it, since the mark that accepts it comes later.
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
