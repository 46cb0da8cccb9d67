"""Laws of the oracle's join in random worlds: its definition, its replay of marks and its join by log time agree."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.core.join.join_worlds import World, closed_by_log, random_world, records
from tests.oracles.events import Click
from tests.oracles.join import (
    Example,
    first_tick_remembered,
    in_span,
    label_by_definition,
    log_times,
    marks_by_log_time,
)
from tests.oracles.loop import (
    Joined,
    Mark,
    Settings,
    join_by_log_time,
    read_click,
    read_impression,
    replay,
)

WORLDS = 300


@cache
def made_worlds() -> list[World]:
    """The random worlds that all laws are tried on."""
    return [random_world(random.Random(seed)) for seed in range(WORLDS)]


def worlds(name: str) -> Iterator[tuple[random.Random, World]]:
    """Random worlds, each with a generator for what the test does with it."""
    return ((random.Random(f"{name} {seed}"), world) for seed, world in enumerate(made_worlds()))


def total(joined: list[Joined]) -> Joined:
    """The sums over all marks; `waiting` is that of the last mark."""
    impressions = sum((j.impressions for j in joined), Counter[str]())
    clicks = sum((j.clicks for j in joined), Counter[str]())
    clicks["waiting"] = joined[-1].clicks["waiting"] if joined else 0
    gone = {offset: outcome for j in joined for offset, outcome in j.outcome_of_click.items()}
    return Joined([e for j in joined for e in j.examples], impressions, clicks, gone, Counter())


def any_marks(rng: random.Random, world: World) -> list[Mark]:
    """Marks as a clock might have made them: any positions that do not go back, until all records are taken.

    In half of the worlds tick and stream time are one, in the others windows wait while ticks go on, and close many at
    a time. The first marks may be of version 2.
    """
    s = world.settings
    shown, clicked = ([a.offset for a in side] for side in (world.impressions, world.clicks))
    ends = [[*side, side[-1] + 1] if side else [0] for side in (shown, clicked)]
    times = [a.time_ms for a in world.impressions + world.clicks if a.time_ms is not None]
    first = max(0, min(times, default=0) // s["tick_ms"] - 20)
    marks = [Mark(0, first - 1, ends[0][0], ends[1][0])] if first else []
    version_2, one, stream, i, c = rng.choice([0, 0, 5, 20]), rng.random() < 0.5, first - 1, 0, 0
    while i < len(shown) or c < len(clicked):
        last = first + rng.choice([0, 0, 0, 1, 3, 10])
        rules = 2 if len(marks) < version_2 else 3
        upto = last if one or rules == 2 else min(last, stream + rng.choice([0, 0, 1, 1, 3, 20, 200]))
        if upto > stream:
            i = min(len(shown), i + rng.choice([0, 1, 1, 2, 4, 40])) if first == last or rules == 3 else i
            c = min(len(clicked), c + rng.choice([0, 0, 1, 2, 5, 40]))
        marks.append(Mark(first, last, ends[0][i], ends[1][c], None if one else upto, rules=rules))
        first, stream = last + 1, upto
    return marks


def assert_labels_are_true(world: World, examples: list[Example], cursor_of_tick: dict[int, int]) -> None:
    """Clicks not more than lateness ahead of log time all count; others only in their impression's span."""
    s, clicks = world.settings, world.oracle_clicks()
    impression_at = {imp.offset: imp for imp in world.oracle_impressions()}
    known = log_times([c.time_ms for c in clicks], s["agree"])
    sure = [
        c
        for c, log_time in zip(clicks, known, strict=True)
        if c.time_ms is not None and log_time is not None and c.time_ms <= log_time + s["lateness_ms"]
    ]
    for e in examples:
        imp, cursor = impression_at[e.offset], cursor_of_tick[e.tick]
        least, most = (label_by_definition(imp, of, cursor, s) for of in (sure, clicks))
        assert least <= e.label <= most


def test_the_bytes_of_a_world_read_as_its_events() -> None:
    """Ids, times, weights and values, whatever the times come from; dead records are dead."""
    for _, world in worlds("bytes"):
        s = world.settings
        read = [read_impression(record, s)._replace(features=()) for record in records(world.impressions)]
        assert read == world.oracle_impressions()
        assert [read_click(record, s) for record in records(world.clicks)] == world.oracle_clicks()


def test_replay_of_marks_by_log_time_is_the_join_by_log_time() -> None:
    """Examples, counts, and the end of every click."""
    seen: Counter[str] = Counter()
    for rng, world in worlds("log time"):
        made = closed_by_log(world, rng) if rng.random() < 0.7 else world
        inputs = made.oracle_impressions(), made.oracle_clicks()
        joined = join_by_log_time(*inputs, made.settings)
        replayed = total(replay(*inputs, marks_by_log_time(*inputs, made.settings), made.settings))
        assert replayed.examples == joined.examples
        assert +replayed.impressions == +joined.impressions
        assert +replayed.clicks == +joined.clicks
        assert replayed.outcome_of_click == {o: x for o, x in joined.outcome_of_click.items() if x != "waiting"}
        seen += joined.impressions + joined.clicks
    assert min(seen[x] for x in ("positives", "late", "sampled_out", "matched", "orphans", "dead", "waiting")) > WORLDS


def test_all_records_of_a_closed_world_have_an_end_but_the_last_clicks() -> None:
    """Of the clicks that close the world, all but one of those that must agree are taken, and wait."""
    for rng, world in worlds("closed"):
        made, s = closed_by_log(world, rng), world.settings
        joined = join_by_log_time(made.oracle_impressions(), made.oracle_clicks(), s)
        assert joined.impressions["read"] == len(world.impressions)
        assert joined.clicks["waiting"] == s["agree"] - 1
        assert joined.clicks["read"] == len(world.clicks) + s["agree"] - 1


def test_labels_are_those_of_the_definition_by_log_time() -> None:
    """Every impression that is no duplicate, not late and not dead has the label of the definition."""
    for rng, world in worlds("labels"):
        made, s = closed_by_log(world, rng), {**world.settings, "keep_negatives": 1.0}
        inputs = made.oracle_impressions(), made.oracle_clicks()
        joined = join_by_log_time(*inputs, s)
        left_out = sum(joined.impressions[x] for x in ("duplicates", "late", "dead"))
        assert len(joined.examples) == len(world.impressions) - left_out
        cursors = {m.last_tick: m.click_cursor for m in marks_by_log_time(*inputs, s)}
        assert_labels_are_true(made, joined.examples, cursors)


def test_labels_are_those_of_the_definition_by_any_marks() -> None:
    """However a clock closed ticks."""
    for rng, world in worlds("any marks"):
        marks = any_marks(rng, world)
        joined = total(replay(world.oracle_impressions(), world.oracle_clicks(), marks, world.settings))
        assert_labels_are_true(world, joined.examples, {m.last_tick: m.click_cursor for m in marks})


def test_no_positive_is_lost_uncounted() -> None:
    """However a clock closed windows: where an impression is learned as a negative and has a click in its span, that
    click is counted, as late, as early or as another's, too; or the example is early.
    """
    seen: Counter[str] = Counter()
    for rng, world in worlds("lost"):
        s = {**world.settings, "keep_negatives": 1.0}
        marks = [mark._replace(rules=5) for mark in any_marks(rng, world)]
        marks += [m._replace(last_tick=m.last_tick + 10**9, stream_tick=None) for m in marks[-1:]]  # then nothing waits
        impressions, clicks = world.oracle_impressions(), world.oracle_clicks()
        parts = replay(impressions, clicks, marks, s)
        outcome = total(parts).outcome_of_click
        impression_at = {imp.offset: imp for imp in impressions}
        examples: set[int] = set()
        gone: set[int] = set()
        for mark, joined in zip(marks, parts, strict=True):
            for e in joined.examples:
                for click in clicks:
                    if e.label > 0 or click.value == 0 or not in_span(click, impression_at[e.offset], s):
                        continue
                    end = outcome[click.offset]
                    seen[end] += 1
                    another = any(counts_for(click, other, outcome[other.offset], s) for other in clicks)
                    if end in ("late", "matched") or (end == "duplicates" and another):
                        continue
                    if click.offset < mark.click_cursor:
                        gone.add(click.offset)
                    else:
                        examples.add(e.offset)
        early = sum((joined.early for joined in parts), Counter[str]())
        assert len(gone) <= early["clicks"]
        assert len(examples) <= early["examples"]
        seen["emitted_early"] += len(examples)
    assert min(seen[x] for x in ("late", "duplicates", "emitted_early")) > WORLDS // 2


def counts_for(click: Click, other: Click, end: str, s: Settings) -> bool:
    """Whether another click stands for one that is counted as a duplicate: it is matched, or has its time."""
    if click.id_hash != other.id_hash or click.time_ms is None or other.time_ms is None or end == "duplicates":
        return False
    near = abs(click.time_ms - other.time_ms) <= s["window_ms"] + s["skew_ms"]
    return click.time_ms == other.time_ms or (near and end == "matched")


def test_every_mark_balances() -> None:
    """Impressions read have one outcome each; clicks that waited or were read have one, or wait."""
    for rng, world in worlds("balance"):
        marks, waited = any_marks(rng, world), 0
        for joined in replay(world.oracle_impressions(), world.oracle_clicks(), marks, world.settings):
            i, c = joined.impressions, joined.clicks
            assert i["read"] == sum(i[x] for x in ("examples", "duplicates", "late", "sampled_out", "dead"))
            gone = sum(c[x] for x in ("matched", "duplicates", "orphans", "late", "dead"))
            assert waited + c["read"] == gone + c["waiting"]
            assert gone == len(joined.outcome_of_click)
            waited = c["waiting"]


def test_nothing_at_or_after_border_and_cursor_matters() -> None:
    """Each mark is the same where no later record is there."""
    for rng, world in worlds("prefix"):
        marks, s = any_marks(rng, world), world.settings
        impressions, clicks = world.oracle_impressions(), world.oracle_clicks()
        whole = replay(impressions, clicks, marks, s)
        for n in {rng.randrange(len(marks)) for _ in range(3)} if marks else ():
            cut = (
                [i for i in impressions if i.offset < marks[n].next_impression],
                [c for c in clicks if c.offset < marks[n].click_cursor],
            )
            assert replay(*cut, marks[: n + 1], s) == whole[: n + 1]


def test_late_impressions_and_repeats_are_those_of_the_definition() -> None:
    """Who comes too late, or again, follows from ticks and times; nobody else is left out."""
    for rng, world in worlds("ends"):
        made, s = closed_by_log(world, rng), {**world.settings, "keep_negatives": 1.0}
        impressions, clicks = made.oracle_impressions(), made.oracle_clicks()
        joined = join_by_log_time(impressions, clicks, s)
        marks = marks_by_log_time(impressions, clicks, s)
        emitted: list[tuple[int, int]] = []
        shown = {e.offset for e in joined.examples}
        for imp in impressions[: len(world.impressions)]:
            if imp.time_ms is None:
                continue
            tick = next(m.last_tick for m in marks if m.next_impression > imp.offset)
            late = imp.time_ms < tick * s["tick_ms"] - s["window_ms"] - s["lateness_ms"]
            again = s["dedupe_ms"] > 0 and any(
                i == imp.id_hash and t >= first_tick_remembered(tick, s) for i, t in emitted
            )
            clicked = any(c.id_hash == imp.id_hash for c in clicks if c.time_ms is not None)
            before = any(i == imp.id_hash for i, _ in emitted)
            out = late or again
            assert not (out and imp.offset in shown)
            assert out or imp.offset in shown or (s["dedupe_ms"] > 0 and before and clicked)
            emitted.append((imp.id_hash, tick))


def cut_runs(marks: list[Mark], clicks: list[Click], s: Settings, rng: random.Random) -> list[Mark]:
    """The marks by log time, with runs of ticks that emit nothing cut somewhere."""
    out, border = [], 0
    for mark in marks:
        first = mark.first_tick
        for last in sorted({rng.randrange(first, mark.last_tick) for _ in range(3)}) if first < mark.last_tick else ():
            cursor = cursor_by_definition(clicks, (last + 1) * s["tick_ms"], s["agree"])
            out.append(Mark(first, last, border, cursor))
            first = last + 1
        out.append(mark._replace(first_tick=first))
        border = mark.next_impression
    return out


def cursor_by_definition(clicks: list[Click], end: int, agree: int) -> int:
    """The first click with which so many in a row are at or past the end."""
    usable = [(c.offset, c.time_ms) for c in clicks if c.time_ms is not None]
    return next(
        usable[n][0]
        for n in range(agree - 1, len(usable))
        if min(time for _, time in usable[n - agree + 1 : n + 1]) >= end
    )


def test_where_runs_are_cut_decides_nothing() -> None:
    """By log time examples, outcomes and what waits are the same however runs of empty ticks are cut."""
    cuts = 0
    for rng, world in worlds("runs"):
        made, s = closed_by_log(world, rng), world.settings
        inputs = made.oracle_impressions(), made.oracle_clicks()
        marks = marks_by_log_time(*inputs, s)
        cut = cut_runs(marks, inputs[1], s, rng)
        cuts += len(cut) - len(marks)
        plain, other = replay(*inputs, marks, s), replay(*inputs, cut, s)
        assert total(plain).examples == total(other).examples
        assert +total(plain).impressions == +total(other).impressions
        assert total(plain).outcome_of_click == total(other).outcome_of_click
        waiting = {m.last_tick: j.clicks["waiting"] for m, j in zip(cut, other, strict=True)}
        assert [j.clicks["waiting"] for j in plain] == [waiting[m.last_tick] for m in marks]
    assert cuts > 1000


def test_ticks_decide_nothing_but_whose_example_it_is() -> None:
    """Marks that close no window put in between, and more ticks in every mark, leave all else as it is."""
    added = 0
    for rng, world in worlds("ticks"):
        inputs, marks = (world.oracle_impressions(), world.oracle_clicks()), any_marks(rng, world)
        marks = [mark._replace(rules=5) for mark in marks]
        slow: list[Mark] = []
        later = 0
        for mark in marks:
            if slow and rng.random() < 0.5:
                first, later = mark.first_tick + later, later + 7
                slow.append(slow[-1]._replace(first_tick=first, last_tick=first + 6, stream_tick=stream_tick(slow[-1])))
            more = rng.choice([0, 0, 3])
            ticks = {"first_tick": mark.first_tick + later, "last_tick": mark.last_tick + later + more}
            slow.append(mark._replace(**ticks, stream_tick=stream_tick(mark)))
            later += more
        plain, other = (total(replay(*inputs, of, world.settings)) for of in (marks, slow))
        assert [e._replace(tick=0) for e in plain.examples] == [e._replace(tick=0) for e in other.examples]
        assert plain[1:] == other[1:]
        added += len(slow) - len(marks)
    assert added > 1000


def stream_tick(mark: Mark) -> int:
    """The last tick of stream time that is closed with a mark."""
    return mark.last_tick if mark.stream_tick is None else mark.stream_tick


def test_where_each_clock_is_taken_at_its_word_version_2_differs_in_nothing_from_4() -> None:
    """A row of one has one time. Its marks emit in a tick of their own, or not at all."""
    for rng, world in worlds("versions"):
        made, s = closed_by_log(world, rng), {**world.settings, "agree": 1}
        inputs = made.oracle_impressions(), made.oracle_clicks()
        marks = marks_by_log_time(*inputs, s)
        old, older = ([mark._replace(rules=rules) for mark in marks] for rules in (4, 2))
        assert replay(*inputs, old, s) == replay(*inputs, older, s)
