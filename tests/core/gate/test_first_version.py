"""What a first version needs: shares of matched clicks against a naive join, and what is missing in which order."""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from stream_learner.core.gate.first_version import SETTLED, FirstVersion, Matches, Needed, Unearned
from stream_learner.core.gate.publication import Sums
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, TickCounts

TICK_MS = 1_000
WINDOW, SKEW, LATENESS = 60, 5, 600
"""In ticks, as all times here."""
NEEDED = Needed(1_000, 20, 0.5)


class Site:
    """A naive join of one partition: impressions and clicks by id, whole ticks, and a mark for each.

    fits: the share of clicks that lie where their impressions are. rate: impressions a tick. clicked: the share of
    them. repeats: how often each click is sent.
    """

    def __init__(
        self, *, fits: float, rate: int = 5, clicked: float = 0.2, repeats: int = 1, partition: int = 0
    ) -> None:
        self.rng = random.Random(7)
        self.fits, self.rate, self.clicked, self.repeats, self.partition = fits, rate, clicked, repeats, partition
        self.impressions: dict[int, set[int]] = defaultdict(set)
        """The impressions of each tick; a number of its own for each."""
        self.clicks: dict[int, list[tuple[int | None, bool]]] = defaultdict(list)
        """The clicks of each tick: the impression (None for one that is not here), and whether it is a repeat."""
        self.clicked_ones: set[int] = set()

    def run(self, ticks: int) -> Iterator[Mark]:
        for now in range(ticks):
            for number in range(now * self.rate, (now + 1) * self.rate):
                self.impressions[now].add(number)
                if self.rng.random() < self.clicked:
                    of = number if self.rng.random() < self.fits else None
                    at = now + self.rng.randrange(1, 20)
                    self.clicks[at] += [(of, repeat > 0) for repeat in range(self.repeats)]
                    self.clicked_ones |= set() if of is None else {of}
            yield self._mark(now)

    def _mark(self, now: int) -> Mark:
        emitted = self.impressions[now - WINDOW]
        gone = self.clicks[now - WINDOW - SKEW - LATENESS]
        counts = ClickCounts(
            read=len(self.clicks[now]),
            matched=sum(of is not None and not repeat for of, repeat in gone),
            duplicates=sum(repeat for _, repeat in gone),
            orphans=sum(of is None and not repeat for of, repeat in gone),
        )
        positives = len(emitted & self.clicked_ones)
        impressions = ImpressionCounts(read=len(emitted), examples=len(emitted), positives=positives)
        return mark(now, impressions, counts, self.partition)

    def share(self, now: int) -> float:
        """The share of the clicks whose windows are over that lie with their impression."""
        over = [of for at in range(now - WINDOW - SKEW + 1) for of, _ in self.clicks[at]]
        return sum(of is not None for of in over) / len(over)


def mark(tick: int, impressions: ImpressionCounts, clicks: ClickCounts, partition: int = 0, **more: Any) -> Mark:
    return Mark(
        partition=partition, attempt=1, first_tick=tick, last_tick=tick, next_impression=0, first_click=0,
        click_cursor=0, records=0, pred_attempt=1, pred_tick=tick - 1, counts=TickCounts(impressions, clicks), **more,
    )  # fmt: skip


def summary(examples: int, positives: int, loss: float = 0.3) -> dict[str, Any]:
    """As `Progress.summary` has it. loss: of each example."""
    rate = positives / examples if examples else None
    return {
        "examples": examples,
        "positives": positives,
        "importance": float(examples),
        "label_rate": rate,
        "prediction_rate": rate,
        "average_loss": loss,
        "log_loss": loss,
    }


def judged(site: Site, ticks: int) -> FirstVersion:
    first = FirstVersion(NEEDED, (WINDOW + SKEW) * TICK_MS, TICK_MS)
    for one in site.run(ticks):
        first.count(one)
    return first


def bound(found: Unearned | None) -> str:
    return "" if found is None else found.bound


@pytest.mark.parametrize("fits", [0.0, 1 / 6, 0.5, 0.9, 1.0])
def test_the_share_is_known_as_soon_as_windows_are_over(fits: float) -> None:
    """Long before `lateness`: by positives, at most by the clicks of the last window more than are settled."""
    site = Site(fits=fits)
    matches = Matches((WINDOW + SKEW) * TICK_MS, TICK_MS)
    for now, one in enumerate(site.run(WINDOW + 200)):
        matches.count(one)
        if matches.clicks < SETTLED:
            assert matches.share is None
        elif now > WINDOW + 140 and now % 10 == 0:
            assert matches.share == pytest.approx(site.share(now), abs=0.12)
    assert matches.share is not None


def test_clicks_that_come_twice_are_known_by_their_outcomes() -> None:
    """Repeats look like clicks without an impression until they are final."""
    site, matches = Site(fits=0.9, repeats=3), Matches((WINDOW + SKEW) * TICK_MS, TICK_MS)
    marks = site.run(LATENESS + 2 * WINDOW + 200)
    for one in (next(marks) for _ in range(WINDOW + 200)):
        matches.count(one)
    assert matches.share == pytest.approx(0.3, abs=0.06)
    for one in marks:
        matches.count(one)
    assert matches.share == pytest.approx(0.9, abs=0.05)


def test_the_share_is_that_of_the_last_clicks() -> None:
    """Topics that fitted for an hour and fit no more."""
    site = Site(fits=1.0)
    first = FirstVersion(NEEDED, (WINDOW + SKEW) * TICK_MS, TICK_MS)
    marks = site.run(9_000)
    for one in (next(marks) for _ in range(3_000)):
        first.count(one)
    assert first.missing(summary(15_000, 3_000), 3, ends=False) is None
    first.published()
    assert first.lost() is None
    site.fits = 0.1
    said = [bound(first.lost()) for one in marks if not first.count(one)]  # type: ignore[func-returns-value]
    assert said[0] == "" and said[-1] == "matched"
    first.accept()
    assert first.lost() is None


def test_what_is_wrong_is_said_before_what_is_too_little() -> None:
    """Nine hundred examples and a hundred clicks that are all elsewhere: more examples would not help."""
    first = judged(Site(fits=0.0), WINDOW + LATENESS + 200)
    found = first.missing(summary(900, 0), 3, ends=False)
    assert found is not None and found.is_wrong
    assert found.message.startswith("0.0% of the last") and found.message.endswith("50% are needed")
    assert bound(first.missing(summary(900, 0), 3, ends=True)) == "matched"


@pytest.mark.parametrize("fits", [0.0, 1.0])
def test_clicks_that_are_read_far_ahead_are_waited_for(fits: float) -> None:
    """Of topics of hours all clicks are read at once: that few have matched so far is wrong only once they are final,
    or where no more will come."""
    site = Site(fits=fits)
    marks = list(site.run(WINDOW + LATENESS + 2_000))
    ahead = sum(one.counts.clicks.read for one in marks)
    first = FirstVersion(NEEDED, (WINDOW + SKEW) * TICK_MS, TICK_MS)
    said = []
    for now, one in enumerate(marks):
        read = one.counts.clicks._replace(read=0 if now else ahead)
        first.count(replace(one, counts=TickCounts(one.counts.impressions, read)))
        found = first.missing(summary(2_000, 400), 3, ends=False)
        said.append((bound(found), found is not None and found.is_wrong))
        if said[-1] == ("matched", False):
            assert bound(first.missing(summary(2_000, 400), 3, ends=True)) == "matched"
    assert set(said[: WINDOW + LATENESS]) == {("clicks", False), ("matched", False)}
    assert said[-1] == (("", False) if fits else ("matched", True))
    assert ("matched", True) not in said or not fits


@pytest.mark.parametrize(
    ("examples", "positives", "missing"), [(0, 0, "examples"), (999, 200, "examples"), (5_000, 19, "positives")]
)
def test_too_little_is_waited_for_unless_there_is_no_more(examples: int, positives: int, missing: str) -> None:
    """A backfill that ends publishes what it has."""
    first = judged(Site(fits=1.0), WINDOW + 200)
    found = first.missing(summary(examples, positives), 3, ends=False)
    assert found is not None and (found.bound, found.is_wrong) == (missing, False)
    assert first.missing(summary(examples, positives), 3, ends=True) is None


def test_windows_that_wait_are_named_with_what_is_too_little() -> None:
    """Clicks stop before there is enough: ticks go on, stream time does not. It is said after a window, until windows
    close again; so it is where none has closed at all, and not where nothing waits."""
    first = judged(Site(fits=1.0), WINDOW + 50)

    def said() -> str:
        found = first.missing(summary(100, 20), 3, ends=False)
        assert found is not None and found.bound == "examples" and not found.is_wrong
        return found.message

    begun, last = said(), WINDOW + 49
    assert begun == "it has learned 100 of 1,000 examples"
    none = ImpressionCounts(), ClickCounts()
    for tick in range(last + 1, last + 1 + WINDOW + SKEW):
        first.count(mark(tick, *none, stream_tick=last))
        assert said() == begun
    first.count(mark(last + WINDOW + SKEW + 1, *none, stream_tick=last))
    assert said().startswith(f"{begun}; no window that ends after 1970-01-01T00:01:50Z is closed yet: clicks")
    first.count(mark(last + WINDOW + SKEW + 2, *none))
    assert said() == begun
    for tick in range(1_000, 1_002 + WINDOW + SKEW):
        assert said() == begun
        first.count(mark(tick, *none, partition=1, stream_tick=-1))
    assert said().startswith(f"{begun}; no window is closed yet: clicks")


def test_clicks_must_have_had_time_to_match() -> None:
    """Examples and positives enough, and no click whose window is over: what they say of the topics is not known."""
    first = judged(Site(fits=1.0), WINDOW + 2)
    assert bound(first.missing(summary(2_000, 100), 3, ends=False)) == "clicks"


def test_predictions_that_a_constant_beats_are_not_published() -> None:
    """By the last half to three quarters: what was learned at first does not count for ever."""
    first = judged(Site(fits=1.0), WINDOW + 200)
    bad = summary(1_000, 200, loss=1.0)
    assert bound(first.missing(bad, 3, ends=False)) == "entropy"
    first.note(1_000, Sums.of(bad))
    better = summary(2_000, 400, loss=0.72)
    """0.44 in the last thousand; 0.5 is the entropy of one in five."""
    assert bound(first.missing(better, 3, ends=False)) == "entropy"
    first.note(2_000, Sums.of(better))
    assert first.missing(summary(3_000, 600, loss=0.62), 3, ends=False) is None


def ticks_of(first: FirstVersion, labels: list[float], each: int = 100) -> None:
    """Examples in the order of time, so many a tick."""
    for at in range(0, len(labels), each):
        some = np.array(labels[at : at + each])
        n = len(some)
        none, empty = np.zeros(n, np.uint64), np.zeros(0)
        first.learn(
            [ExampleRecord(0, at, 1, 0, np.arange(at, at + n), none, some, np.ones(n), none[:0],
                           empty.astype(np.uint16), none.astype(np.uint16), empty.astype(np.uint32), empty)]
        )  # fmt: skip


def rates(*parts: tuple[int, float]) -> list[float]:
    """Labels of parts, each of so many examples with a rate."""
    draw = random.Random(3)
    return [float(draw.random() < rate) for count, rate in parts for _ in range(count)]


@pytest.mark.parametrize(
    ("labels", "is_wrong"),
    [
        (rates((4_200, 0.0), (1_800, 0.2)), True),
        (rates((6_000, 0.2)), False),
        (rates((20_000, 0.001)), False),
        (rates((900, 0.001), (5_000, 0.004)), False),
        (rates((200, 0.0), (20_000, 0.2)), False),
    ],
)
@pytest.mark.parametrize("each", [100, 50_000])
def test_a_beginning_without_clicks_is_not_learned_in_silence(labels: list[float], is_wrong: bool, each: int) -> None:
    """4,200 of 6,000 impressions are older than the first click: held, though all else is well. Rare clicks, and a
    beginning that is a small part of all, are no such beginning; nor does it matter how ticks are cut."""
    first = judged(Site(fits=1.0), WINDOW + 200)
    ticks_of(first, labels, each)
    found = first.missing(summary(len(labels), len(labels) // 5), 3, ends=False)
    assert bound(found) == ("clicks_begin_late" if is_wrong else "")
    if found is not None:
        assert found.is_wrong and "join.start" in found.message and re.search("the first 4,2.. of 6,000", found.message)


@pytest.mark.parametrize(("repeats", "is_wrong"), [(0, False), (1, False), (4, True)])
def test_ids_that_come_again_hold_a_first_version(repeats: int, is_wrong: bool) -> None:
    """So many of the impressions of a tick, for four new ones, have the id of an earlier one."""
    first = judged(Site(fits=1.0), WINDOW + 200)
    for tick in range(500):
        counts = ImpressionCounts(read=4 + repeats, examples=4, positives=1, duplicates=repeats)
        first.count(mark(WINDOW + 200 + tick, counts, ClickCounts()))
    found = first.missing(summary(5_000, 1_000), 3, ends=False)
    assert bound(found) == ("unique" if is_wrong else "")
    assert found is None or ("not unique" in found.message and found.is_wrong)


def test_a_model_without_a_feature_is_not_published() -> None:
    """Not as soon as nothing is learned yet: then it waits."""
    first = judged(Site(fits=1.0), WINDOW + 200)
    assert bound(first.missing(summary(100, 20), 0, ends=False)) == "examples"
    found = first.missing(summary(2_000, 400), 0, ends=False)
    assert found is not None and (found.bound, found.is_wrong) == ("features", True)
    assert bound(first.missing(summary(100, 20), 0, ends=True)) == "features"


def test_an_entropy_that_chance_explains_asks_for_more() -> None:
    """1.01 of a thousand predictions is chance: it waits, and is published after ten times as many. 1.2 is not."""
    entropy = -(0.2 * math.log(0.2) + 0.8 * math.log(0.8))
    first = judged(Site(fits=1.0), WINDOW + 200)
    found = first.missing(summary(1_000, 200, loss=1.01 * entropy), 3, ends=False)
    assert found is not None and (found.bound, found.is_wrong) == ("entropy", False) and "10,000" in found.message
    assert first.missing(summary(1_000, 200, loss=1.01 * entropy), 3, ends=True) is None
    assert first.missing(summary(10_000, 2_000, loss=1.001 * entropy), 3, ends=False) is None
    for examples in (1_000, 10_000):
        found = first.missing(summary(examples, examples // 5, loss=1.2 * entropy), 3, ends=False)
        assert found is not None and found.is_wrong


def test_nothing_is_asked_where_none_is_needed() -> None:
    first = FirstVersion(Needed(0, 20, 0.5), (WINDOW + SKEW) * TICK_MS, TICK_MS)
    for one in Site(fits=0.0).run(WINDOW + 200):
        first.count(one)
    assert first.missing(summary(1, 0), 3, ends=False) is None
    assert first.lost() is None


def test_a_state_goes_on() -> None:
    """Through JSON, in the middle of a window, for two partitions; then a log that begins anew in one of them."""
    sites = [Site(fits=0.8, partition=0), Site(fits=0.4, partition=3)]
    first = FirstVersion(NEEDED, (WINDOW + SKEW) * TICK_MS, TICK_MS)
    runs = [site.run(400) for site in sites]
    for _ in range(200):
        for marks in runs:
            first.count(next(marks))
    ticks_of(first, rates((50, 0.0), (50, 0.2)))
    first.published()
    again = FirstVersion(NEEDED, (WINDOW + SKEW) * TICK_MS, TICK_MS)
    again.restore(orjson.loads(orjson.dumps(first.state())))
    assert again.state() == first.state()
    for marks in runs:
        for one in marks:
            first.count(one)
            again.count(one)
    assert again.state() == first.state()
    for damage in ({}, {**first.state(), "seen": []}, {**first.state(), "matches": {"counts": [1], "read": []}}):
        with pytest.raises((KeyError, ValueError, TypeError)):
            again.restore(damage)
