"""Dead letters of a partition: every one is handed over once, in order, and never more than a bound is held."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from stream_learner.roles.joiner.bad_records import DeadLetter, DeadLetters


def letter(offset: int, size: int) -> DeadLetter:
    """The letter of a record with a value of so many bytes, of one without a value for 0."""
    return DeadLetter("clicks", 0, offset, 7, b"x" * size or None, "not JSON")


@given(
    st.integers(1, 5_000),
    st.lists(st.lists(st.integers(0, 3_000), max_size=8), max_size=12),
    st.randoms(use_true_random=False),
)
def test_what_is_held_is_bounded_and_every_letter_is_handed_over_once(limit: int, batches: list, rng) -> None:  # type: ignore[no-untyped-def,type-arg]
    """The reader reads no more while letters wait, so at most a batch, the limit and one more letter are held."""
    letters = DeadLetters({}, limit)
    written: list[int] = []
    under_way: deque[DeadLetter] = deque()
    waiting, offset = deque(batches), 0
    largest_batch = max((sum(size + 512 for size in batch) for batch in batches), default=0)
    while waiting or not letters.are_there:
        if waiting and not letters.wait:
            for size in waiting.popleft():
                letters.add(letter(offset, size))
                offset += 1
        while (one := letters.hand_over()) is not None:
            under_way.append(one)
        assert sum(each.nbytes for each in under_way) < limit + 512 + 3_000
        assert letters.nbytes <= largest_batch + limit + 512 + 3_000
        assert letters.wait or letters.are_there == (not under_way)
        for _ in range(rng.randrange(len(under_way) + 1)):
            one = under_way.popleft()
            letters.acknowledged(one.nbytes)
            written.append(one.offset)
    assert written == list(range(offset))
    assert letters.nbytes == 0


def test_nothing_is_handed_over_while_too_many_bytes_are_on_their_way() -> None:
    """The next goes when an acknowledgement has made room; letters without a value count too."""
    letters = DeadLetters({}, 1_000)
    for offset in range(3):
        letters.add(letter(offset, 0))
    first, second = letters.hand_over(), letters.hand_over()
    assert first is not None and second is not None
    assert letters.hand_over() is None
    assert letters.wait
    letters.acknowledged(first.nbytes)
    third = letters.hand_over()
    assert third is not None and third.offset == 2
    assert not letters.wait and not letters.are_there
