"""Parses VW text: whole blocks of lines into columns. The package's page describes the format.

A line: `[label [importance [0]]] [tag]|namespace[:scale] name[:number] name[:number] …|namespace …`. Blank lines count
as lines, and give no example. Where VW would warn and guess, the line is a fault: a value that is no number (VW takes
it for a text value), more than three numbers before the bar, a label behind a tab. A line with a base of its own, the
third number, is a fault too.

Python touches single lines only for tags, and single numbers only where 64 bits cannot decide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.core.machine.memory import address_of
from stream_learner.evaluate.formats.base import Fault, Parsed
from stream_learner.evaluate.formats.vw import layout
from stream_learner.evaluate.formats.vw.kernel import parse_block
from stream_learner.evaluate.formats.vw.names import MAX_GRAM, expand, gram_offsets, has_wildcard

CONSTANT_HASH = 11650396
"""VW's hash of the constant feature."""
KEY_OF_INDEX = 1
"""With VW's hashing a key is VW's index plus this: keys are never 0."""

_HASHINGS = {"xxh64": 0, "vw": 1}
_MARGIN = 64
_MOST_GRAMS = 10_000


@dataclass(frozen=True, slots=True)
class VwTextOptions:
    """The options of parsing VW text. Raises ValueError for values that are not allowed.

    hashing: `xxh64` (64-bit keys: XXH64 of `namespace^name`, of the name alone where the namespace has none) or `vw`
    (VW's index of `bits` bits, plus `KEY_OF_INDEX`; `hash_all`: names of digits as well). quadratic, cubic: first
    letters of namespaces to combine, `:` for any. ngram, skips: n-grams of each namespace, with up to so many words
    left out. ignore, keep: first letters of namespaces to leave out, or to keep alone; a blank is the namespace without
    a name. constant: the value of the constant feature. repeats: each occurrence is a feature of its own, in order;
    else the values of a key are summed.
    """

    hashing: str = "xxh64"
    bits: int = 18
    hash_all: bool = False
    quadratic: tuple[str, ...] = ()
    cubic: tuple[str, ...] = ()
    ngram: int = 1
    skips: int = 0
    ignore: str = ""
    keep: str = ""
    noconstant: bool = False
    constant: float = 1.0
    repeats: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for values that are not allowed."""
        _check(self.hashing in _HASHINGS, f"hashing is {self.hashing!r}, must be one of {', '.join(_HASHINGS)}")
        _check(1 <= self.bits <= 62, f"bits is {self.bits}, must be from 1 to 62")
        _check(1 <= self.ngram <= MAX_GRAM, f"ngram is {self.ngram}, must be from 1 to {MAX_GRAM}")
        _check(self.skips >= 0, f"skips is {self.skips}, must not be negative")
        _check(math.isfinite(self.constant), f"constant is {self.constant}, must be finite")
        for words, size in ((self.quadratic, 2), (self.cubic, 3)):
            for word in words:
                _check(len(word.encode()) == size, f"an interaction is {word!r}, must be {size} letters")
        combinations = math.comb(self.ngram - 1 + self.skips, self.skips) if self.ngram > 1 else 0
        _check(combinations * self.ngram <= _MOST_GRAMS, f"{self.skips} skips of {self.ngram}-grams are too many")


def _check(good: bool, otherwise: str) -> None:
    if not good:
        raise ValueError(otherwise)


class VwText:
    """Parses VW text; a `LineParser`. One thread at a time: each block uses the same memory."""

    def __init__(self, options: VwTextOptions | None = None, kernel: Callable[[int], int] | None = None) -> None:
        """kernel: reads the lines, by the address of the state; None for those of VW text."""
        self.options = VwTextOptions() if options is None else options
        self._state = np.zeros(layout.SIZE // 8, np.int64)
        state = address_of(self._state)
        self._read_lines = partial(parse_block, state) if kernel is None else partial(kernel, state)
        self._kept: dict[int, NDArray[np.generic]] = {}
        self._words = [word.encode() for word in (*self.options.quadratic, *self.options.cubic)]
        self._text = np.zeros(0, np.uint8)
        self._keys, self._values = np.zeros(0, np.uint64), np.zeros(0)
        self._doubt_spans, self._doubt_values = np.zeros((0, 2), np.int64), np.zeros(0)
        self._set_options()
        self._set_scratch()
        self._make_room(1 << 12)

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """Parse whole lines, as `LineParser` says. The last line needs no line feed. The columns are the caller's."""
        raw = np.frombuffer(text, np.uint8)
        start, rows = self._take_text(raw)
        label, weight = np.empty(rows), np.empty(rows)
        row_start, lines = np.zeros(rows + 1, np.int64), np.empty(rows, np.int64)
        tags, faults = np.zeros((rows, 2), np.int64), np.empty((rows, 3), np.int64)
        columns = (label, weight, row_start, lines, tags, faults)
        places = (layout.LABELS, layout.WEIGHTS, layout.ROW_START, layout.LINES, layout.TAGS, layout.FAULT_LIST)
        for place, column in zip(places, columns, strict=True):
            self._put(place, column)
        self._set(layout.LINE, first_line)
        for counter in (layout.EXAMPLES, layout.TAGGED, layout.FAULTS, layout.KNOWN):
            self._set(counter, 0)
        self._run()
        n, m = self._get(layout.EXAMPLES), int(row_start[self._get(layout.EXAMPLES)])
        batch = ExampleBatch(
            np.zeros(n, np.int64),
            lines[:n].astype(np.uint64),
            label[:n],
            weight[:n],
            row_start[: n + 1],
            self._keys[:m].copy(),
            self._values[:m].copy(),
        )
        return Parsed(
            batch,
            lines[:n],
            ~np.isnan(label[:n]),
            self._tags_of(raw, tags[:n] - start),
            [Fault(line, column, layout.FAULT_TEXTS[code]) for line, column, code in self._faults_of(faults)],
        )

    def _run(self) -> None:
        """Read the whole text, and give the kernel what it stops for."""
        while (wanted := self._read_lines()) != layout.DONE:
            if wanted == layout.GROW:
                self._make_room(2 * self._get(layout.ROOM))
            elif wanted == layout.DOUBT:
                self._decide_numbers()
            else:
                self._set_crosses()

    def _take_text(self, raw: NDArray[np.uint8]) -> tuple[int, int]:
        """Copy the text, with room around it: (address of its first byte, number of its line ends)."""
        n = len(raw)
        if len(self._text) < n + 2 * _MARGIN:
            self._text = np.zeros(n + n // 4 + 2 * _MARGIN, np.uint8)
        self._text[_MARGIN : _MARGIN + n] = raw
        end = _MARGIN + n
        if n > 0 and raw[-1] != 0x0A:
            self._text[end] = 0x0A
            end += 1
        self._text[end : end + _MARGIN // 2] = 0
        start = address_of(self._text) + _MARGIN
        self._set(layout.AT, start)
        self._set(layout.END, address_of(self._text) + end)
        self._set(layout.ORIGINAL, address_of(raw) - start if n > 0 else 0)
        return start, int(np.count_nonzero(self._text[_MARGIN:end] == 0x0A))

    def _tags_of(self, raw: NDArray[np.uint8], spans: NDArray[np.int64]) -> list[bytes]:
        """The tags, from their begins and ends in the text; an empty list if no line has one."""
        if self._get(layout.TAGGED) == 0:
            return []
        text = raw.tobytes()
        return [text[begin:end] for begin, end in spans.tolist()]

    def _faults_of(self, faults: NDArray[np.int64]) -> list[list[int]]:
        found: list[list[int]] = faults[: self._get(layout.FAULTS)].tolist()
        return found

    def _decide_numbers(self) -> None:
        """Decide the numbers of the line that 64 bits could not decide."""
        doubts, room = self._get(layout.DOUBTS), self._get(layout.DOUBT_ROOM)
        known = min(doubts, room)
        origin = address_of(self._text)
        for i in range(self._get(layout.KNOWN), known):
            begin, end = (self._doubt_spans[i] - origin).tolist()
            self._doubt_values[i] = float(self._text[begin:end].tobytes())
        self._set(layout.KNOWN, known)
        if doubts > room:
            self._make_doubt_room(2 * doubts)

    def _set_options(self) -> None:
        o = self.options
        vw = o.hashing == "vw"
        self._set(layout.HASHING, 2 if vw and o.hash_all else _HASHINGS[o.hashing])
        self._set(layout.REPEATS, int(o.repeats))
        self._set(layout.MASK, (1 << o.bits) - 1)
        self._state.view(np.uint64)[layout.CONSTANT_KEY // 8] = CONSTANT_HASH if vw else BIAS_KEY
        self._state.view(np.float64)[layout.CONSTANT_VALUE // 8] = 0.0 if o.noconstant else o.constant
        keep = np.full(256, not o.keep, np.uint8)
        keep[list(o.keep.encode())] = 1
        keep[list(o.ignore.encode())] = 0
        self._put(layout.KEEP, keep)
        self._set(layout.SOME_DROPPED, int(not keep.all()))
        offsets = gram_offsets(o.ngram, o.skips)
        grams = np.zeros((max(1, len(offsets)), layout.GRAM_WIDTH), np.int64)
        for row, places in zip(grams, offsets, strict=False):
            row[: len(places) + 1] = (len(places), *places)
        self._put(layout.GRAMS, grams)
        self._set(layout.GRAM_COUNT, len(offsets))
        self._seen = np.zeros(256, np.uint8)
        if has_wildcard(self._words):
            self._put(layout.SEEN, self._seen)
        self._set_crosses()

    def _set_crosses(self) -> None:
        """Expand the interactions with the namespaces seen so far."""
        crosses = expand(self._words, bytes(np.flatnonzero(self._seen).tolist()))
        table = np.full((max(1, len(crosses)), 3), -1, np.int64)
        for row, letters in zip(table, crosses, strict=False):
            row[: len(letters)] = list(letters)
        self._put(layout.CROSSES, table)
        self._set(layout.CROSS_COUNT, len(crosses))

    def _set_scratch(self) -> None:
        """Make the memory that one line needs."""
        self._put(layout.PREFIX, np.zeros(8, np.uint64))
        self._put(layout.SEGMENTS, np.empty((layout.MAX_FEATURES, 3), np.int64))
        self._put(layout.LETTERS, np.zeros((256, 3), np.int64))
        self._put(layout.SPARE_KEYS, np.empty(layout.MAX_FEATURES, np.uint64))
        self._put(layout.SPARE_VALUES, np.empty(layout.MAX_FEATURES))
        self._put(layout.TABLE, np.zeros(layout.TABLE_SLOTS, np.uint64))
        self._make_doubt_room(1024)

    def _make_doubt_room(self, room: int) -> None:
        """Make room for more doubtful numbers; the decided ones stay."""
        spans, values = np.zeros((room, 2), np.int64), np.zeros(room)
        values[: len(self._doubt_values)] = self._doubt_values
        self._doubt_spans, self._doubt_values = spans, values
        self._put(layout.DOUBT_SPANS, spans)
        self._put(layout.DOUBT_VALUES, values)
        self._set(layout.DOUBT_ROOM, room)

    def _make_room(self, room: int) -> None:
        """Make room for this many features of a block; those that are there stay."""
        keys, values = np.empty(room, np.uint64), np.empty(room)
        keys[: len(self._keys)] = self._keys
        values[: len(self._values)] = self._values
        self._keys, self._values = keys, values
        self._put(layout.KEYS, keys)
        self._put(layout.VALUES, values)
        self._set(layout.ROOM, room)

    def _put(self, place: int, array: NDArray[np.generic]) -> None:
        """Keep an array, and tell the kernel where it is."""
        self._kept[place] = array
        self._set(place, address_of(array))

    def _set(self, place: int, number: int) -> None:
        self._state[place // 8] = number

    def _get(self, place: int) -> int:
        return int(self._state[place // 8])
