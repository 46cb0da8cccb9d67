"""A record of examples as the folds read it.

The folds get the address of a record's fields, an int64[12]. They are the numbers of examples n, of values that are not
1, and of distinct features; then the addresses of row_len u16[n], indices u16, positions u32, values f64, label f64[n],
weight f64[n], the features' keys u64, log_time_ms i64[n], and learned u8[n]: 0 for an example that is only to be
predicted. If that last address is 0, all examples are learned from.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import load_byte, load_f64, load_i64, store_f64
from stream_learner.core.model.losses import LABEL_HIGH, LABEL_LOW

RECORD_FIELDS: Final = 12
EXAMPLES, EXCEPTIONS, FEATURES, ROW_LEN, INDICES, POSITIONS, VALUES, LABEL, WEIGHT, KEYS, LOG_TIME, LEARNED = range(
    RECORD_FIELDS
)


class Record(NamedTuple):
    """The fields of a record that a fold reads: two counts, then addresses."""

    examples: int
    exceptions: int
    row_len: int
    indices: int
    positions: int
    values: int
    labels: int
    importances: int
    learned: int


@kernel
def opened(record: int) -> Record:
    """The fields of a record that a fold reads."""
    return Record(
        load_i64(record + 8 * EXAMPLES),
        load_i64(record + 8 * EXCEPTIONS),
        load_i64(record + 8 * ROW_LEN),
        load_i64(record + 8 * INDICES),
        load_i64(record + 8 * POSITIONS),
        load_i64(record + 8 * VALUES),
        load_i64(record + 8 * LABEL),
        load_i64(record + 8 * WEIGHT),
        load_i64(record + 8 * LEARNED),
    )


@kernel
def is_learned(learned: int, example: int) -> bool:
    """Whether an example is learned from. `learned` is the field of that name."""
    return learned == 0 or load_byte(learned + example) != 0


@kernel
def label_range(scalars: int) -> tuple[float, float]:
    """The least and the largest label seen so far, and 0."""
    return load_f64(scalars + 8 * LABEL_LOW), load_f64(scalars + 8 * LABEL_HIGH)


@kernel
def set_label_range(scalars: int, low: float, high: float) -> None:
    """Change the label range in the scalars."""
    store_f64(scalars + 8 * LABEL_LOW, low)
    store_f64(scalars + 8 * LABEL_HIGH, high)
