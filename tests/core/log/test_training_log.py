"""Rule R and rule W on random histories, on mutants of them, and case by case; the chain to begin with; the balance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_learner.core.errors import BrokenLog, DamagedRecord, ForeignRecord, NewerVersion, RecordError
from stream_learner.core.log.balance import Balance, balance_lines
from stream_learner.core.log.examples import encode_examples
from stream_learner.core.log.marks import GENESIS, ClickCounts, ImpressionCounts, Mark, MarkId, TickCounts, encode_mark
from stream_learner.core.log.rule_r import AcceptedTick, RuleR, find_chain
from stream_learner.core.log.rule_w import Attempt, Verdict
from tests.core.log.log_world import Rules, check_history, examples_of
from tests.suite.share import share


def run_histories(rules: Rules, histories: int = 250) -> list[int]:
    """Accepted marks, ignored marks and lost attempts of all the histories together."""
    found = [check_history(seed, rules) for seed in range(histories)]
    return [sum(column) for column in zip(*found, strict=True)]


@share(80, nightly=500)
def test_random_histories_keep_every_law(examples: int) -> None:
    """Several writers, pauses, kills, failures, late records: every tick once, in order, and every input record."""
    accepted, ignored, lost = run_histories(Rules(), examples)
    assert accepted > 8 * examples
    assert ignored > 4 * examples
    assert lost > 2 * examples


class AnyPredecessor(RuleR):
    """Rule R without the look at the predecessor."""

    def _follows(self, mark: Mark) -> bool:
        return mark.first_tick == self.last.last_tick + 1

    def _refuse_unseen(self, mark: Mark, where: object) -> None:
        pass


class AnyTick(RuleR):
    """Rule R that takes the predecessor's attempt for its mark."""

    def _follows(self, mark: Mark) -> bool:
        return mark.pred_attempt == self.last.attempt

    def _refuse_unseen(self, mark: Mark, where: object) -> None:
        pass


class AnyRecords(RuleR):
    """Rule R without the count of records."""

    def _complete(self, mark: Mark, records: list[object]) -> bool:  # type: ignore[override]
        return True


class NeverLost(Attempt):
    """Rule W that goes on after every foreign offset."""

    def decide(self, rule: RuleR) -> Verdict:
        super().decide(rule)
        return Verdict.GO_ON


class ForgetsItsPredecessor(Attempt):
    """Rule W whose marks always name the mark the attempt began from."""

    def stamp(self, *args: object, **kwargs: object) -> list[bytes]:  # type: ignore[override]
        records = super().stamp(*args, **kwargs)  # type: ignore[arg-type]
        self._stamped = MarkId(self._first_predecessor.attempt, self._stamped.last_tick)
        return records


@pytest.mark.parametrize(
    "rules",
    [
        Rules(reader=AnyPredecessor),
        Rules(reader=AnyTick),
        Rules(reader=AnyRecords),
        Rules(writer=NeverLost),
        Rules(writer=ForgetsItsPredecessor),
    ],
)
def test_no_part_of_the_rules_can_be_left_out(rules: Rules) -> None:
    """Each mutant breaks a law on some of the histories that the real rules survive."""
    with pytest.raises((AssertionError, RecordError)):
        run_histories(rules)


def tick_records(
    attempt: int, tick: int, pred: MarkId, n: int = 2, *, first_tick: int | None = None, partition: int = 0
) -> list[bytes]:
    """The records of a tick of `n` examples, one each, and its mark."""
    batch = examples_of(10 * tick, 10 * tick + n)
    records = encode_examples(partition, tick, attempt, batch, 101)
    return [*records, encode_mark(make_mark(attempt, tick, pred, n, first_tick, partition))]


def make_mark(
    attempt: int, tick: int, pred: MarkId, n: int = 0, first_tick: int | None = None, partition: int = 0
) -> Mark:
    """The mark of a tick of `n` records of one example each."""
    return Mark(
        partition=partition,
        attempt=attempt,
        first_tick=pred.last_tick + 1 if first_tick is None else first_tick,
        last_tick=tick,
        next_impression=0,
        first_click=0,
        click_cursor=0,
        records=n,
        pred_attempt=pred.attempt,
        pred_tick=pred.last_tick,
        counts=TickCounts(ImpressionCounts(read=n, examples=n), ClickCounts()),
    )


def take_all(rule: RuleR, log: list[bytes], begin: int = 0) -> list[AcceptedTick]:
    """The ticks accepted from `begin` on."""
    ticks = [rule.take(begin + place, value) for place, value in enumerate(log[begin:])]
    return [tick for tick in ticks if tick is not None]


def chain(attempt: int, ticks: int) -> list[bytes]:
    """An attempt's first ticks from the beginning of the partition."""
    log, pred = [], GENESIS
    for tick in range(ticks):
        log += tick_records(attempt, tick, pred)
        pred = MarkId(attempt, tick)
    return log


def test_an_accepted_tick_has_its_records_with_their_offsets() -> None:
    """In order, decoded, and nothing of another attempt among them."""
    mine, other = tick_records(7, 0, GENESIS), tick_records(8, 0, GENESIS, 1)
    rule = RuleR(partition=0)
    (tick,) = take_all(rule, [mine[0], other[0], mine[1], mine[2], other[1]])
    assert (tick.mark.id, tick.mark_offset, tick.examples) == (MarkId(7, 0), 3, 2)
    assert [(offset, record.sequence) for offset, record in tick.records] == [(0, 0), (2, 1)]
    assert (rule.accepted_marks, rule.ignored_marks, rule.ignored_records) == (1, 1, 1)
    assert rule.position == 5


def test_a_mark_counts_only_with_all_records_of_its_tick() -> None:
    """A lost record in front, in the middle or at the end makes the tick one that never was."""
    records = tick_records(7, 0, GENESIS, 3)
    for missing in range(3):
        rule = RuleR()
        assert take_all(rule, records[:missing] + records[missing + 1 :]) == []
        assert (rule.ignored_marks, rule.ignored_records, rule.buffered_records) == (1, 2, 0)


def test_records_delivered_twice_count_once() -> None:
    """A log copied at least once has the same ticks: repeated records and marks are ignored."""
    log = chain(7, 3)
    twice = [value for place in range(0, len(log), 2) for value in log[max(0, place - 3) : place + 2]]
    assert [tick.mark for tick in take_all(RuleR(), twice)] == [tick.mark for tick in take_all(RuleR(), log)]


def test_records_of_a_tick_whose_mark_was_lost_do_not_count_for_the_next() -> None:
    """The next tick's records begin at 0 again; the old ones are ignored."""
    log = tick_records(7, 0, GENESIS)[:-1] + tick_records(7, 1, MarkId(7, 0))
    rule = RuleR()
    assert take_all(rule, log + chain(8, 1)) != []
    assert (rule.ignored_marks, rule.ignored_records) == (1, 4)


def test_memory_holds_only_what_may_still_count() -> None:
    """Whatever others left unfinished is dropped with the next accepted mark."""
    rule, offset = RuleR(), 0
    for attempt in range(100, 150):
        rule.take(offset, tick_records(attempt, 0, GENESIS)[0])
        offset += 1
    assert rule.buffered_records == 50
    assert rule.buffered_bytes > 50 * 100
    for value in chain(7, 1):
        rule.take(offset, value)
        offset += 1
    assert (rule.buffered_records, rule.buffered_bytes, rule.ignored_records) == (0, 0, 50)


def test_an_ignored_record_may_have_any_body_an_accepted_one_may_not() -> None:
    """Damage stops the reader where it would count, names the record, and leaves the reader as it was."""
    mine = tick_records(7, 0, GENESIS)
    harmed = mine[1][:-1] + bytes([mine[1][-1] ^ 1])
    rule = RuleR(partition=5)
    assert rule.take(0, mine[0]) is None
    assert str(rule.last_foreign) == "partition 5, offset 0: a record of partition 0"
    rule = RuleR()
    assert len(take_all(rule, [mine[0], harmed, *chain(8, 1)])) == 1
    assert rule.take(5, mine[2]) is None
    rule = RuleR()
    take_all(rule, [mine[0], harmed])
    with pytest.raises(DamagedRecord, match="offset 1: the body's checksum"):
        rule.take(2, mine[2])
    assert (rule.position, rule.last, rule.accepted_marks) == (2, GENESIS, 0)


FOREIGN = (None, b"", b"{}", b"junk", bytes(1 << 20), b"SLTL\1\0", chain(7, 1)[0][:39])


@pytest.mark.parametrize("value", FOREIGN)
def test_what_has_no_valid_header_is_passed_over_wherever_it_lies(value: bytes | None) -> None:
    """Tombstones, other people's bytes, cut headers: each is counted, and the ticks are the same."""
    records = [*chain(7, 3), *chain(8, 1)]
    wanted = [tick.mark for tick in take_all(RuleR(), records)]
    rule = RuleR()
    found = take_all(rule, [value, *(one for record in records for one in (record, value))])
    assert [tick.mark for tick in found] == wanted
    assert rule.foreign_records == len(records) + 1
    assert rule.last_foreign is not None and rule.last_foreign.offset == 2 * len(records)


@pytest.mark.parametrize(
    ("value", "error"), [(b"SLTL\6\0 something new", NewerVersion), (chain(7, 1)[2][:-1], DamagedRecord)]
)
def test_a_newer_record_and_a_damaged_mark_stop_the_reader_at_once(
    value: bytes | None, error: type[RecordError]
) -> None:
    """With the offset, nothing taken."""
    rule = RuleR(MarkId(9, 5))
    with pytest.raises(error, match="offset 17") as caught:
        rule.take(17, value)
    assert caught.value.offset == 17
    assert rule.position is None


def test_a_mark_whose_count_differs_from_its_records_is_damaged() -> None:
    """The balance could never hold."""
    records = tick_records(7, 0, GENESIS)
    mark = replace(make_mark(7, 0, GENESIS, 2), counts=TickCounts(ImpressionCounts(read=3, examples=3)))
    with pytest.raises(DamagedRecord, match="offset 2: the mark counts 3 examples, there are 2"):
        take_all(RuleR(), [*records[:2], encode_mark(mark)])


def test_offsets_may_have_gaps_but_never_go_back() -> None:
    """Reading the same record twice is an error of the reader, not of the log."""
    rule = RuleR()
    for offset, value in zip((0, 3, 9), chain(7, 1), strict=True):
        rule.take(offset, value)
    assert rule.last == MarkId(7, 0)
    with pytest.raises(ValueError, match="offset 9 after 9"):
        rule.take(9, chain(7, 1)[0])


def test_a_reader_goes_on_after_a_known_mark_from_any_offset_up_to_it() -> None:
    """Earlier records are passed over: none of their marks names the known one."""
    log = chain(7, 4)
    for begin in range(7):
        ticks = take_all(RuleR(MarkId(7, 1)), log, begin)
        assert [tick.mark.last_tick for tick in ticks] == [2, 3]


def test_a_reader_without_a_mark_refuses_a_log_whose_beginning_is_gone() -> None:
    """It would wait for ever for a first tick; an old loser's first tick must not be taken for it either."""
    loser = tick_records(8, 0, GENESIS)
    with pytest.raises(BrokenLog, match="offset 40: the partition's beginning is gone"):
        RuleR().take(40, loser[0])
    rule = RuleR()
    assert len(take_all(rule, loser)) == 1


def test_an_attempt_that_begins_after_a_mark_never_accepted_here_shows_the_gap() -> None:
    """Its writer read that mark by the same rule, so this reader must have missed it, or followed a loser."""
    rule = RuleR(MarkId(7, 5))
    assert take_all(rule, [encode_mark(make_mark(8, 6, MarkId(6, 4), first_tick=5))]) == []
    for unseen in (MarkId(9, 8), MarkId(9, 5)):
        with pytest.raises(BrokenLog, match="offset 1: an attempt begins after"):
            rule.take(1, encode_mark(make_mark(8, unseen.last_tick + 1, unseen)))
    assert (rule.position, rule.ignored_marks) == (1, 1)


def placed(marks: list[Mark]) -> list[tuple[int, Mark]]:
    """Marks with their offsets."""
    return list(enumerate(marks, start=100))


def test_the_longest_chain_in_sight_is_found_among_those_that_lost() -> None:
    """Retention has cut the log anywhere; losers' marks come before, between and after."""
    good = [make_mark(7, tick, MarkId(7, tick - 1)) for tick in range(5, 12)]
    loser = [make_mark(8, tick, MarkId(8 if tick > 6 else 7, tick - 1)) for tick in range(6, 9)]
    marks = placed([loser[1], good[0], loser[2], *good[1:]])
    assert find_chain(marks) == marks[1]
    assert find_chain(marks[:1]) == marks[0]
    assert find_chain([]) is None


def test_a_chain_goes_through_several_attempts_and_needs_every_tick() -> None:
    """A new attempt names the old one's mark; a mark that skips a tick begins a chain of its own."""
    first = make_mark(7, 5, MarkId(7, 4))
    second = make_mark(8, 6, first.id)
    skips = make_mark(9, 9, second.id, first_tick=8)
    third = make_mark(9, 9, second.id)
    marks = placed([first, second, skips])
    assert find_chain(marks) == marks[0]
    assert find_chain(marks[2:]) == marks[2]
    assert find_chain(placed([skips, second, third])) == (101, second)


def test_of_equal_chains_the_one_that_reaches_further_is_taken() -> None:
    """A loser's chain ends; the other is still going on."""
    one, other = make_mark(7, 5, MarkId(7, 4)), make_mark(8, 5, MarkId(7, 4))
    assert find_chain(placed([one, other])) == (101, other)
    assert find_chain(placed([one, other, make_mark(7, 6, one.id)])) == (100, one)


def test_a_mark_that_came_twice_is_one_mark() -> None:
    """The first of the two is where reading begins."""
    one = make_mark(7, 5, MarkId(7, 4))
    assert find_chain(placed([one, one])) == (100, one)


def counted(partition: int, tick: int, impressions: ImpressionCounts, clicks: ClickCounts) -> Mark:
    """A mark with these counts."""
    mark = make_mark(7, tick, MarkId(7, tick - 1), partition=partition)
    return replace(mark, counts=TickCounts(impressions, clicks))


def test_the_balance_sums_marks_and_takes_what_waits_from_the_last_of_each_partition() -> None:
    """Clicks that were read and have not expired are waiting; reads add up to outcomes and what waits."""
    balance = Balance()
    balance.add(counted(0, 0, ImpressionCounts(6, 3, 1, 1, 1, 1), ClickCounts(5, 1, 0, 1, 0, 0, 3)))
    balance.add(counted(1, 0, ImpressionCounts(1, 1, 0), ClickCounts(2, 0, 0, 0, 0, 0, 2)))
    balance.add(counted(0, 1, ImpressionCounts(), ClickCounts(1, 1, 1, 0, 1, 1, 0)))
    assert balance.problems == []
    assert balance.impressions.positives == 1
    assert balance.to_dict() == {
        "impressions": {
            "read": 7,
            "examples": 4,
            "duplicates": 1,
            "sampled_out": 1,
            "dead_lettered": 1,
            "late": 0,
            "waiting": 0,
        },
        "clicks": {
            "read": 8,
            "matched": 2,
            "duplicates": 1,
            "orphans": 1,
            "late": 1,
            "dead_lettered": 1,
            "waiting": 2,
        },
    }
    waiting = balance.to_dict(impressions_waiting=5)["impressions"]
    assert (waiting["read"], waiting["waiting"]) == (12, 5)


def test_the_balance_names_the_mark_that_does_not_add_up() -> None:
    """Every mark must balance by itself, so that errors cannot cancel out."""
    balance = Balance()
    balance.add(counted(3, 8, ImpressionCounts(2, 1), ClickCounts(1, waiting=1)))
    balance.add(counted(3, 9, ImpressionCounts(1, 2), ClickCounts(0, matched=1, orphans=1)))
    assert balance.problems == [
        "partition 3, ticks 8..8: impressions that came in: 2, accounted for: 1",
        "partition 3, ticks 9..9: impressions that came in: 1, accounted for: 2",
        "partition 3, ticks 9..9: clicks that came in: 1, accounted for: 2",
    ]


def test_the_balance_of_a_stretch_counts_the_clicks_that_waited_at_its_beginning() -> None:
    """Opened after a mark, the clicks pending there are part of what was read."""
    balance = Balance()
    balance.open(counted(0, 4, ImpressionCounts(9, 9), ClickCounts(5, waiting=5)))
    balance.add(counted(0, 5, ImpressionCounts(1, 1), ClickCounts(1, matched=2, orphans=1, waiting=3)))
    assert balance.problems == []
    assert balance.clicks == ClickCounts(6, matched=2, orphans=1, waiting=3)
    assert balance.impressions == ImpressionCounts(1, 1)
    with pytest.raises(ValueError, match="has begun already"):
        balance.open(counted(0, 5, ImpressionCounts(), ClickCounts()))


def test_clicks_that_waited_before_a_mark_that_begins_anew_are_given_up() -> None:
    """They are a term of their own, so that the sums still add up; the partition goes on with none waiting."""
    balance = Balance()
    balance.add(counted(0, 0, ImpressionCounts(2, 2), ClickCounts(5, matched=1, waiting=4)))
    balance.add(counted(1, 0, ImpressionCounts(), ClickCounts(3, waiting=3)))
    balance.add(replace(counted(0, 1, ImpressionCounts(), ClickCounts()), begins_anew=True))
    balance.add(counted(0, 2, ImpressionCounts(1, 1), ClickCounts(2, orphans=2)))
    assert balance.problems == []
    assert balance.given_up == 4
    clicks = balance.to_dict()["clicks"]
    assert (clicks["read"], clicks["given_up"], clicks["waiting"]) == (10, 4, 3)
    assert clicks["read"] == sum(count for name, count in clicks.items() if name != "read")
    assert "+  4 given-up" in "\n".join(balance_lines(balance.to_dict()))


def test_an_error_can_be_given_the_topic_it_came_from() -> None:
    """Core knows offset and partition; the role knows the topic."""
    rule = RuleR(partition=2)
    rule.take(0, b"x")
    assert rule.last_foreign is not None
    error = rule.last_foreign.at(topic="ctr.examples", partition=9)
    assert isinstance(error, ForeignRecord)
    assert str(error) == "topic ctr.examples, partition 2, offset 0: not a record of the training log"
    assert (error.topic, error.partition, error.offset) == ("ctr.examples", 2, 0)


def test_accepting_needs_no_more_than_the_records_in_the_log() -> None:
    """Reading any prefix of a log accepts the same ticks as reading all of it, cut at that place."""
    log = chain(7, 3)
    ends = np.flatnonzero([len(tick_records(7, 0, GENESIS)) - 1 == place % 3 for place in range(len(log))])
    for end in range(len(log) + 1):
        assert len(take_all(RuleR(), log[:end])) == int((ends < end).sum())
