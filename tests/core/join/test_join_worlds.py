"""The join of one partition against the oracle of docs/join-rules.md, in random worlds with all that goes wrong."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from stream_learner.core.join.state import JoinState, TickOutput
from stream_learner.core.log.marks import InputIdentity
from stream_learner.core.log.marks import Mark as LogMark
from tests.core.join.join_worlds import World, closed_by_log, random_world
from tests.core.join.plain_join import CLICK_OUTCOMES, OUTCOMES, clicks_of, impressions_of, spec_of
from tests.oracles.events import Click, Impression
from tests.oracles.join import Joined, Mark, join_by_log_time, replay
from tests.suite.share import share

Row = tuple[int, int, int, float, float]


@dataclass
class Emitted:
    """The output of one mark or several: tick, log time, id, label and weight of each example, and the counts."""

    examples: list[Row]
    impressions: Counter[str]
    clicks: Counter[str]
    early: Counter[str]


def run(world: World, rng: random.Random, by_clock: bool, together: bool = False) -> list[TickOutput]:
    """Run a joiner over a world as its records arrive: it reads in random pieces and emits when it can.

    together: ticks go by a clock of their own, and windows close with them when they can; sometimes none may.
    """
    impressions, clicks = world.oracle_impressions(), world.oracle_clicks()
    join, outputs = JoinState(spec_of(world.settings), impression_start=0, click_start=0), []
    arrivals = world.impressions + world.clicks
    now = min((a.at_ms for a in arrivals), default=0) - 1
    last = max([world.last_arrival_ms, *(a.time_ms or 0 for a in arrivals)]) + 3 * world.memory_ms + 50
    i = c = 0
    while now <= last:
        now += rng.choice([0, 1, 3, 40])
        there_i, there_c = (sum(a.at_ms <= now for a in side) for side in (world.impressions, world.clicks))
        upto_i, upto_c = (
            end if now > last or rng.random() < 0.7 else rng.randint(at, max(at, end))
            for at, end in ((i, there_i), (c, there_c))
        )
        if upto_i > i:
            join.add_impressions(*impressions_of(impressions[i:upto_i]))
        if upto_c > c:
            join.add_clicks(*clicks_of(clicks[c:upto_c]))
        i, c = max(i, upto_i), max(c, upto_c)
        idle = now - world.grace_ms
        ends = (idle if by_clock and c == there_c else None, idle if by_clock and i == there_i else None)
        if together:
            stands = now <= last and rng.random() < 0.3
            if cut := join.next_cut(*ends, together=True, stands=stands):
                outputs.append(join.emit(cut))
            continue
        while cut := join.next_cut(*ends, allow_empty=now > last or rng.random() < 0.7):
            outputs.append(join.emit(cut))
    if by_clock:
        taken = (join.next_impression, join.click_cursor)
        assert taken == (join.next_impression_to_read, join.next_click_to_read), "left over"
        assert not outputs or outputs[-1].counts.clicks.waiting == 0, "left over"
    return outputs


def marks_of(outputs: list[TickOutput]) -> list[Mark]:
    """The marks of outputs; where no window closes, or several do, the ticks of the log are others than those."""
    marks: list[Mark] = []
    for cut in (output.cut for output in outputs):
        first = marks[-1].last_tick + 1 if marks else 0
        marks.append(Mark(first, max(first, cut.last_tick), cut.next_impression, cut.click_cursor, cut.last_tick))
    return marks


def emitted(output: TickOutput, mark: Mark) -> Emitted:
    b, i, c = output.examples, output.counts.impressions, output.counts.clicks
    columns = (b.log_time_ms.tolist(), b.id_hash.tolist(), b.label.tolist(), b.weight.tolist())
    return Emitted(
        [(mark.last_tick, *row) for row in zip(*columns, strict=True)],
        +Counter({name: getattr(i, name) for name in OUTCOMES}),
        +Counter({name: getattr(c, name) for name in (*CLICK_OUTCOMES, "waiting")}),
        +Counter(output.early._asdict()),
    )


def wanted(joined: Joined) -> Emitted:
    rows = [(e.tick, e.log_time_ms, e.id_hash, e.label, e.weight) for e in joined.examples]
    return Emitted(rows, +joined.impressions, +joined.clicks, joined.early)


def total(parts: list[Emitted]) -> Emitted:
    """All parts together, but for what was early; what waits is that of the last."""
    out = Emitted([], Counter(), Counter(), Counter())
    for part in parts:
        out.examples += part.examples
        out.impressions += part.impressions
        out.clicks += part.clicks
    out.clicks["waiting"] = parts[-1].clicks["waiting"] if parts else 0
    out.clicks = +out.clicks
    return out


@share(100, thorough=800, nightly=4_000)
@pytest.mark.parametrize(("by_clock", "together"), [(False, False), (True, False), (True, True)])
def test_every_mark_is_what_the_rules_make_of_its_positions(by_clock: bool, together: bool, examples: int) -> None:
    """Examples in their order with label, weight and log time, and all counts, whatever was read ahead.

    Where no clock is asked, all of it follows from the two logs, without positions.
    """
    found, early = 0, Counter[str]()
    for number in range(examples):
        rng = random.Random(f"{by_clock} {together} {number}")
        world = random_world(rng) if by_clock else closed_by_log(random_world(rng), rng)
        outputs = run(world, rng, by_clock, together)
        impressions, clicks = world.oracle_impressions(), world.oracle_clicks()
        marks = marks_of(outputs)
        made = [emitted(output, mark) for output, mark in zip(outputs, marks, strict=True)]
        again = replay(impressions, clicks, marks, world.settings)
        assert made == [wanted(joined) for joined in again], number
        if not by_clock:
            assert total(made) == wanted(join_by_log_time(impressions, clicks, world.settings)), number
        found += sum(len(part.examples) for part in made)
        early.update(sum((part.early for part in made), Counter()))
    assert found > examples and min(early["examples"], early["clicks"]) > examples / 20


@pytest.mark.parametrize("old", [2, 3, 4])
def test_a_log_of_an_old_version_is_made_again_by_its_own_rules_and_gone_on_with(old: int) -> None:
    """What its marks left of clicks is what those rules left; the ticks after them are of these rules."""
    differs = 0
    for number in range(60):
        rng = random.Random(number)
        world = closed_by_log(random_world(rng), rng)
        impressions, clicks = world.oracle_impressions(), world.oracle_clicks()
        join = JoinState(spec_of(world.settings), impression_start=0, click_start=0)
        join.add_impressions(*impressions_of(impressions))
        join.add_clicks(*clicks_of(clicks))
        marks, made, resumed_at = [], [], rng.randrange(1, 12)
        while cut := join.next_cut():
            rules = old if len(marks) < resumed_at else 5
            output = join.emit(cut._replace(rules=rules))
            place = cut.first_tick, cut.last_tick, cut.next_impression, cut.click_cursor
            marks.append(Mark(*place, rules=rules))
            made.append(emitted(output, marks[-1]))
            if len(marks) == resumed_at:
                join = resumed(join, output, impressions, clicks, old)
        assert made == [wanted(joined) for joined in replay(impressions, clicks, marks, world.settings)], number
        newer = [mark._replace(rules=5) for mark in marks]
        differs += made != [wanted(joined) for joined in replay(impressions, clicks, newer, world.settings)]
    assert differs > 2


def resumed(
    join: JoinState, output: TickOutput, impressions: list[Impression], clicks: list[Click], old: int
) -> JoinState:
    """A join that goes on from the resume point of a mark of an old version, with all records."""
    point = replace(join.resume_point(InputIdentity(bytes(16), bytes(16), 1)), rules=old)
    if old == 2:
        point = replace(point, click_usual_time=point.click_log_time)
    cut = output.cut
    ticks, places = (cut.first_tick, cut.last_tick), (cut.next_impression, output.first_click, cut.click_cursor)
    mark = LogMark(0, 1, *ticks, *places, 0, 0, -1, output.counts, point, rules=old)
    found = JoinState.resume(join.spec, mark)
    found.add_impressions(*impressions_of([i for i in impressions if i.offset >= point.dedupe_from]))
    found.add_clicks(*clicks_of([c for c in clicks if c.offset >= output.first_click]))
    return found
