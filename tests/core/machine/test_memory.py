"""What kernels see at plain addresses, against the same bytes read by numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core.machine import memory
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of

U64 = st.integers(0, 2**64 - 1)


@kernel
def _places_of_word(address, wanted):  # type: ignore[no-untyped-def]
    return memory.places_of_word(address, wanted)


@kernel
def _places_of_byte(address, wanted):  # type: ignore[no-untyped-def]
    return memory.places_of_byte(address, wanted)


def _bits(equal: np.ndarray) -> int:
    return sum(1 << place for place in np.flatnonzero(equal).tolist())


@given(st.lists(st.integers(0, 3) | U64, min_size=8, max_size=8), st.integers(0, 3) | U64)
def test_the_places_of_a_word(words: list[int], wanted: int) -> None:
    """A bit for each of the eight words that are equal in all their bits."""
    array = np.array(words, np.uint64)
    assert int(_places_of_word(address_of(array), np.uint64(wanted))) == _bits(array == np.uint64(wanted))


@given(st.lists(st.integers(0, 255), min_size=64, max_size=64), st.integers(0, 255))
def test_the_places_of_a_byte(content: list[int], wanted: int) -> None:
    """A bit for each of the 64 bytes that are equal."""
    array = np.array(content, np.uint8)
    assert int(_places_of_byte(address_of(array), wanted)) == _bits(array == wanted)
