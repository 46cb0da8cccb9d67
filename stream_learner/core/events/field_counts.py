"""How many different features each field gives, counted while events are decoded: an estimate in bounded memory.

A key does not tell its field. So the field of a key is looked up in its event, by `named_keys`, which is slow, and
only for a sample: the keys whose lowest `level` bits are 0. As keys are hashes, each feature is in the sample or not,
however often it comes; a field with c keys in the sample has given about c 2^level features. Where the sample gets too
large, or new keys come faster than they can be looked up, the level rises by 1, and half of the sample leaves it
(distinct sampling: Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries", VLDB 2001).
At level 0 the counts are exact, but for about one key in a hundred, which the filter of known keys hides, and for those
of very large events.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from itertools import groupby, product
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import occurrence, parse_event, walk
from stream_learner.core.machine.entries import I64, U64, Flags, entry
from stream_learner.core.machine.hashing import hash_texts

ROOM = 8_192
"""Keys in the sample at most; a field with a tenth of all features is then known to about 4 %."""
LOOKED_UP = 3
"""Events whose keys are looked up in one call, at least: each takes a tenth of a millisecond."""
LOOKED_UP_OF = 8
"""Of a large batch as many are looked up as this part of its events."""
CAUGHT_UP = 12
"""Events that one call of `catch_up` looks up."""
FIRST_LOOK_UPS = 1_024
EVENTS_A_LOOK_UP = 4_000
"""After the first ones, there is one for so many events: they take 25 ns of each."""
WAITING = 512
"""Events that may wait to be looked up."""
AT_ONCE = 4_096
"""New keys that one call may bring, before the level rises: each of them takes a microsecond to wait."""
LARGEST = 1 << 16
"""Events with more bytes are not looked up: what waits must not fill the memory."""
LONGEST_NAME = 200
_FILTER = 1 << 20
_BITS = np.uint64(40)


def named_keys(plan: Plan, raw: bytes) -> dict[int, str]:
    """The keys of an event's features, with the name of the field that gives each; `a x b` for a cross, no bias.

    Empty for an event that gives no features, as one with too many of them. Where two fields give one key, the last one
    has it.
    """
    spec = plan.features
    try:
        event = parse_event(raw, plan.max_event_bytes)
        if spec is None:
            return {}
        names: list[str] = []
        texts: list[bytes] = []
        watched: dict[str, list[int]] = {}
        for name, value in walk(event, lambda name: plan.of(name).below):
            field = plan.of(name)
            if not field.feature or value is None or isinstance(value, (dict, list)):
                continue
            watched.setdefault(name, []).append(len(names))
            names.append(name)
            texts.append(occurrence(field, value, spec.max_value_bytes)[0])
    except Refused:
        return {}
    combinations = sum(math.prod(len(watched.get(name, [])) for name in cross) for cross in spec.crosses)
    if len(names) + combinations > spec.max_features:
        return {}
    absent = [name for name in plan.indicators() if name not in watched]
    names += absent
    keys = hash_texts([*texts, *(f"{spec.in_keys(name)}:missing".encode() for name in absent)])
    for cross in spec.crosses:
        places = product(*(watched.get(name, []) for name in cross))
        crossed = hash_texts([b"".join(keys[place].to_bytes(8, "little") for place in parts) for parts in places])
        keys += crossed
        names += [" x ".join(cross)] * len(crossed)
    return dict(zip(keys, names, strict=True))


@entry
def _find_new(keys: U64, mask: np.uint64, known: Flags, out: I64) -> int:
    """Places of sampled keys that the filter does not know, to `out`; they are known from then on. Returns how many."""
    found = 0
    for i in range(len(keys)):
        if keys[i] & mask == 0:
            at = np.int64((keys[i] >> _BITS) & np.uint64(_FILTER - 1))
            if not known[at]:
                known[at] = True
                out[found] = i
                found += 1
    return found


class FieldCounts:
    """Counts of one process, over all partitions. Used by one thread."""

    def __init__(self, plan: Plan) -> None:
        """plan: by which the events are decoded."""
        self.level = 0
        self._plan = plan
        self._known = np.zeros(_FILTER, np.bool_)
        self._sample: dict[int, str] = {}
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._places = np.empty(0, np.int64)
        self._look_ups = float(FIRST_LOOK_UPS)

    def note(
        self,
        data: bytes | NDArray[np.uint8],
        bounds: NDArray[np.int64],
        row_start: NDArray[np.int64],
        keys: NDArray[np.uint64],
    ) -> None:
        """Take the features that the events data[bounds[i]:bounds[i+1]] were decoded to: columns of `Impressions`."""
        if len(keys) > len(self._places):
            self._places = np.empty(2 * len(keys), np.int64)
        found = _find_new(keys, np.uint64(self._mask), self._known, self._places)
        if found > AT_ONCE:
            self._raise_level(by=(found // AT_ONCE).bit_length())
            found = _find_new(keys, np.uint64(self._mask), self._known, self._places)
        if found:
            self._wait(data, bounds, row_start, keys, self._places[:found])
        events = len(bounds) - 1
        self._look_ups = min(self._look_ups + events / EVENTS_A_LOOK_UP, FIRST_LOOK_UPS)
        some = min(max(LOOKED_UP, events // LOOKED_UP_OF), len(self._waiting), int(self._look_ups))
        self._look_ups -= some
        self._look_up_next(some)
        while len(self._sample) > ROOM or len(self._waiting) > WAITING:
            self._raise_level()

    def catch_up(self) -> None:
        """Look up some of the events that wait. To be called about once a second, also while no events come."""
        self._look_up_next(min(CAUGHT_UP, len(self._waiting)))
        while len(self._sample) > ROOM:
            self._raise_level()

    @property
    def share(self) -> float:
        """How many features one of the sample stands for."""
        waiting = sum(len(keys) for _, keys in self._waiting)
        return (1 << self.level) * (1 + waiting / max(len(self._sample), 1))

    def counts(self) -> dict[str, int]:
        """About how many different features each field has given so far, the largest first.

        Those that wait to be looked up are taken to be of the fields of the others.
        """
        found, share = Counter(self._sample.values()), self.share
        return {name: round(count * share) for name, count in found.most_common()}

    @property
    def _mask(self) -> int:
        return (1 << self.level) - 1

    def _wait(
        self,
        data: bytes | NDArray[np.uint8],
        bounds: NDArray[np.int64],
        row_start: NDArray[np.int64],
        keys: NDArray[np.uint64],
        places: NDArray[np.int64],
    ) -> None:
        """Keep the events of these features until they are looked up."""
        rows = (np.searchsorted(row_start, places, side="right") - 1).tolist()
        for row, some in groupby(zip(rows, keys[places].tolist(), strict=True), itemgetter(0)):
            begin, end = int(bounds[row]), int(bounds[row + 1])
            if end - begin <= LARGEST:
                self._waiting.append((bytes(data[begin:end]), [key for _, key in some]))

    def _look_up_next(self, events: int) -> None:
        for _ in range(events):
            self._look_up(*self._waiting.popleft())

    def _look_up(self, raw: bytes, keys: list[int]) -> None:
        named = named_keys(self._plan, raw)
        self._sample.update((key, named[key][:LONGEST_NAME]) for key in keys if key in named)

    def _raise_level(self, by: int = 1) -> None:
        """Leave out half of the keys, those that wait too; `by` times. What only the filter knows is forgotten."""
        self.level += by
        mask = self._mask
        self._sample = {key: name for key, name in self._sample.items() if not key & mask}
        kept = ((raw, [key for key in keys if not key & mask]) for raw, keys in self._waiting)
        self._waiting = deque((raw, keys) for raw, keys in kept if keys)
        held = np.array([*self._sample, *(key for _, keys in self._waiting for key in keys)], np.uint64)
        self._known[:] = False
        self._known[(held >> _BITS) & np.uint64(_FILTER - 1)] = True
