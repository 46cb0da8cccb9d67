"""The rule of silent clicks: against the same rule written slowly, and for what an operator would call right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs.simulation.silence import Site, main, results
from stream_learner.adapters.kafka import End
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.roles.joiner.click_silence import (
    ARRIVALS,
    DAY_MS,
    FIRST_LIKELY,
    LEARN_MS,
    LIKELY,
    LONGEST,
    MEMORY,
    NEEDED,
    SLOT_MS,
    Arrived,
    Backlog,
    ClickSilence,
    NewRecords,
    SilenceWatch,
    Usual,
)
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.wording import moment_of
from tests.suite.share import share

START = 1_700_000_000_000
LEARNED = LEARN_MS // SLOT_MS + ARRIVALS


class Slow:
    """The rule as its words say it, computed from all that was ever seen."""

    def __init__(self) -> None:
        self.seen: list[Arrived] = []
        self.lulls: list[tuple[int, int]] = []
        """(day it ended, impressions)"""
        self.arrivals: list[tuple[int, int]] = []
        """(slot, impressions since the arrival before)"""
        self.held_at: int | None = None

    def note(self, came: Arrived) -> bool:
        """Whether the join is held."""
        self.seen.append(came)
        since = [i + 1 for i, c in enumerate(self.seen) if c.clicks]
        if came.clicks:
            lull = sum(c.impressions for c in self.seen[since[-2] if len(since) > 1 else 0 : -1])
            if self.held_at is not None:
                lull = min(lull, 2 * self.held_at)
            self.held_at = None
            self.lulls.append((came.at_ms // DAY_MS, lull))
            slot = came.at_ms // SLOT_MS
            if self.arrivals and self.arrivals[-1][0] == slot:
                self.arrivals[-1] = (slot, self.arrivals[-1][1] + lull + came.impressions)
            else:
                self.arrivals.append((slot, lull + came.impressions))
            return False
        present = self.seen[since[-1] if since else 0 :]
        impressions = sum(c.impressions for c in present)
        slots = len({c.at_ms // SLOT_MS for c in present if c.impressions})
        weights = [(1 - 1 / MEMORY) ** age for age in range(len(self.arrivals))][::-1]
        exposed = sum(w * n for w, (_, n) in zip(weights, self.arrivals, strict=True))
        expected = min(sum(weights) / exposed * impressions if exposed else 0.0, slots)
        today = came.at_ms // DAY_MS
        longest = max((n for day, n in self.lulls if day >= today - 1), default=0)
        learned = len(self.arrivals) >= ARRIVALS and came.at_ms - self.seen[0].at_ms >= LEARN_MS
        far = expected >= NEEDED and impressions >= LONGEST * longest
        if self.held_at is None and came.impressions and learned and far:
            self.held_at = impressions
        return self.held_at is not None


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 200), st.integers(1, 40)), max_size=6), st.data())
def test_silence_is_what_the_rule_says(runs: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Runs of clicks and lulls of any length, several looks in a slot, days that end."""
    rule, slow, at = ClickSilence(), Slow(), START
    for clicking, lull, shown in [(LEARNED, 0, 3), *runs]:
        step = data.draw(st.sampled_from([400, 1_000, 1_000, 3_000]))
        at += data.draw(st.sampled_from([0, 0, 0, DAY_MS]))
        for n in range(clicking + lull):
            at += step
            came = Arrived(at, shown * (n % 3), int(n < clicking))
            rule.note(came)
            assert rule.held == slow.note(came), n


def learned(silence: ClickSilence, every_s: int = 10, shown: int = 10) -> int:
    """Let it learn: an arrival every few seconds, `shown` impressions a second. Returns the time then."""
    seconds = max(LEARN_MS // 1000, ARRIVALS * every_s) + every_s + 1
    for second in range(seconds):
        silence.note(Arrived(START + 1000 * second, shown, int(second % every_s == 0)))
    return START + 1000 * seconds


def lull(silence: ClickSilence, at: int, seconds: int, shown: int = 10) -> int:
    """Impressions and no click for so long. Returns the time then."""
    for second in range(seconds):
        silence.note(Arrived(at + 1000 * second, shown, 0))
    return at + 1000 * seconds


def test_a_silence_is_noticed_after_thirty_clicks_that_did_not_come() -> None:
    """An arrival in ten seconds: after 300 s; a click ends it."""
    silence = ClickSilence()
    at = lull(silence, learned(silence), 290)
    assert not silence.held
    at = lull(silence, at, 20)
    assert silence.held
    assert math.isclose(silence.expected, 31, rel_tol=0.05)
    silence.note(Arrived(at, 10, 1))
    assert not silence.held


def test_nothing_is_silent_while_nothing_is_shown() -> None:
    """A night without impressions, and a day of them all in one second."""
    silence = ClickSilence()
    at = lull(silence, learned(silence), DAY_MS // 1000, shown=0)
    silence.note(Arrived(at, 1_000_000, 0))
    assert not silence.held


@pytest.mark.parametrize("every_s", [60, 400])
def test_before_it_has_learned_nothing_is_held(every_s: int) -> None:
    """A quarter of an hour, and fifty arrivals: whichever comes later."""
    silence = ClickSilence()
    for second in range(min(LEARN_MS // 1000, ARRIVALS * every_s) - 1):
        silence.note(Arrived(START + 1000 * second, 10, int(second % every_s == 0)))
        assert not silence.held
    silence = ClickSilence()
    for second in range(ARRIVALS):
        silence.note(Arrived(START + 1000 * second, 1, 1))
    lull(silence, START + 1000 * ARRIVALS, (LEARN_MS // 1000) - ARRIVALS - 1)
    assert not silence.held


def test_lulls_that_are_usual_are_no_silence() -> None:
    """A minute of clicks in ten: held once or twice, then never again."""
    silence, holds = ClickSilence(), 0
    for second in range(2 * DAY_MS // 1000):
        before = silence.held
        silence.note(Arrived(START + 1000 * second, 10, int(second % 600 < 60)))
        holds += silence.held > before
        assert second < DAY_MS // 1000 or not silence.held
    assert holds <= 2


def test_an_outage_hardly_changes_what_is_usual() -> None:
    """Six hours without clicks; the next silence is noticed within twice and a bit of the first time."""
    silence = ClickSilence()
    at = lull(silence, learned(silence), 6 * 3600)
    assert silence.held
    for second in range(900):
        silence.note(Arrived(at + 1000 * second, 10, int(second % 10 == 0)))
    at = lull(silence, at + 900_000, 1_700)
    assert not silence.held
    lull(silence, at, 300)
    assert silence.held


def test_a_restart_knows_what_was_usual_and_that_it_was_held() -> None:
    """The new process need not learn again; the next click ends the hold."""
    silence = ClickSilence()
    at = learned(silence)
    again = ClickSilence()
    again.recall(silence.usual, at)
    at = lull(again, at, 310)
    assert again.held
    third = ClickSilence()
    third.recall(again.usual, at)
    assert third.held
    third.note(Arrived(at, 5, 1))
    assert not third.held


def test_a_restart_in_a_lull_goes_on_with_it() -> None:
    """What was unlikely before is so at once; of an earlier version's text the lull is not known."""
    silence, again, older = ClickSilence(), ClickSilence(), ClickSilence()
    at = lull(silence, learned(silence), 200)
    assert silence.waits_since_ms is not None and not silence.held
    text = silence.usual.to_text()
    again.recall(Usual.from_text(text) or silence.usual, at - 5)
    older.recall(Usual.from_text(",".join(text.split(",")[:4])) or silence.usual, at - 5)
    for one in (silence, again, older):
        one.note(Arrived(at, 1, 0))
    assert (again.impressions, again.waits_since_ms) == (silence.impressions, at - 5)
    assert (older.impressions, older.waits_since_ms) == (1, None)


def test_what_is_known_here_counts_more_than_what_was_left() -> None:
    """Partitions that come later bring what another process knew, perhaps of long ago."""
    silence = ClickSilence()
    learned(silence)
    usual = silence.usual
    silence.recall(Usual(usual.arrivals, 0.5, 0, held=True), 0)
    assert silence.usual == usual


@given(st.integers(0, 2**40), st.floats(0, 1e6), st.integers(0, 2**40), st.booleans(), st.integers(0, 2**40))
def test_what_is_left_for_the_next_survives_as_text(
    arrivals: int, rate: float, longest: int, held: bool, lull: int
) -> None:
    """The text stands behind the hint, and the hint is read as before."""
    usual = Usual(arrivals, float(f"{rate:.6g}"), longest, held, lull, min(lull, longest))
    assert Usual.from_text(usual.to_text()) == usual
    assert Hint.from_text(f"12:a:3:{usual.to_text()}") == Hint.from_text("12:a:3")


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    """Metadata of another program is not taken for our own."""
    usual = Usual.from_text(text)
    assert usual is None or (usual.arrivals >= 0 and 0 <= usual.rate < math.inf)


@pytest.mark.parametrize(
    "text", ["", "3", "1,2,3", "1,nan,3,1", "-1,1,1,0", "1,inf,3,0", "1,1,-1,0", "1,1,1,0,-1,0", "1,1,1,0,1,1,1"]
)
def test_what_is_not_its_own_is_none(text: str) -> None:
    """A hint of an earlier version, with nothing behind it, is one case."""
    assert Usual.from_text(text) is None


Batches = list[tuple[bool, list[int]]]
"""Whether they are clicks, and the seconds at which they happened, batch by batch."""
BATCHES = st.lists(st.tuples(st.booleans(), st.lists(st.integers(-50, 400), min_size=1, max_size=30)), max_size=12)


def backlog_of(batches: Batches) -> Backlog:
    """A backlog that was read so."""
    backlog = Backlog()
    for clicks, seconds in batches:
        backlog.note(np.array(seconds) * SLOT_MS, clicks=clicks)
    return backlog


def counted(batches: Batches, log_time_s: int) -> list[Arrived]:
    """What a backlog should tell: events by their seconds, without those whose clocks seem to be ahead."""
    clicks = [second for is_click, seconds in batches if is_click for second in seconds]
    shown = [second for is_click, seconds in batches if not is_click for second in seconds if second <= log_time_s]
    last = sorted(clicks[-3:])[-2:]
    clicks = [second for second in clicks if second <= last[0]]
    seconds = {*range(-50, 401)} - {second for second in range(-50, 401) if clicks and second < min(clicks)}
    found = [Arrived(second * SLOT_MS, shown.count(second), clicks.count(second)) for second in sorted(seconds)]
    return [one for one in found if one.impressions or one.clicks]


@given(BATCHES, st.integers(-60, 410))
def test_a_backlog_is_counted_by_the_seconds_of_its_events(batches: Batches, log_time_s: int) -> None:
    """However it is read: in batches, clicks first or last, in disorder."""
    found = backlog_of(batches).until(log_time_s * SLOT_MS).arrived(7)
    assert [one for one in found if one.impressions or one.clicks] == [
        one._replace(at_ms=one.at_ms + 7) for one in counted(batches, log_time_s)
    ]


@given(BATCHES, st.integers(1, 5), st.integers(20, 40))
def test_of_a_long_backlog_only_what_the_rule_asks_is_kept(batches: Batches, enough: int, most: int) -> None:
    """Never more slots than allowed. Read in order, in each second clicks first, the last clicks, and the impressions
    after each, are those of all.
    """
    moments = sorted(((second, clicks) for clicks, seconds in batches for second in seconds), key=_clicks_first)
    whole, short = Backlog(), Backlog()
    short.ENOUGH, short.MOST_SLOTS = enough, most
    for second, clicks in moments:
        for one in (whole, short):
            one.note(np.array([second]) * SLOT_MS, clicks=clicks)
        assert len(short.arrived(0)) <= most
    assert last_clicks(short, enough) == last_clicks(whole, enough)


def _clicks_first(moment: tuple[int, bool]) -> tuple[int, bool]:
    return moment[0], not moment[1]


def last_clicks(backlog: Backlog, count: int) -> list[tuple[int, int, int]]:
    """The last slots with clicks: when, how many, and the impressions from then to the next."""
    found = backlog.arrived(0)
    at = [number for number, came in enumerate(found) if came.clicks]
    ends = [*at[1:], len(found)][: len(at)]
    sums = [
        (found[begin].at_ms, found[begin].clicks, sum(came.impressions for came in found[begin:end]))
        for begin, end in zip(at, ends, strict=True)
    ]
    return sums[-count:]


def test_of_a_long_backlog_the_beginning_is_forgotten() -> None:
    """A day of clicks each second is as good as its last minutes."""
    backlog, seconds = Backlog(), np.arange(86_400)
    for part in np.split(seconds, 100):
        backlog.note(part * SLOT_MS)
        backlog.note(part * SLOT_MS, clicks=True)
    found = backlog.arrived(0)
    assert Backlog.ENOUGH <= len(found) <= Backlog.MOST_SLOTS
    assert found[-Backlog.ENOUGH :] == [Arrived(second * SLOT_MS, 1, 1) for second in range(86_000, 86_400)]


def test_impressions_that_are_read_before_their_clicks_take_nothing_from_them() -> None:
    """A day of impressions, then its clicks, which end half a minute before it does."""
    backlog, silence = Backlog(), ClickSilence()
    backlog.note(np.arange(86_400) * SLOT_MS)
    backlog.note(np.arange(0, 86_370, 2) * SLOT_MS, clicks=True)
    silence.note_backlog(backlog.until(86_400 * SLOT_MS).arrived(0))
    assert silence.waits_since_ms is not None and 86_370 <= silence.waits_since_ms / SLOT_MS < 86_390


def test_a_silence_of_days_is_found_where_it_begins() -> None:
    """Ten minutes of clicks, and then two days without."""
    backlog, silence = Backlog(), ClickSilence()
    backlog.note(np.arange(0, 600, 5) * SLOT_MS, clicks=True)
    for part in np.split(np.arange(172_800), 100):
        backlog.note(part * SLOT_MS)
    found = backlog.until(172_800 * SLOT_MS).arrived(0)
    silence.note_backlog(found, is_all=True)
    assert silence.waits_since_ms is not None and 600 <= silence.waits_since_ms / SLOT_MS < 660
    assert silence.held and sum(came.impressions for came in found) == 172_800


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=120), st.integers(0, 119))
def test_a_backlog_counts_as_if_it_had_been_watched(seen: list[tuple[int, bool]], began: int) -> None:
    """A process that begins in the middle knows what one knows that has been there from the beginning."""
    came = [Arrived(START + 1000 * second, shown, int(clicked)) for second, (shown, clicked) in enumerate(seen)]
    watched, begun = ClickSilence(), ClickSilence()
    for one in came:
        watched.note(one)
    begun.note_backlog(came[:began])
    for one in came[began:]:
        begun.note(one)
    assert begun.usual == watched.usual
    assert (begun.waits_since_ms, begun.since_ms) == (watched.waits_since_ms, watched.since_ms)


def test_what_was_waited_for_before_a_restart_still_is() -> None:
    """The waiting impressions are read again, and no click: the lull is no shorter, and not counted twice."""
    silence, again = ClickSilence(), ClickSilence()
    at = lull(silence, learned(silence), 200)
    again.recall(silence.usual, at)
    again.note_backlog([Arrived(at - 1000 * second, 10, 0) for second in range(50, 0, -1)])
    assert again.usual == silence.usual
    assert again.waits_since_ms is not None and again.waits_since_ms <= at - 50_000
    again.note_backlog([])
    assert again.usual == silence.usual


def test_a_topic_is_judged_once_all_its_partitions_are_read() -> None:
    """Two partitions of 30 clicks and a short lull wait together; one that is given away is not waited for."""
    watch = SilenceWatch("i", "c", get_logger("joiner"))
    for partition in range(3):
        watch.recall(partition, "", "", START)
        watch.note_read(partition, np.arange(90) * 10 * SLOT_MS + START - 1_000_000)
        clicks = np.arange(30) * 30 * SLOT_MS + START - 1_065_000 + 7_000 * partition
        watch.note_read(partition, clicks, clicks=True)
    for partition in range(2):
        watch.end_backlog(partition, START, START)
    assert watch.waits_since(0) is None
    watch.forget(2)
    watch.end_backlog(0, START, START)
    assert watch.waits_since(0) is not None and not watch.is_held(0)


def test_a_joiner_that_ends_by_itself_says_it_and_waits_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A backfill must come to its end."""
    watch = SilenceWatch("i", "c", get_logger("joiner"), waits=False)
    watch.recall(0, "", "", START)
    seconds = np.arange(3600) * SLOT_MS + START
    watch.note_read(0, seconds)
    watch.note_read(0, seconds[:1800:10], clicks=True)
    watch.end_backlog(0, START, int(seconds[-1]))
    watch.look(ends(START, (3600, 180)))
    watch.look(ends(START + 1000, (3600, 180)))
    assert watch.waits_since(0) is None and not watch.is_held(0)
    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["event"] for line in said] == ["clicks_silent"]
    assert "learned as not clicked" in said[0]["note"] and said[0]["clicks_expected"] > NEEDED


def ends(at_ms: int, *pairs: tuple[int, int], clicks_at_ms: int | None = None) -> dict[tuple[str, int], End]:
    """The ends of impressions and clicks of partitions 0 and on."""
    found = {}
    for partition, (impressions, clicks) in enumerate(pairs):
        found["i", partition] = End(at_ms, impressions)
        found["c", partition] = End(at_ms if clicks_at_ms is None else clicks_at_ms, clicks)
    return found


def test_arrivals_are_counted_for_each_partition_from_the_second_look_on() -> None:
    """A partition that is given later begins with what it has; the same answer is not counted twice."""
    arrivals = NewRecords("i", "c")
    assert arrivals.look({}) == {}
    assert arrivals.look(ends(1, (100, 50))) == {}
    second = ends(2, (110, 51), (700, 70))
    assert arrivals.look(second) == {0: Arrived(2, 10, 1)}
    assert arrivals.look(second) == {}
    assert arrivals.look(ends(3, (111, 51), (705, 72))) == {0: Arrived(3, 1, 0), 1: Arrived(3, 5, 2)}
    assert arrivals.look(ends(4, (115, 51))) == {0: Arrived(4, 4, 0)}


def test_impressions_do_not_count_while_nobody_knows_of_the_clicks() -> None:
    """The broker of a click partition does not answer for a while: what came meanwhile is left out."""
    arrivals = NewRecords("i", "c")
    arrivals.look(ends(1, (0, 0)))
    assert arrivals.look(ends(2, (50, 0), clicks_at_ms=1)) == {0: Arrived(2, 0, 0)}
    assert arrivals.look(ends(3, (90, 4), clicks_at_ms=3)) == {0: Arrived(3, 0, 4)}
    assert arrivals.look(ends(4, (95, 4))) == {0: Arrived(4, 5, 0)}


def test_a_log_that_got_shorter_has_no_arrivals() -> None:
    """A topic that was made anew, or a leader that lacks records."""
    arrivals = NewRecords("i", "c")
    arrivals.look(ends(1, (100, 100)))
    assert arrivals.look(ends(2, (3, 0))) == {0: Arrived(2, 0, 0)}
    assert arrivals.look(ends(3, (4, 1))) == {0: Arrived(3, 1, 1)}


def test_it_is_said_once_when_clicks_are_silent_and_when_they_come_again(caplog: pytest.LogCaptureFixture) -> None:
    """With the topic, the moment, how many were expected, and what to do."""
    caplog.set_level("INFO")
    watch = SilenceWatch("i", "c", get_logger("joiner"))
    shown = clicked = 0
    for second in range(LEARN_MS // 1000 + 200):
        shown, clicked = shown + 10, clicked + (second <= LEARN_MS // 1000)
        watch.look(ends(START + 1000 * second, (shown, clicked)))
    assert watch.is_held(0)
    watch.look(ends(START + 1000 * (LEARN_MS // 1000 + 200), (shown, clicked + 1)))
    assert not watch.is_held(0) and watch.waits_since(0) is None
    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["event"] for line in said] == ["clicks_silent", "clicks_again"]
    assert said[0]["topic"] == "c" and said[0]["since"] == "2023-11-14T22:28:20Z"
    assert NEEDED <= said[0]["clicks_expected"] < NEEDED + 2 and "join.hold_on_silence" in said[0]["note"]


def test_a_joiner_that_begins_in_a_silence_does_not_say_when_it_began(caplog: pytest.LogCaptureFixture) -> None:
    """It says that it was before its own first look, until a click comes."""
    before, watch = ClickSilence(), SilenceWatch("i", "c", get_logger("joiner"))
    at = lull(before, learned(before), 310)
    watch.recall(0, before.usual.to_text(), "", at)
    for second in range(2):
        watch.look(ends(at + 1000 * second, (second, 0)))
    watch.look(ends(at + 2000, (2, 1)))
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    moment = moment_of(at + 1000)  # the first look that counts
    assert [(line["event"], line.get("since_before")) for line in lines] == [
        ("clicks_silent", moment),
        ("clicks_again", moment),
    ]
    assert "since" not in lines[0]


def test_records_that_cannot_be_used_are_no_clicks() -> None:
    """A producer of clicks breaks: what it sends comes, and is dead. The next good one ends the silence."""
    watch, usable = SilenceWatch("i", "c", get_logger("joiner")), np.ones(1, bool)
    for second in range(400):
        watch.look(ends(START + 1000 * second, (10 * second, second)))
        watch.note_usable(0, usable if second < 60 else ~usable)
    assert watch.waits_since(0) is not None
    watch.note_usable(0, usable)
    watch.look(ends(START + 400_000, (4_000, 400)))
    assert watch.waits_since(0) is None
    for second in range(401, 500):
        watch.look(ends(START + 1000 * second, (10 * second, second)))
        watch.note_usable(0, usable)
        assert watch.waits_since(0) is None


def test_clicks_of_the_backlog_do_not_end_a_silence_of_dead_ones() -> None:
    """A joiner comes back while only dead records come: the good ones that it reads again are old."""
    watch, good = SilenceWatch("i", "c", get_logger("joiner")), np.arange(60) * SLOT_MS + START - 120_000
    watch.recall(0, "", "", START)
    watch.note_read(0, np.arange(1200) * 100 + START - 120_000)
    watch.note_read(0, good, clicks=True)
    watch.note_usable(0, np.arange(120) < 60)
    watch.end_backlog(0, START, START)
    for second in range(5):
        watch.look(ends(START + 1000 * second, (1200 + 10 * second, 120 + second)))
        watch.note_usable(0, np.zeros(1, bool))
        assert watch.waits_since(0) is not None


def test_a_silence_of_the_history_is_told_by_the_times_of_its_events(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the topics ended an hour ago."""
    watch = SilenceWatch("i", "c", get_logger("joiner"), waits=False)
    watch.recall(0, "", "", START + 3_600_000)
    seconds = np.arange(3600) * SLOT_MS + START
    watch.note_read(0, seconds)
    watch.note_read(0, seconds[:1800:10], clicks=True)
    watch.end_backlog(0, START + 7_200_000, int(seconds[-1]))
    for look in range(2):
        watch.look(ends(START + 7_200_000 + look, (3600, 180)))
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["since"] for line in lines] == [moment_of(START + 1_780_000)]  # the second latest of three


def test_one_dead_partition_of_sixteen_is_held_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Fifteen go on; the log names the one, and a click there ends it."""
    caplog.set_level("INFO")
    watch = SilenceWatch("i", "c", get_logger("joiner"))
    for second in range(LEARN_MS // 1000 + 600):
        clicks = [second if p or second <= LEARN_MS // 1000 else LEARN_MS // 1000 for p in range(16)]
        watch.look(ends(START + 1000 * second, *((10 * second, clicked) for clicked in clicks)))
    assert [partition for partition in range(16) if watch.is_held(partition)] == [0]
    assert watch.waits_since(0) is not None and watch.waits_since(1) is None
    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [(line["event"], line["partition"]) for line in said] == [("clicks_silent", 0)]


def test_fifty_clicks_are_enough_to_wait_for_the_next() -> None:
    """No warm-up: after 50 clicks among 500 impressions, 90 impressions without one wait, and a click ends it."""
    silence = ClickSilence()
    for second in range(50):
        silence.note(Arrived(START + 1000 * second, 10, 1))
    lull = next(n for n in range(1, 100) if _waits_after(silence, n))
    assert 6 <= lull <= 9 and not silence.held
    silence.note(Arrived(START + 200_000, 10, 1))
    assert silence.waits_since_ms is None


def _waits_after(silence: ClickSilence, seconds: int) -> bool:
    silence.note(Arrived(START + 50_000 + 1000 * seconds, 10, 0))
    return silence.waits_since_ms is not None


@pytest.mark.parametrize(
    ("arrivals", "likely"), [(1, FIRST_LIKELY), (3, FIRST_LIKELY), (9, FIRST_LIKELY), (10, LIKELY), (200, LIKELY)]
)
def test_a_lull_that_chance_explains_is_not_waited_for(arrivals: int, likely: float) -> None:
    """The chance of so long a lull, by the arrivals seen before, summed up one impression at a time."""
    silence = ClickSilence()
    for number in range(arrivals):
        silence.note(Arrived(START + 1000 * number, 100, 1))
    lull = 0
    while silence.waits_since_ms is None:
        lull += 1
        silence.note(Arrived(START + 1000 * (arrivals + lull), 1, 0))
    counted = sum((1 - 1 / MEMORY) ** number for number in range(arrivals))  # older ones count less
    exposed = counted / silence.usual.rate
    before, after = ((1 + n / exposed) ** -counted for n in (lull - 1, lull))
    assert after < likely * (1 + 1e-12) and before >= likely


@share(2, nightly=7)
def test_no_generated_stream_of_days_is_held_for_long(examples: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A part of `python -m proofs.simulation.silence`: of two sites, eight streams each; silence is always noticed."""
    sites = (Site(1, 0.02), Site(20, 0.02))
    found = list(results(examples, 3, sites))
    assert sum(result.holds for result in found) <= 2
    assert sum(result.held_s for result in found) < 600
    assert all(result.noticed_s is not None for result in found)
    plain = [result for result in found if result.stream == "Poisson"]
    assert all(result.missed < 100 for result in plain)
    assert all(0 < result.mean_wait_s < 60 for result in plain)
    assert main(["--days", "1"], sites=sites[:1]) == 0
    assert capsys.readouterr().out.splitlines()[-1].count("8 days")
