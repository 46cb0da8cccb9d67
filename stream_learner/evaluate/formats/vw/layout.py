"""The offsets of the state that the kernels of VW text and LIBSVM share, their codes, and the faults they find.

The state is an i64 array of numbers and addresses. Kernels read it by offset: as a record with named fields it made
parsing 3 to 4 % slower.
"""

from __future__ import annotations

(
    # What the options ask for. `->` marks the address of an array.
    HASHING,  # 0: XXH64, 1: VW's, 2: VW's with all names hashed
    REPEATS,  # 1: each occurrence of a name is a feature of its own
    MASK,  # the bits of VW's index
    CONSTANT_KEY,
    CONSTANT_VALUE,  # float64; 0: no constant feature
    KEEP,  # -> u8[256]: 1 where a namespace with that first letter is kept
    SOME_DROPPED,  # 1: some letters are not kept
    GRAMS,  # -> i64[n, GRAM_WIDTH]: the number of further words, then their offsets
    GRAM_COUNT,
    CROSSES,  # -> i64[n, 3]: letters of an interaction; the third is -1 for a pair
    CROSS_COUNT,
    SEEN,  # -> u8[256]: 1 where wildcards were expanded with that letter; 0 without wildcards
    # The text, which ends with a line feed.
    END,
    ORIGINAL,  # address of the caller's text minus address of our copy
    AT,  # address of the next line
    LINE,  # its number
    # Output.
    EXAMPLES,  # how many so far
    LABELS,  # -> f64[]
    WEIGHTS,  # -> f64[]
    ROW_START,  # -> i64[]
    LINES,  # -> i64[]
    TAGS,  # -> i64[n, 2]: begin and end
    TAGGED,  # tags that are not empty
    FAULTS,  # how many so far
    FAULT_LIST,  # -> i64[n, 3]: line, column, code
    KEYS,  # -> u64[ROOM]
    VALUES,  # -> f64[ROOM]
    ROOM,
    # The line that is being read.
    PREFIX,  # -> u64[8]: 4 words to put before a name, and 4 masks of the name's own bytes
    PREFIX_LENGTH,
    NAMESPACE_AT,
    NAMESPACE_LENGTH,
    SEED,  # VW's hash of the namespace
    SEGMENTS,  # -> i64[MAX_FEATURES, 3]: first letter, begin, end among the features
    SEGMENT_COUNT,
    LETTERS,  # -> i64[256, 3]: by letter the stamp of the last line that has it, begin and end there
    STAMP,  # rises by 1 a line, so that entries of other lines need not be cleared
    SPARE_KEYS,  # -> u64[MAX_FEATURES]
    SPARE_VALUES,  # -> f64[MAX_FEATURES]
    TABLE,  # -> u64[TABLE_SLOTS]
    # Numbers of this line whose nearest float64 64 bits cannot decide.
    DOUBTS,  # how many in this line
    KNOWN,  # how many of them Python has decided
    DOUBT_ROOM,
    DOUBT_SPANS,  # -> i64[DOUBT_ROOM, 2]: begin and end
    DOUBT_VALUES,  # -> f64[DOUBT_ROOM]
    SIZE,
) = range(0, 8 * 46, 8)

NO_ROOM, BLANK = -1, -2
"""Instead of the code of a fault: the features have filled their room; there is nothing on the line."""
MAX_FEATURES = 65_535
GRAM_WIDTH = 8
TABLE_SLOTS = 1 << 18

DONE, GROW, DOUBT, LETTER = range(4)
"""Why the kernel returned: all is read, or a line needs room, a decided number, or wildcards expanded again."""

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
    "a number as label, and a blank behind it",
    "an index of at most 19 digits and `:`, as in 7:0.5",
    "a number behind `index:`, and a blank behind it",
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
    BAD_LABEL,
    BAD_INDEX,
    BAD_VALUE,
) = range(len(FAULT_TEXTS))
