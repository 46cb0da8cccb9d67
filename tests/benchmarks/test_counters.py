"""What the processor counts, and what is said where it does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import bench_instructions, counters
from benchmarks.bench_instructions import NOT_COUNTED, STEPS, WARM, Work, counted
from benchmarks.counters import EVENTS, Counters, NotCounted

INSTRUCTIONS = list(EVENTS).index("instructions")


@pytest.fixture
def counting() -> Iterator[Counters]:
    """Counters of this machine, which may have none."""
    try:
        with Counters(later_threads=True) as found:
            yield found
    except NotCounted as error:
        pytest.skip(f"nothing to test: {error}")


def work(times: int) -> int:
    return sum(number & 3 for number in range(times))


def taken(counting: Counters, times: int) -> float:
    before = counting.read()
    work(times)
    return float((counting.read() - before)[INSTRUCTIONS])


def test_twice_the_work_is_twice_the_instructions(counting: Counters) -> None:
    """However busy the machine is."""
    work(1000)
    assert taken(counting, 400_000) / taken(counting, 200_000) == pytest.approx(2.0, rel=0.05)


def test_a_later_thread_is_counted_too(counting: Counters) -> None:
    """Its work is in the counts of the one that started it."""
    alone = taken(counting, 200_000)
    before = counting.read()
    thread = threading.Thread(target=work, args=(200_000,))
    thread.start()
    thread.join()
    assert (counting.read() - before)[INSTRUCTIONS] == pytest.approx(alone, rel=0.2)


def test_a_machine_that_does_not_count_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one row, which is no failure of the benchmark."""
    monkeypatch.setattr(counters, "_CALLS", {})
    (row,) = bench_instructions.run(quick=True)
    assert row["name"] == NOT_COUNTED
    assert "is not asked for counts" in row["note"]


def test_a_refusal_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says, and how strict it is; nothing stays open."""
    monkeypatch.setattr(counters, "EVENTS", {"no such event": 10**6})
    with pytest.raises(NotCounted, match=r"refuses to count no such event: .*perf_event_paranoid: "):
        Counters()


class Fake:
    """Counts one of each event at each reading and ten for each work."""

    def __init__(self) -> None:
        self.count = 0

    def read(self) -> np.ndarray:
        return np.full(len(EVENTS), float(self.count))

    def work(self, size: int) -> int:
        self.count += 10 * size
        return size


def test_making_work_and_the_first_pieces_are_not_counted() -> None:
    """An impression's counts are those of the pieces after the first."""
    fake = Fake()

    def pieces() -> Iterator[Work]:
        for place in range(WARM + 3):
            fake.count += 1_000_000
            yield lambda place=place: fake.work(1000 if place < WARM else 5)

    each, impressions = counted(pieces(), fake)  # type: ignore[arg-type]
    assert impressions == 15
    assert each.tolist() == [10.0] * len(EVENTS)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_works_on_more_than_is_left_out(step: str) -> None:
    """Each piece says how many impressions it was."""
    pieces = iter(STEPS[step](20_000))
    sizes = [next(pieces)() for _ in range(WARM + 1)]
    assert all(size >= 1000 for size in sizes)
