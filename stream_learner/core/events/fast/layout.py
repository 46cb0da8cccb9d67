"""Byte offsets and codes that the kernels share with the Python code that fills their memory.

A field has an entry of FIELD_BYTES, found by its parent's entry and its key. An entry is named by its offset from
CTX_FIELDS, or by its address. Entry 0 is the event itself. The context is one block of words; every kernel gets its
address.
"""

from __future__ import annotations

PADDING = 64
"""How many bytes after a record the kernels may read; what they read there must never change a result."""

MAX_DEPTH = 48
"""Most objects and lists inside each other; deeper events are left to orjson."""

FAIL = -1
"""Instead of an address: the kernels do not take this event."""

# Entry of a field. The pattern is the `"key":` of the field as the JSON has it; START and MASK are its first bytes.
# The prefix is `name=`; ROUNDS are XXH64's rounds of its first three whole words. TAIL is what follows the last whole
# word, and TAIL_MASK the bytes of a word that TAIL leaves free. PATTERN, PREFIX and EDGES are offsets in the pool.
# EDGES: of a bucket its edges and then the keys; of a time the first seconds at which its zone has an offset, as many
# offsets in seconds, the keys by the hour of the week, and the code of its unit.
# NEXT: the field predicted to follow. SEEN: the number of the object that had the field last.
# TEXT_ROOM, DIGITS_ROOM: the longest text and the longest integer that are ordinary categories; -1 if none are.
# LENGTH: the length predicted for a text, or NO_LENGTH. LAST_LENGTH: that of the last text that was not predicted, and
# TIMES: how often in a row there had been such a text of that length before.
PATTERN_BYTES = 32
FIELD_START = 0
FIELD_MASK = 32
FIELD_PATTERN_LENGTH = 64
FIELD_PARENT = 72
FIELD_NEXT = 80
FIELD_SEEN = 88
FIELD_TEXT_ROOM = 96
FIELD_DIGITS_ROOM = 104
FIELD_LENGTH = 112
FIELD_PREFIX_LENGTH = 120
FIELD_PREFIX_TAIL = 128
FIELD_PREFIX_TAIL_MASK = 136
FIELD_PREFIX_ROUNDS = 144
FIELD_COUNTED = 168
FIELD_LAST_LENGTH = 176
FIELD_TIMES = 184
FIELD_WATCH = 192
FIELD_STRING = 200
FIELD_NUMBER = 208
FIELD_PREFIX = 216
FIELD_ENTER = 224
FIELD_PATTERN = 232
FIELD_NUMBER_KEY = 240
FIELD_TRUE_KEY = 248
FIELD_FALSE_KEY = 256
FIELD_EDGES = 264
FIELD_EDGE_COUNT = 272
FIELD_UNKNOWN = 280
FIELD_ROLE = 288
FIELD_BYTES = 296

# FIELD_LENGTH where no length is predicted: more than one look at a text can see.
NO_LENGTH = 32

# FIELD_STRING: what strings and booleans of the field become. FIELD_NUMBER: what its numbers become. With TAKE_ROLE and
# TAKE_TIME both are the same, and FIELD_ROLE says which role it is: with TAKE_TIME none, or the time.
TAKE_NOTHING = 0
TAKE_CATEGORY = 1
TAKE_NUMBER = 2
TAKE_LOG = 3
TAKE_BUCKET = 4
TAKE_SIZE = 5
TAKE_ROLE = 6
TAKE_TIME = 7

# FIELD_UNKNOWN: what to do with an unknown key inside this field.
UNKNOWN_MATTERS = 0
UNKNOWN_MATTERS_IF_DOTTED = 1
UNKNOWN_IS_SKIPPED = 2

# The entry of the event itself, and the entry of every field that does not matter.
ROOT_FIELD = 0
IGNORED_FIELD = FIELD_BYTES

# FIELD_ENTER: what to do with objects and lists. SKIP_INSIDE only checks that they are valid.
SKIP_INSIDE = 0
TAKE_INSIDE = 1
REFUSE_INSIDE = 2

# FIELD_WATCH: the field's place in CTX_WATCHES, or this code if no cross and no missing indicator asks for the field.
# FIELD_COUNTED: the number under which features of the field count (`events.field_numbers`).
NOT_WATCHED = -1

# Context: memory, limits and plan, set by Python.
CTX_FIELDS = 0
CTX_INDEX = 8
CTX_INDEX_MASK = 16
CTX_POOL = 24
CTX_TEXT = 32
CTX_TEXT_BYTES = 40
CTX_STACK = 48
CTX_LINKS = 56
CTX_WATCHES = 64
CTX_WATCH_COUNT = 72
CTX_TABLE = 80
CTX_TABLE_MASK = 88
CTX_CROSSES = 96
CTX_CROSS_COUNT = 104
CTX_ABSENT = 112
CTX_ABSENT_COUNT = 120
CTX_MAX_FEATURES = 128
CTX_MAX_VALUE_BYTES = 136
CTX_MAX_EVENT_BYTES = 144
CTX_MAX_SKEW_MS = 152
CTX_TIME_UNIT = 160
CTX_ROLES_NEEDED = 168
CTX_BIAS = 176
CTX_MAX_NUMBER = 184
# Context: output columns, set by `set_columns`.
CTX_TIMES = 192
CTX_IDS = 200
CTX_NUMBERS = 208
CTX_ROW_STARTS = 216
CTX_KEYS = 224
CTX_VALUES = 232
CTX_CAPACITY = 240
# Context: state of the event at hand. STAMP and GENERATION go on from event to event, so that they never repeat.
CTX_FILLED = 248
CTX_COUNT = 256
CTX_ROW_KEYS = 264
CTX_ROW_VALUES = 272
CTX_ZEROS = 280
CTX_ROLES_FOUND = 288
CTX_ID = 296
CTX_TIME = 304
CTX_NUMBER = 312
CTX_STAMP = 320
CTX_STOPPED_BY = 328
CTX_GENERATION = 336
CTX_RECENT = 344
CTX_ROW_COUNTED = 352
# Context: the column of the numbers under which features count, set by Python. The step is 1; it is 0 where nobody
# counts, and all rows write to the same scratch space.
CTX_COUNTED = 360
CTX_COUNTED_STEP = 368
# Context: the step of the values, 1; or 0 as long as all of them are 1, and then all rows write to the same scratch
# space. NOT_ONE: whether the event at hand has another value.
CTX_VALUES_STEP = 376
CTX_NOT_ONE = 384
CTX_BYTES = 392

RECENT_BYTES = 1 << 13
"""Size of the table that CTX_RECENT points to."""

# CTX_STOPPED_BY: why the kernel stopped at an event.
UNUSUAL = 0
UNKNOWN_FIELD = 1
NO_ROOM = 2
NO_VALUES = 3

# CTX_ROLES_NEEDED, CTX_ROLES_FOUND: bit r stands for role r. This is the bit of the time.
TIME_BIT = 1 << 2

# CTX_TIME_UNIT: the code of each unit.
UNIT_CODES = {"ms": 0, "s": 1, "us": 2, "iso": 3, "auto": 4}
