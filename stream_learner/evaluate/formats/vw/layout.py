"""What the kernels of VW text share: the places of their state, what they answer, and the faults they find.

In: nothing. Out: byte offsets into an i64 array that holds numbers and addresses, and codes.
This file must never hold anything that changes.
"""

from __future__ import annotations

(
    # what a parser was asked for
    HASHING,  # 0: XXH64, 1: VW's, 2: VW's with all names hashed
    SINGLE,  # 1: numbers in VW's float32
    REPEATS,  # 1: each occurrence is a feature
    MASK,  # of VW's keys: the lowest bits
    CONSTANT_KEY,
    CONSTANT_VALUE,  # float64; 0: none
    KEEP,  # -> u8[256], 1 where a namespace with that first letter counts
    SOME_DROPPED,  # 1: not all of them are 1
    GRAMS,  # -> i64[n, GRAM_WIDTH]: how many further words, then their offsets
    N_GRAMS,
    CROSSES,  # -> i64[n, 3]: letters of an interaction, the third -1 for two
    N_CROSSES,
    SEEN,  # -> u8[256], 1 where the interactions know a namespace's letter; 0: they need not
    # text, as bytes with a line feed at the end and some bytes of room before and behind
    END,
    ORIGINAL,  # where the text came from, minus where it is
    AT,  # the line to begin with
    LINE,  # its number
    # what comes out
    ROWS,  # examples so far
    LABELS,  # -> f64[]
    WEIGHTS,  # -> f64[]
    ROW_START,  # -> i64[]
    LINES,  # -> i64[]
    TAGS,  # -> i64[rows, 2], begin and end
    TAGGED,  # tags that are not empty
    FAULTS,  # how many so far
    FAULT_LIST,  # -> i64[n, 3]: line, column, code
    KEYS,  # -> u64[ROOM]
    VALUES,  # -> f64[ROOM]
    ROOM,
    ENDS,  # -> i64[ROOM], or 0
    N_ENDS,
    # of a line
    PREFIX,  # -> u64[8]: what stands before a name to be hashed, and the mask of what is the name's own
    PREFIX_LENGTH,
    NAMESPACE_AT,
    NAMESPACE_LENGTH,
    SEED,  # VW's hash of the namespace
    SEGMENTS,  # -> i64[MAX_FEATURES, 3]: first letter, begin, end among the features
    N_SEGMENTS,
    LETTERS,  # -> i64[256, 3]: stamp, begin, end of the group of a letter
    STAMP,  # of the line
    SPARE_KEYS,  # -> u64[MAX_FEATURES]
    SPARE_VALUES,  # -> f64[MAX_FEATURES]
    TABLE,  # -> u64[TABLE_SLOTS]
    # numbers that take more than 64 bits to decide
    DOUBTS,  # how many in this line
    KNOWN,  # how many of them are known
    DOUBT_ROOM,
    DOUBT_SPANS,  # -> i64[DOUBT_ROOM, 2], begin and end
    DOUBT_VALUES,  # -> f64[DOUBT_ROOM]
    SIZE,
) = range(0, 8 * 49, 8)

MAX_FEATURES = 65_535
GRAM_WIDTH = 8
TABLE_SLOTS = 1 << 18

DONE, GROW, DOUBT, LETTER = range(4)
"""Why the kernel returned: all read, or a line needs room, numbers decided, or interactions with its namespaces."""

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
