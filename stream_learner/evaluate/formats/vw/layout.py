"""What the kernels of VW text share: the fields of their state, what they answer, and the faults they find."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

_INT, _WORD, _FLOAT = np.int64, np.uint64, np.float64

_STATE = np.dtype(
    [
        # What the options ask for.
        ("hashing", _INT),  # 0: XXH64, 1: VW's, 2: VW's with all names hashed
        ("is_single", _INT),  # 1: numbers as VW's float32
        ("keeps_repeats", _INT),  # 1: each occurrence of a name is a feature of its own
        ("mask", _WORD),  # the bits of VW's index
        ("constant_key", _WORD),
        ("constant_value", _FLOAT),  # 0: no constant feature
        ("kept_letters", _INT),  # -> u8[256]: 1 where a namespace with that first letter is kept
        ("drops_some", _INT),  # 1: some letters are not kept
        ("grams", _INT),  # -> i64[n, GRAM_WIDTH]: the number of further words, then their offsets
        ("gram_count", _INT),
        ("crosses", _INT),  # -> i64[n, 3]: letters of an interaction; the third is -1 for a pair
        ("cross_count", _INT),
        ("seen_letters", _INT),  # -> u8[256]: 1 where wildcards were expanded with that letter; 0 without wildcards
        # The text, which ends with a line feed.
        ("text_end", _INT),
        ("original_offset", _INT),  # address of the caller's text minus address of our copy
        ("line_at", _INT),  # address of the next line
        ("line", _INT),  # its number
        # Output.
        ("examples", _INT),  # how many so far
        ("labels", _INT),  # -> f64[]
        ("weights", _INT),  # -> f64[]
        ("row_start", _INT),  # -> i64[]
        ("lines", _INT),  # -> i64[]
        ("tags", _INT),  # -> i64[n, 2]: begin and end
        ("tag_count", _INT),  # tags that are not empty
        ("fault_count", _INT),
        ("fault_list", _INT),  # -> i64[n, 3]: line, column, code
        ("keys", _INT),  # -> u64[room]
        ("values", _INT),  # -> f64[room]
        ("room", _INT),  # features that fit
        ("namespace_ends", _INT),  # -> i64[room]; 0 where they are not asked for
        ("end_count", _INT),
        # The line that is being read.
        ("prefix", _INT),  # -> u64[8]: 4 words to put before a name, and 4 masks of the name's own bytes
        ("prefix_length", _INT),
        ("namespace_at", _INT),
        ("namespace_length", _INT),
        ("namespace_hash", _WORD),  # by VW's hashing
        ("segments", _INT),  # -> i64[MAX_FEATURES, 3]: first letter, begin and end among the features
        ("segment_count", _INT),
        ("letters", _INT),  # -> i64[256, 3]: by letter the stamp of the last line that has it, begin and end there
        ("line_stamp", _INT),  # rises by 1 a line: entries of other lines need not be cleared
        ("spare_keys", _INT),  # -> u64[MAX_FEATURES]
        ("spare_values", _INT),  # -> f64[MAX_FEATURES]
        ("repeat_table", _INT),  # -> u64[TABLE_SLOTS]
        # Numbers of this line whose nearest float64 64 bits cannot decide.
        ("doubt_count", _INT),
        ("known_count", _INT),  # how many of them Python has decided
        ("doubt_room", _INT),
        ("doubt_spans", _INT),  # -> i64[doubt_room, 2]: begin and end
        ("doubt_values", _INT),  # -> f64[doubt_room]
    ],
    align=True,
)
"""The fields of the state. `->` marks the address of an array."""

State: TypeAlias = Any
"""A record of `_STATE`, in Python and in kernels, which change it in place. (NumPy's types know no names of fields.)"""


def new_state() -> State:
    """A state of zeros."""
    return np.zeros(1, _STATE).view(np.recarray)[0]


MAX_FEATURES = 65_535
GRAM_WIDTH = 8
TABLE_SLOTS = 1 << 18

DONE, GROW, DOUBT, LETTER = range(4)
"""Why the kernel returned: all is read; or a line needs more room, numbers decided, or wildcards expanded again."""

FAULT_TEXTS = (
    "",
    "a bar | before the features",
    "spaces, not a tab, between label and bar",
    "a number as label, importance or base; or a tag, with its quote or next to the bar",
    "a finite number",
    "label, importance and base, and no further number",
    "no base, or 0",
    "a tag as the last word before the bar",
    "a blank, a colon or a namespace behind the bar",
    "a number behind the colon",
    "a blank, a bar or the end of the line",
    "the end of the line behind a carriage return",
    f"at most {MAX_FEATURES:,} features",
)
(
    NO_FAULT,
    NO_BAR,
    TAB,
    NO_LABEL,
    NOT_FINITE,
    TOO_MANY_LABELS,
    HAS_BASE,
    TAG_NOT_LAST,
    NO_NAMESPACE,
    NO_NUMBER,
    NO_BLANK,
    NO_END,
    TOO_MANY,
) = range(len(FAULT_TEXTS))
