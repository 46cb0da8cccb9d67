"""The memory of the fast decoder: the fields that it knows, its context, its scratch space.

The kernels must never see an entry that is half made, nor the address of memory that is gone. A field can be known
only if its name stands in JSON without escapes. If only a few paths matter inside an object (`include`, or a click),
their fields are known from the start, and all other keys are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.keys import key_hash, look_up
from stream_learner.core.events.fast.strings import SHORT
from stream_learner.core.events.feature_keys import longest_text
from stream_learner.core.events.field_numbers import NOT_COUNTED
from stream_learner.core.events.local_time import PARTS, WEEK_HOURS, zone_changes
from stream_learner.core.events.plan import FieldPlan, Plan, Role
from stream_learner.core.machine.hashing import P1, P2, hash_texts
from stream_learner.core.machine.memory import address_of

MAX_FIELDS = 4_096
INDEX_SIZE = 4 * MAX_FIELDS
TEXT_FRONT = 16
TEXT_ROOM = 1 << 16

_TAKES = {"auto": lay.TAKE_SIZE, "number": lay.TAKE_NUMBER, "category": lay.TAKE_CATEGORY}
_TAKES |= {"log": lay.TAKE_LOG, "bucket": lay.TAKE_BUCKET, "ignore": lay.TAKE_NOTHING}
_TAKES |= dict.fromkeys(PARTS, lay.TAKE_TIME)


def _padded(raw: bytes) -> NDArray[np.uint8]:
    """A key with the bytes after it that kernels may read. The caller must keep it while its address is in use."""
    return np.frombuffer(raw + bytes(8), np.uint8)


def _round(word: int) -> int:
    """XXH64's round of one word."""
    word = word * int(P2) % 2**64
    return (word << 31 | word >> 33) * int(P1) % 2**64


class FieldMemory:
    """The entries of known fields, and everything else that the context of the kernels points to.

    context: its address, the same for the life of the object.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._watches = {name: watch for watch, name in enumerate(sorted(plan.watched))}
        self._words = np.zeros(lay.CTX_BYTES // 8, np.int64)
        self._fields = np.zeros((64, lay.FIELD_BYTES // 8), np.int64)
        self._index = np.full(INDEX_SIZE, -1, np.int64)
        self._pool = np.zeros(1 << 12, np.uint8)
        self._pool_used = 0
        self._names: list[str | None] = [None, None]
        self.context = address_of(self._words)
        self._set_limits()
        self._set_scratch()
        self._set_watched()
        self._set_memory()
        self._make_first_entries()

    def get(self, word: int) -> int:
        """The context's word at a byte offset of `events.fast.layout`."""
        return int(self._words[word // 8])

    def set(self, word: int, value: int) -> None:
        """Set the context's word at a byte offset of `events.fast.layout`."""
        self._words[word // 8] = value

    @property
    def full(self) -> bool:
        """Whether no more fields can become known."""
        return len(self._names) >= MAX_FIELDS

    def add_fields_of(self, event: dict[str, Any]) -> None:
        """Make all fields of an event known, as far as there is room."""
        stack: list[tuple[int, Any]] = [(lay.ROOT_FIELD, event)]
        while stack and not self.full:
            parent, value = stack.pop()
            if isinstance(value, list):
                stack += [(parent, element) for element in value if isinstance(element, (dict, list))]
                continue
            for key, inner in value.items():
                field = self._field_of(parent, key)
                if field >= 0 and isinstance(inner, (dict, list)) and self._enters(field):
                    stack.append((field, inner))

    def count_into(self, column: NDArray[np.uint8]) -> None:
        """Write the numbers under which features count to this column, which the caller keeps."""
        self.set(lay.CTX_COUNTED, address_of(column))
        self.set(lay.CTX_COUNTED_STEP, 1)

    # ------------------------------------------------------------------------------------------- context

    def _set_limits(self) -> None:
        plan, spec = self._plan, self._plan.features
        needed = {role for role in plan.roles.values() if role in (Role.ID, Role.TIME)}
        self.set(lay.CTX_MAX_FEATURES, spec.max_features if spec else 0)
        self.set(lay.CTX_MAX_VALUE_BYTES, spec.max_value_bytes if spec else 0)
        self.set(lay.CTX_MAX_EVENT_BYTES, plan.max_event_bytes)
        self.set(lay.CTX_MAX_SKEW_MS, plan.max_skew_ms)
        self.set(lay.CTX_TIME_UNIT, lay.UNIT_CODES[plan.time_unit])
        self.set(lay.CTX_MAX_NUMBER, int(np.float64(plan.max_number).view(np.int64)))
        self.set(lay.CTX_ROLES_NEEDED, sum(1 << role for role in needed))
        self.set(lay.CTX_BIAS, int(spec is not None and spec.bias))

    def _set_scratch(self) -> None:
        spec = self._plan.features
        longest, most = (spec.max_value_bytes, spec.max_features + 1) if spec else (0, 1)
        room = max(longest, TEXT_ROOM) + lay.PADDING
        widest = max((len(names) for names in spec.crosses), default=0) if spec else 0
        table = 1 << (2 * most).bit_length()
        self._text = np.zeros(TEXT_FRONT + room + longest_text(longest) + 4 * lay.PADDING, np.uint8)
        self._stack = np.zeros(max(3 * (lay.MAX_DEPTH + 1), widest), np.int64)
        self._recent = np.zeros(lay.RECENT_BYTES, np.uint8)
        self._links = np.zeros(most, np.int64)
        self._not_counted = np.zeros(most, np.uint8)
        self._table = np.zeros((table, 2), np.int64)
        self.set(lay.CTX_TEXT, address_of(self._text) + TEXT_FRONT)
        self.set(lay.CTX_TEXT_BYTES, room)
        self.set(lay.CTX_STACK, address_of(self._stack))
        self.set(lay.CTX_RECENT, address_of(self._recent))
        self.set(lay.CTX_LINKS, address_of(self._links))
        self.set(lay.CTX_TABLE, address_of(self._table))
        self.set(lay.CTX_TABLE_MASK, table - 1)
        self.set(lay.CTX_COUNTED, address_of(self._not_counted))
        self.set(lay.CTX_VALUES_STEP, 1)

    def _set_watched(self) -> None:
        absent = self._plan.indicators()
        keys = hash_texts([f"{self._plan.of(name).in_keys}:missing".encode() for name in absent])
        crosses = self._plan.features.crosses if self._plan.features else ()
        numbers = self._plan.numbers
        counted = [NOT_COUNTED] * len(crosses) if numbers is None else numbers.crosses
        words = [
            word
            for names, number in zip(crosses, counted, strict=True)
            for word in (len(names), number, *(self._watches[name] for name in names))
        ]
        self._watch_words = np.zeros((len(self._watches) + 1, 2), np.int64)
        self._absent = np.zeros((len(absent) + 1, 3), np.uint64)
        for i, (name, key) in enumerate(zip(absent, keys, strict=True)):
            self._absent[i] = self._watches[name], key, self._plan.of(name).number
        self._crosses = np.array([0, *words], np.int64)
        self.set(lay.CTX_WATCHES, address_of(self._watch_words))
        self.set(lay.CTX_WATCH_COUNT, len(self._watches))
        self.set(lay.CTX_ABSENT, address_of(self._absent))
        self.set(lay.CTX_ABSENT_COUNT, len(absent))
        self.set(lay.CTX_CROSSES, address_of(self._crosses) + 8)
        self.set(lay.CTX_CROSS_COUNT, len(crosses))

    def _set_memory(self) -> None:
        self.set(lay.CTX_FIELDS, address_of(self._fields))
        self.set(lay.CTX_INDEX, address_of(self._index))
        self.set(lay.CTX_INDEX_MASK, INDEX_SIZE - 1)
        self.set(lay.CTX_POOL, address_of(self._pool))

    # -------------------------------------------------------------------------------------------- entries

    def _put(self, field: int, word: int, value: int) -> None:
        self._fields.view(np.uint64)[field // lay.FIELD_BYTES, word // 8] = value % 2**64

    def _make_first_entries(self) -> None:
        """Make the entry of the event itself and that of ignored fields; neither is ever predicted."""
        for field in (lay.ROOT_FIELD, lay.IGNORED_FIELD):
            self._put(field, lay.FIELD_PARENT, -1)
            self._put(field, lay.FIELD_MASK, -1)
            self._put(field, lay.FIELD_WATCH, lay.NOT_WATCHED)
            self._put(field, lay.FIELD_TEXT_ROOM, -1)
            self._put(field, lay.FIELD_DIGITS_ROOM, -1)
        self._know_paths(lay.ROOT_FIELD)

    def _enters(self, field: int) -> bool:
        return int(self._fields[field // lay.FIELD_BYTES, lay.FIELD_ENTER // 8]) == lay.TAKE_INSIDE

    def _field_of(self, parent: int, key: str) -> int:
        """The offset of a field, whose entry is made if it is new; negative if the field cannot be known."""
        raw = key.encode()
        kept = _padded(raw)
        field = int(look_up(self.context, parent, address_of(kept), len(raw)))
        return field if field >= 0 else self._make(parent, key, raw)

    def _make(self, parent: int, key: str, raw: bytes) -> int:
        above = self._names[parent // lay.FIELD_BYTES]
        name = key if above is None else f"{above}.{key}"
        spec = self._plan.features
        plan = self._plan.of(name)
        if self.full or any(byte < 0x20 or byte in b'"\\' for byte in raw):
            return -1
        if plan.below and spec is not None and len(name.encode()) > spec.max_value_bytes:
            return -1
        field = self._new_field(name)
        self._put_pattern(field, parent, b'"' + raw + b'":')
        self._put_treatment(field, plan)
        self._set_memory()
        self._enter_index(field, parent, raw)
        if plan.below or plan.role_below:
            self._know_paths(field)
        return field

    def _new_field(self, name: str | None) -> int:
        """The offset of one more entry, still empty."""
        field = len(self._names) * lay.FIELD_BYTES
        self._names.append(name)
        if len(self._names) > len(self._fields):
            self._fields = np.concatenate([self._fields, np.zeros_like(self._fields)])
        return field

    def _enter_index(self, field: int, parent: int, raw: bytes) -> None:
        kept = _padded(raw)
        entry = int(key_hash(parent, address_of(kept), len(raw)))
        while self._index[entry % INDEX_SIZE] >= 0:
            entry += 1
        self._index[entry % INDEX_SIZE] = field

    def _put_pattern(self, field: int, parent: int, pattern: bytes) -> None:
        self._put(field, lay.FIELD_PARENT, parent)
        self._put(field, lay.FIELD_PATTERN_LENGTH, len(pattern))
        self._put(field, lay.FIELD_PATTERN, self._pooled(pattern))
        for part in range(0, lay.PATTERN_BYTES, 8):
            piece = pattern[part : part + 8]
            self._put(field, lay.FIELD_START + part, int.from_bytes(piece, "little"))
            self._put(field, lay.FIELD_MASK + part, (1 << (8 * len(piece))) - 1)

    def _put_treatment(self, field: int, plan: FieldPlan) -> None:
        string = number = lay.TAKE_ROLE if plan.role else lay.TAKE_NOTHING
        if plan.feature:
            number = _TAKES[plan.settings.kind]
            string = number if number == lay.TAKE_TIME else lay.TAKE_CATEGORY
        enter = lay.TAKE_INSIDE if plan.below or plan.role_below else lay.SKIP_INSIDE
        prefix = f"{plan.in_keys}=".encode()
        keys = hash_texts([plan.in_keys.encode(), prefix + b"true", prefix + b"false"])
        self._put(field, lay.FIELD_STRING, string)
        self._put(field, lay.FIELD_NUMBER, number)
        self._put(field, lay.FIELD_ROLE, plan.role)
        self._put(field, lay.FIELD_COUNTED, plan.number)
        self._put(field, lay.FIELD_ENTER, lay.REFUSE_INSIDE if plan.role else enter)
        self._put(field, lay.FIELD_WATCH, self._watches.get(plan.name, lay.NOT_WATCHED))
        self._put_prefix(field, prefix)
        for word, key in zip((lay.FIELD_NUMBER_KEY, lay.FIELD_TRUE_KEY, lay.FIELD_FALSE_KEY), keys, strict=True):
            self._put(field, word, key)
        self._put_rooms(field, plan, string == lay.TAKE_CATEGORY, number == lay.TAKE_CATEGORY)
        if number == lay.TAKE_BUCKET:
            self._put_buckets(field, plan)
        if number == lay.TAKE_TIME:
            self._put_zone(field, plan)

    def _put_prefix(self, field: int, prefix: bytes) -> None:
        whole = len(prefix) & ~7
        self._put(field, lay.FIELD_PREFIX, self._pooled(prefix))
        self._put(field, lay.FIELD_PREFIX_LENGTH, len(prefix))
        self._put(field, lay.FIELD_PREFIX_TAIL, int.from_bytes(prefix[whole:], "little"))
        self._put(field, lay.FIELD_PREFIX_TAIL_MASK, -1 << 8 * (len(prefix) - whole))
        for at in range(0, min(whole, SHORT - 8), 8):
            word = int.from_bytes(prefix[at : at + 8], "little")
            self._put(field, lay.FIELD_PREFIX_ROUNDS + at, _round(word))

    def _put_rooms(self, field: int, plan: FieldPlan, text: bool, digits: bool) -> None:
        """Set how long ordinary categories are, if texts or integers of the field are categories at all."""
        limit = self._plan.features.max_value_bytes if self._plan.features else 0
        room = min(limit, SHORT - 1 - len(f"{plan.in_keys}=".encode()))
        ordinary = plan.name not in self._watches
        self._put(field, lay.FIELD_TEXT_ROOM, room if text and ordinary else -1)
        self._put(field, lay.FIELD_DIGITS_ROOM, min(room, 7) if digits and ordinary else -1)

    def _put_buckets(self, field: int, plan: FieldPlan) -> None:
        edges = np.array(plan.settings.edges)
        keys = hash_texts([f"{plan.in_keys}=b{i}".encode() for i in range(len(edges) + 1)])
        self._put(field, lay.FIELD_EDGE_COUNT, len(edges))
        self._put(field, lay.FIELD_EDGES, self._pooled(edges.tobytes() + np.array(keys, np.uint64).tobytes()))

    def _put_zone(self, field: int, plan: FieldPlan) -> None:
        begins, ahead = zone_changes(plan.settings.zone)
        divisor, count = PARTS[plan.settings.kind]
        keys = hash_texts([f"{plan.in_keys}={hour // divisor % count}".encode() for hour in range(WEEK_HOURS)])
        table = np.array([*begins, *ahead], np.int64).tobytes() + np.array(keys, np.uint64).tobytes()
        self._put(field, lay.FIELD_EDGE_COUNT, len(begins))
        unit = lay.UNIT_CODES[plan.settings.time_unit].to_bytes(8, "little")
        self._put(field, lay.FIELD_EDGES, self._pooled(table + unit))

    def _pooled(self, data: bytes) -> int:
        """Copy bytes into the pool, with padding. Returns their offset."""
        start = self._pool_used
        self._pool_used += (len(data) + 15) & ~7
        while self._pool_used + lay.PADDING > len(self._pool):
            self._pool = np.concatenate([self._pool, np.zeros_like(self._pool)])
        self._pool[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return start

    # ---------------------------------------------------------------------------------- paths that matter

    def _know_paths(self, field: int) -> None:
        """If only certain paths matter inside a field, make their fields known and skip all other keys."""
        name = self._names[field // lay.FIELD_BYTES]
        spec = self._plan.features
        if spec is not None and (not spec.include if name is None else self._plan.of(name).feature):
            return
        included = () if spec is None else spec.include
        for path in (*self._plan.roles, *included):
            rest = path if name is None else path.removeprefix(name + ".")
            if name is not None and rest == path:
                continue
            parts = rest.split(".")
            for cut in range(1, len(parts) + 1):
                if self._field_of(field, ".".join(parts[:cut])) < 0:
                    return
        unknown = lay.UNKNOWN_IS_SKIPPED if spec is None else lay.UNKNOWN_MATTERS_IF_DOTTED
        self._put(field, lay.FIELD_UNKNOWN, unknown)
