"""Which interactions and n-grams VW makes of its options, wildcards included, and in which order.

In: the options' words. Out: tables for the kernels.
This file must never look at an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from stream_learner.core.text.vw_layout import GRAM_WIDTH

WILDCARD = ord(":")


def has_wildcard(words: Iterable[bytes]) -> bool:
    """Whether the interactions depend on the namespaces there are."""
    return any(WILDCARD in word for word in words)


def expand(words: Iterable[bytes], letters: bytes) -> list[bytes]:
    """All interactions of the namespaces with these first letters, in VW's order; a `:` stands for any of them.

    An interaction with a letter twice has its letters sorted. Of those with the same letters only the first in
    the order of bytes remains: that decides whose key is multiplied. Shorter ones come first.

    >>> expand([b"ba", b"a:"], b"abc")
    [b'aa', b'ab', b'ac']
    """
    found = set()
    for word in words:
        for choice in product(*(letters if letter == WILDCARD else [letter] for letter in word)):
            found.add(bytes(sorted(choice) if len(set(choice)) < len(choice) else choice))
    once: dict[bytes, bytes] = {}
    for word in sorted(found, key=lambda word: (len(word), word)):
        once.setdefault(bytes(sorted(word)), word)
    return list(once.values())


def gram_offsets(n: int, skips: int) -> list[tuple[int, ...]]:
    """The offsets of the further words of each 2- to n-gram with up to `skips` words left out, in VW's order."""
    return [offsets for more in range(1, n) for offsets in _offsets(more, skips, 0, 1)]


def _offsets(more: int, skips: int, last: int, step: int) -> Iterator[tuple[int, ...]]:
    """The next word `step` further on, and all that may follow it; then the same with one word more left out."""
    if more == 0:
        yield ()
        return
    for rest in _offsets(more - 1, skips, last + step, 1):
        yield (last + step, *rest)
    if skips > 0:
        yield from _offsets(more, skips - 1, last, step + 1)


MAX_GRAM = GRAM_WIDTH
"""Words of the longest n-gram."""
