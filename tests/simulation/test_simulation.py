"""The protocols on random histories: every law holds, every class of trouble is reached, every step is needed."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from proofs.simulation.__main__ import main
from proofs.simulation.joiners import World
from proofs.simulation.kafka import Log
from proofs.simulation.mutations import MUTATIONS, Mutation, applied, hunt
from proofs.simulation.oracle import accepted_marks
from proofs.simulation.process import LOG, Process
from proofs.simulation.run import Outcome, kind_of, run_histories, run_history
from stream_learner.adapters.kafka import TopicAndPartition
from stream_learner.errors import LogTrimmed
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.partition import LOOK_AGAIN
from tests.suite import share

MUTANT_HISTORIES = 120
RARE_HISTORIES = 3_000
HUNTED_FROM = {
    "clock: the lag that is remembered has the wrong sign": 1_180,
    "made again: the border is looked for again": 120,
    "publication 2: a torn publication's number is used again": 11_480,
    "publication 4: it is used again, and every try has the same attempt": 320,
    "replica: a torn attempt counts, and its number is used again": 584,
    "replica: pages need not be there": 176,
    "rule R: in a trimmed log the first mark in sight counts": 330,
}
"""The first seed of the hunt for mutations that few histories notice. From other seeds it only takes longer."""

REACHED = {
    "attempts",
    "broker errors",
    "brokers' clocks set",
    "resume points with clicks ahead and others",
    "clicks: dead",
    "clicks: duplicates",
    "clicks: late",
    "clicks: matched",
    "clicks: orphans",
    "clicks: waiting",
    "clocks that remember",
    "closed by the clock: arrivals",
    "closed by the clock: arrivals, perhaps of clicks alone",
    "closed by the clock: idle_after is over",
    "closed by the clock: memory",
    "closed by the clock: nothing comes",
    "compactions",
    "crashes",
    "dead letters",
    "feeds that catch up",
    "feeds that fall behind",
    "foreign records",
    "gaps",
    "hints lost",
    "hints old",
    "impressions: dead",
    "impressions: duplicates",
    "impressions: late",
    "impressions: positives",
    "impressions: sampled_out",
    "input transactions aborted",
    "input transactions committed",
    "labels of clicks ahead of log time",
    "marks ignored",
    "marks that close no window",
    "marks that close several ticks of stream time and emit",
    "pauses",
    "producers renewed",
    "publications",
    "publications torn",
    "publishers fenced",
    "publishers restarted",
    "records landed late",
    "resume points",
    "revocations",
    "second publishers",
    "stale ends",
    "static returns",
    "steps with two owners",
    "ticks accepted",
    "ticks closed ahead of the brokers' clock",
    "ticks closed for a full buffer",
    "training log trimmed",
    "unknown outcome: already in the log",
    "unknown outcome: later in the log",
    "unknown outcome: never in the log",
    "versions served",
    "windows closed by the clock",
}
"""Kinds of trouble that even few histories are sure to reach; one that is never reached proves nothing."""


@share.seeds(200, thorough=600, nightly=2_000)
def test_every_law_holds_on_random_histories_and_all_trouble_is_reached(seeds: range) -> None:
    """Joiners and publishers, from a seed on: no law breaks, and nothing in the list above stays at 0."""
    outcome = Outcome()
    for part in run_histories(seeds.start + 1, len(seeds), 1):
        outcome.add(part)
    assert outcome.failures == []
    assert sum(outcome.histories.values()) == len(seeds)
    assert {name for name in REACHED if not outcome.seen[name]} == set()


@pytest.mark.parametrize("seed", [3, 8])
def test_a_history_is_a_function_of_its_seed(seed: int) -> None:
    """Run twice, with others between, it does the same to the last count; so a failing seed reruns alone."""
    first = run_history(seed)
    run_history(seed + 8)
    again = run_history(seed)
    assert (first.seen, first.failures) == (again.seen, again.failures)
    assert kind_of(seed) == ("joining" if seed == 3 else "publishing")


@pytest.mark.parametrize(
    "mutation", [pytest.param(m, id=m.name, marks=[pytest.mark.nightly] * m.is_rare) for m in MUTATIONS]
)
def test_no_step_can_be_left_out(mutation: Mutation) -> None:
    """Each mutation breaks a law within a few histories that the real code survives; a rare one within thousands."""
    histories = RARE_HISTORIES if mutation.is_rare else MUTANT_HISTORIES
    assert hunt(mutation, HUNTED_FROM.get(mutation.name, 1), histories).how


def test_hunts_begin_at_a_seed_for_mutations_that_there_are() -> None:
    """A name that has changed would be hunted from the first seed again, for minutes."""
    assert set(HUNTED_FROM) <= {mutation.name for mutation in MUTATIONS}


def test_mutations_leave_nothing_behind() -> None:
    """After a hunt the code is what it was: the history that noticed keeps every law again."""
    caught = hunt(MUTATIONS[0], 1, MUTANT_HISTORIES)
    assert caught.how
    assert run_history(caught.seed).failures == []


def test_a_failing_seed_is_printed_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Under a mutation the command names the seed, how to run it alone, and exits with 1."""
    with applied(MUTATIONS[0]):
        assert main(["--histories", "6", "--seed", "1", "--json"]) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    seed = report["failures"][0]["seed"]
    assert f"python -m proofs.simulation --seed {seed} --trace" in err
    assert Counter(report["histories"]).total() == 6


class _ToldOldEnds(Process):
    """A process that a broker tells, so many times, an end before all that the training log holds."""

    def __init__(self, world: World, answers: int) -> None:
        super().__init__(world, 99)
        self.old_answers = answers

    def stale_end(self, place: TopicAndPartition, end: int) -> int:
        """The beginning for the end, while old answers are left."""
        if place[0] != LOG or not self.old_answers:
            return end
        self.old_answers -= 1
        return self.logs[place].start


def begin_in_a_trimmed_log(old_answers: int) -> Process:
    """A new joiner of a log whose beginning is gone up to the last hint, turned until it has begun an attempt."""
    for seed in range(100):
        world = World(seed)
        world.run()
        hint = Hint.from_text(world.hints[0][-1]) if world.hints[0] else None
        if hint is not None and hint.read_from > 0 and not world.lost:
            break
    assert hint is not None
    world.logs[LOG, 0].trim(hint.read_from)
    assert 0 < hint.read_from == world.logs[LOG, 0].start
    process = _ToldOldEnds(world, old_answers)
    process.events.append(("assigned", 0))
    for _ in range(1000):
        process.turn()
        world.pass_time(50)
        if process.partitions[0].progress.attempts:
            return process
    raise AssertionError("no attempt was begun")


def test_a_log_that_seems_to_lack_its_resume_points_is_looked_at_again() -> None:
    """Old answers of a broker cost attempts and rests, but do not stop a joiner; the same answer for long does."""
    process = begin_in_a_trimmed_log(LOOK_AGAIN)
    assert process.old_answers == 0
    assert process.partitions[0].progress.lost["append_failed"] == LOOK_AGAIN
    with pytest.raises(LogTrimmed, match=f"{LOG} partition 0 holds no record"):
        begin_in_a_trimmed_log(LOOK_AGAIN + 1)


def test_the_model_of_a_log_hides_what_kafka_hides() -> None:
    """Open and aborted transactions, markers, trimmed and compacted records."""
    log = Log(iter(range(100)))
    log.append(b"a", at=0, key=b"k")
    log.append(b"b", at=0, key=b"k", transaction=1)
    log.append(b"c", at=0, key=b"l")
    assert (log.stable, log.end) == (1, 3)
    log.finish(1, commit=False)
    assert (log.stable, log.end) == (4, 4)
    assert [entry.value for entry in log.visible(log.stable)] == [b"a", b"c"]
    log.append(b"d", at=0, key=b"k")
    log.compact(log.end)
    assert [entry.value for entry in log.visible(log.stable)] == [b"c", b"d"]
    log.trim(3)
    assert (log.start, [entry.value for entry in log.entries]) == (3, [b"d"])
    assert accepted_marks([]) == []
