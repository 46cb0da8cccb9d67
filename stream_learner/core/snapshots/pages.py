"""Plans the pages and deltas of a publication (or a checkpoint) of one shard.

`core.snapshots` explains pages and deltas. Every publication holds the delta (all rows changed) and the next few pages,
oldest first, so that within `cycle` publications every page is written again. Deltas are in a ring of `ring` slots, and
`cycle` < `ring`: a delta that is overwritten is older than every page. One that has become older than every page before
that is deleted.

How many pages go into a publication is reckoned in rows, as a credit that may go into debt by one page: each
publication earns as many rows as are needed to write every page in `cycle`, or `delta_share` of the rows of its delta
if that is more. So a publication writes its changes, and beside them `delta_share` of as many rows or the model once in
a cycle, whichever is more; and the deltas that a reader needs hold at most about 1 / `delta_share` times the rows of
the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.snapshots.rows import Rows, row_bytes

KEY_BITS = 64
_ALL_KEYS = (1 << KEY_BITS) - 1
MAX_SHARDS = 256


class Prefix(NamedTuple):
    """The keys that begin with `nbits` given bits: `bits` is the first such key, `last` the last one."""

    bits: int
    nbits: int

    @property
    def last(self) -> int:
        """The largest key with this prefix."""
        return self.bits | (_ALL_KEYS >> self.nbits)

    @property
    def number(self) -> int:
        """The bits as a number of `nbits` bits."""
        return self.bits >> (KEY_BITS - self.nbits)

    @property
    def text(self) -> str:
        """The bits as characters 0 and 1, "" for all keys.

        >>> Prefix(0xA << 60, 3).text
        '101'
        """
        return format(self.number, f"0{self.nbits}b") if self.nbits else ""

    @classmethod
    def parse(cls, text: str) -> Prefix:
        """The prefix written as 0 and 1. Raises ValueError for anything else."""
        if len(text) > KEY_BITS or text.strip("01"):
            raise ValueError(f"not a prefix of bits: {text[:80]!r}")
        return cls(int(text, 2) << (KEY_BITS - len(text)) if text else 0, len(text))

    def halves(self) -> tuple[Prefix, Prefix]:
        """The two prefixes that are one bit longer."""
        nbits = self.nbits + 1
        return Prefix(self.bits, nbits), Prefix(self.bits | (1 << (KEY_BITS - nbits)), nbits)


def shard_prefix(shard: int, shards: int) -> Prefix:
    """The keys of a shard. Raises ValueError unless `shards` is a power of two up to 256 and `shard` one of them."""
    if not 1 <= shards <= MAX_SHARDS or shards & (shards - 1) or not 0 <= shard < shards:
        raise ValueError(f"shard {shard} of {shards}: shards are a power of two, at most {MAX_SHARDS}")
    nbits = shards.bit_length() - 1
    return Prefix(shard << (KEY_BITS - nbits), nbits)


def is_partition(root: Prefix, prefixes: Iterable[Prefix]) -> bool:
    """Whether the prefixes, in order of their bits, cover the keys of `root` without overlap."""
    expected = root.bits
    for prefix in prefixes:
        if prefix.bits != expected or not root.nbits <= prefix.nbits <= KEY_BITS:
            return False
        if prefix.bits & (_ALL_KEYS >> prefix.nbits):
            return False
        expected = prefix.last + 1
    return expected == root.last + 1


@dataclass(frozen=True, slots=True)
class PagePolicy:
    """The settings by which a shard is cut into pages and deltas.

    page_bytes: a page with more bytes of rows is split. part_bytes: bound of the rows of one part of a delta.
    ring: slots for deltas. delta_share: rows of pages written per row of delta, at least.
    lean: leave out of a delta the rows that the pages of the same publication hold (for readers that always take both).
    whole: write every page each time, and deltas without rows, because rows change without being touched. Each
    publication then leaves out a number, so that a reader misses a delta and has to take the pages.
    """

    page_bytes: int = 256 * 1024
    part_bytes: int = 960 * 1024
    ring: int = 256
    delta_share: float = 0.5
    lean: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if self.ring < 4 or self.page_bytes < 1 or self.part_bytes < 1 or self.delta_share < 0:
            raise ValueError(f"impossible page policy: {self}")

    @property
    def cycle(self) -> int:
        """Publications within which every page is written: three quarters of the ring."""
        return 3 * self.ring // 4

    @property
    def step(self) -> int:
        """By how much the number of a publication is larger than that of the one before."""
        return 2 if self.whole else 1


@dataclass(frozen=True, slots=True)
class PageState:
    """The state of a shard's pages and deltas after a publication; all of it is in the version record.

    sequence: number of the last publication, 0 before the first. pages: prefix and the publication that wrote the page
    last (0: not yet), in order of the prefixes. slot_parts i64[ring]: records that each slot of the ring holds.
    """

    sequence: int
    pages: tuple[tuple[Prefix, int], ...]
    slot_parts: NDArray[np.int64] = field(repr=False)

    @property
    def oldest(self) -> int:
        """The publication that wrote the page written longest ago."""
        return min(sequence for _, sequence in self.pages)

    def after_torn(self, sequence: int) -> PageState:
        """The state to go on from after publication `sequence` was torn: some of its records are visible for ever.

        Its number is not used again, the next one is left out, and every page is written anew. So no version is made of
        a delta with the torn number, whatever a reader has read of it, and whatever compaction has taken since.
        """
        return replace(
            self, sequence=max(self.sequence, sequence) + 1, pages=tuple((page, 0) for page, _ in self.pages)
        )


def first_state(root: Prefix, ring: int) -> PageState:
    """The state before the first publication: one page, not written yet."""
    return PageState(0, ((root, 0),), np.zeros(ring, np.int64))


@dataclass(frozen=True, slots=True)
class PagePlan(Generic[Rows]):
    """One publication of one shard.

    parts: the delta, at least one part. retired: slot and part of delta records to delete. pages: prefix and
    rows (`of_page`) of each page to write, empty where `take_page` got them. removed: prefixes of pages to delete.
    state: the state once all this is written. credit: the credit then.
    """

    sequence: int
    slot: int
    parts: list[Rows]
    retired: list[tuple[int, int]]
    pages: list[tuple[Prefix, Rows]]
    removed: list[Prefix]
    state: PageState
    credit: float


class PagePlanner(Generic[Rows]):
    """Plans the publications of one shard, one after the other."""

    def __init__(self, root: Prefix, policy: PagePolicy, state: PageState | None = None) -> None:
        """Begin with an empty shard, or go on from the state in the last version record.

        Raises ValueError if the pages of `state` do not cover the shard exactly. A state with another ring is taken
        over by writing every page and deleting every older delta at once.
        """
        self.root = root
        self.policy = policy
        self.state = state or first_state(root, policy.ring)
        self._credit = 0.0
        if not is_partition(root, (prefix for prefix, _ in self.state.pages)):
            raise ValueError(f"the pages do not cover shard {root.text or 'of all keys'!r} exactly")

    def plan(
        self,
        changed: Rows,
        rows_of: Callable[[Prefix], Rows],
        take_page: Callable[[int, Prefix, Rows], None] | None = None,
    ) -> PagePlan[Rows]:
        """Plan the next publication; the plan counts only once it is given to `commit`.

        changed: rows of this shard, sorted by key, each key once, with their values now (rows that became zero too).
        rows_of: gives all rows with a prefix, sorted by key, as of now; called once per page written.
        take_page: called with the number of the publication and each page, before the rows of the next page are asked
        for. The plan then holds no pages, so that the rows of one page at a time are in memory.
        """
        sequence = self.state.sequence + self.policy.step
        size = row_bytes(changed.ncols)
        pages: list[tuple[Prefix, Rows]] = []

        def keep(_: int, prefix: Prefix, rows: Rows) -> None:
            pages.append((prefix, rows))

        written, credit = self._pages(sequence, len(changed), size, rows_of, take_page or keep)
        if self.policy.whole:
            changed = changed.part(0, 0)
        if self.policy.lean:
            changed = _outside(changed, [leaf for leaves in written.values() for leaf in leaves])
        parts = _cut(changed, max(1, self.policy.part_bytes // size))
        listed = tuple(self._listed(sequence, written))
        retired, slot_parts = self._retire(sequence, len(parts), min(last for _, last in listed))
        return PagePlan(
            sequence=sequence,
            slot=sequence % self.policy.ring,
            parts=parts,
            retired=retired,
            pages=pages,
            removed=[prefix for prefix, leaves in written.items() if len(leaves) > 1],
            state=PageState(sequence, listed, slot_parts),
            credit=credit,
        )

    def commit(self, plan: PagePlan[Rows]) -> None:
        """Go on from a plan that has been written. Raises ValueError unless it follows the last one."""
        if plan.sequence != self.state.sequence + self.policy.step:
            raise ValueError(f"publication {plan.sequence} cannot follow {self.state.sequence}")
        self.state = plan.state
        self._credit = plan.credit

    def _pages(
        self,
        sequence: int,
        changed: int,
        size: int,
        rows_of: Callable[[Prefix], Rows],
        take_page: Callable[[int, Prefix, Rows], None],
    ) -> tuple[dict[Prefix, list[Prefix]], float]:
        """The pages to write, by the prefix they have now, each with the prefixes it becomes; and the credit left."""
        page_rows = max(1, self.policy.page_bytes // size)
        count = len(self.state.pages)
        earned = max(self.policy.delta_share * changed, count * page_rows / self.policy.cycle)
        credit = min(self._credit + earned, float(count * page_rows))
        written: dict[Prefix, list[Prefix]] = {}
        for prefix, last in sorted(self.state.pages, key=lambda page: (page[1], page[0])):
            if credit <= 0 and not self._must_write(sequence, last):
                break
            rows = rows_of(prefix).of_page()
            credit -= max(1, len(rows))
            written[prefix] = []
            for leaf, part in _leaves(prefix, rows, page_rows):
                take_page(sequence, leaf, part)
                written[prefix].append(leaf)
        return written, max(credit, -float(page_rows))

    def _must_write(self, sequence: int, last: int) -> bool:
        """Whether a page must be written now, by the policy, or because the ring will lack a delta that it needs."""
        return self.policy.whole or last == 0 or sequence - last >= self.policy.ring - 1 or self._ring_changed

    @property
    def _ring_changed(self) -> bool:
        return len(self.state.slot_parts) != self.policy.ring

    def _listed(self, sequence: int, written: dict[Prefix, list[Prefix]]) -> Iterable[tuple[Prefix, int]]:
        for prefix, last in self.state.pages:
            if prefix in written:
                yield from ((leaf, sequence) for leaf in written[prefix])
            else:
                yield prefix, last

    def _retire(self, sequence: int, parts: int, oldest: int) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
        """Slot and part of the delta records that no reader needs any more; and how many each slot then holds."""
        ring = self.policy.ring
        held = self.state.slot_parts
        left = np.zeros(ring, np.int64)
        if not self._ring_changed:
            for number in range(max(oldest + 1, sequence - ring + 1), sequence):
                left[number % ring] = held[number % ring]
        left[sequence % ring] = parts
        kept = np.zeros(max(ring, len(held)), np.int64)
        kept[:ring] = left
        retired = [(slot, part) for slot in np.flatnonzero(held) for part in range(kept[slot], held[slot])]
        return [(int(slot), int(part)) for slot, part in retired], left


def _leaves(prefix: Prefix, rows: Rows, page_rows: int) -> Iterable[tuple[Prefix, Rows]]:
    """The page, or the pages it is split into, so that none has more than `page_rows` rows."""
    if len(rows) <= page_rows or prefix.nbits == KEY_BITS:
        yield prefix, rows
        return
    low, high = prefix.halves()
    middle = int(np.searchsorted(rows.keys, np.uint64(high.bits)))
    yield from _leaves(low, rows.part(0, middle), page_rows)
    yield from _leaves(high, rows.part(middle, len(rows)), page_rows)


def _cut(rows: Rows, part_rows: int) -> list[Rows]:
    return [rows.part(start, start + part_rows) for start in range(0, max(1, len(rows)), part_rows)]


def _outside(rows: Rows, prefixes: Sequence[Prefix]) -> Rows:
    """The rows with none of these prefixes."""
    ordered = sorted(prefixes)
    if not ordered or not len(rows):
        return rows
    firsts = np.array([prefix.bits for prefix in ordered], np.uint64)
    lasts = np.array([prefix.last for prefix in ordered], np.uint64)
    nearest = np.searchsorted(firsts, rows.keys, side="right") - 1
    return rows.where((nearest < 0) | (rows.keys > lasts[nearest]))
