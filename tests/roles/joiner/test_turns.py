"""When a joiner turns its partitions: for work, for news, and seldom without either."""

from __future__ import annotations

from typing import Any, cast

from stream_learner.roles.joiner.owned_partitions import LOOK_S, Turns


class World:
    """Partitions, pools and ends that a test sets; `turned` says which partitions were turned, in order."""

    def __init__(self, partitions: int = 3) -> None:
        self.now_s = 100.0
        self.came = False
        self.wakes = True
        self.snapshot: object = object()
        self.works: set[int] = set()
        self.turned: list[int] = []
        self.turns = Turns(cast(Any, self), cast(Any, self), lambda: self.now_s)
        self.joiners = [Partition(self, number) for number in range(partitions)]

    def poll(self, *, held: bool) -> bool:
        """As `ReaderPools.poll`."""
        came, self.came = self.came, False
        return came

    def turn(self, *, news: bool = False) -> list[int]:
        """Turn once; the partitions that were turned."""
        self.turned.clear()
        assert self.turns.turn(cast(Any, self.joiners), news=news) == bool(self.works & set(self.turned))
        return sorted(self.turned)

    def settle(self) -> None:
        """Turn until nothing is turned any more."""
        while self.turn():
            pass


class Partition:
    """A partition that works while its number is in `works`."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.has_deliveries = False

    def turn(self) -> bool:
        self.world.turned.append(self.number)
        return self.number in self.world.works


ALL = [0, 1, 2]


def test_without_news_partitions_are_turned_seldom() -> None:
    """Once every `LOOK_S`, for what waits for a moment on the clock."""
    world = World()
    world.settle()
    assert world.turns.may_wait
    turned = 0
    for _ in range(200):
        world.now_s += LOOK_S / 20
        turned += bool(world.turn())
    assert 9 <= turned <= 11


def test_every_kind_of_news_turns_all_at_once() -> None:
    """Records, new ends, and what the role knows of; after records once more, for where the inputs end now."""
    world = World()
    world.settle()
    world.came = True
    assert world.turn() == ALL and not world.turns.may_wait
    assert world.turn() == ALL and world.turn() == []
    assert world.turn(news=True) == ALL and world.turn() == []
    world.snapshot = object()
    assert world.turn() == ALL and world.turn() == []


def test_a_delivery_turns_the_partition_that_it_is_for() -> None:
    """As long as it is not taken; what it leads to is the work of all."""
    world = World()
    world.settle()
    world.joiners[1].has_deliveries = True
    assert world.turn() == world.turn() == [1] and world.turns.may_wait
    world.works = {1}
    assert world.turn() == [1] and world.turn() == ALL
    world.works, world.joiners[1].has_deliveries = set(), False
    world.settle()


def test_while_one_works_all_are_turned_and_each_is_the_first_in_turn() -> None:
    """They share what `join.max_rate` allows, so nobody may always come first."""
    world = World()
    world.works = {1}
    first = []
    for _ in range(6):
        assert world.turn() == ALL
        first.append(world.turned[0])
    assert sorted(first) == sorted(ALL * 2)
    world.works = set()
    assert world.turn() == ALL and world.turn() == []


def test_no_wait_where_nothing_wakes_the_thread() -> None:
    """Where records come through the ordinary client, the thread must look by itself."""
    world = World()
    world.wakes = False
    world.settle()
    assert not world.turns.may_wait


def test_an_error_of_a_partition_leaves_work() -> None:
    """The others may have been passed over in that round."""
    world = World()
    world.settle()

    def fail() -> bool:
        raise RuntimeError

    world.joiners[0].turn = fail  # type: ignore[method-assign]
    for _ in range(4):
        try:
            world.turn(news=True)
        except RuntimeError:
            break
    assert not world.turns.may_wait


def test_without_partitions_there_is_nothing_to_turn() -> None:
    assert World(0).turn(news=True) == []
