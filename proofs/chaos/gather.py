"""Collects what a schedule has left in topics, state directories and witnesses' files, and compares it by
`proofs.chaos.check`.

Nothing that is read is changed: the learner that loads the state publishes nothing.
"""

from __future__ import annotations

import re
from itertools import chain

from proofs.chaos import check
from proofs.chaos.fleet import Fleet
from proofs.chaos.result import Result
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.marks import Mark
from stream_learner.operations.audit import run as audit
from stream_learner.operations.audit.request import AuditRequest
from tests.e2e.checks import state_of
from tests.e2e.site import Site, running, wait_until
from tests.e2e.training_log import counts_of, plain_examples
from tests.oracles import loop
from tests.scenarios import Scenario, records

MOST_FINDINGS = 5
TAIL_BYTES = 1 << 16
VERSION = re.compile(rb'"kind": "replica", "version": (\d+)')


def keys_of(scenario: Scenario) -> list[int]:
    """The key of every feature of every impression."""
    s = scenario.settings
    found: set[int] = set()
    for part in records(scenario.impressions):
        for record in part:
            found.update(key for key, _ in loop.read_impression(record, s).features)
    return sorted(found)


def last_version(fleet: Fleet, name: str) -> int:
    """The last version that the present witness of this slot has written down; -1 before the first."""
    slot = fleet.slots[name]
    file = fleet.witness_file(name, slot.starts)
    if not slot.alive or not file.exists():
        return -1
    with file.open("rb") as lines:
        lines.seek(0, 2)
        lines.seek(max(0, lines.tell() - TAIL_BYTES))
        found = VERSION.findall(lines.read())
    return int(found[-1]) if found else -1


def verdict(site: Site, fleet: Fleet, result: Result) -> list[str]:
    """All differences; empty if everything is as it must be."""
    problems = list(_input_differences(site))
    if problems:
        return problems
    if result.plan.by_clock:
        joined, differences = _by_clock(site)
    else:
        joined, differences = _by_log_time(site)
    problems += differences
    s, examples = site.scenario.settings, [e for of_partition in joined for e in of_partition.examples]
    model = loop.fold(examples, s)
    problems += _learner_differences(site, fleet, model)
    problems += _scorer_differences(site, fleet, examples, result)
    problems += _audit_findings(site)
    return problems


def _input_differences(site: Site) -> list[str]:
    problems: list[str] = []
    for topic, parts in ((site.impressions, site.scenario.impressions), (site.clicks, site.scenario.clicks)):
        for partition, sent in enumerate(parts):
            found = [(key, value) for _, key, value, _ in site.records(topic, partition, headers=False)]
            wanted = [(m.key, m.value) for m in sent]
            problems += check.input_differences(f"{topic} partition {partition}", wanted, found)
    return problems


def _by_log_time(site: Site) -> tuple[list[loop.Joined], list[str]]:
    """Compare the log with what the oracle makes of the inputs by log time alone."""
    made = site.scenario
    joined = made.expected()
    problems: list[str] = []
    for log, expected in zip(site.logs(), joined, strict=True):
        problems += check.log_differences(log.partition, log.examples(), plain_examples(expected.examples))
        balance = balance_of([log.marks])
        ours = balance.impressions._asdict(), balance.clicks._asdict()
        problems += check.count_differences(f"partition {log.partition}", ours, counts_of(expected))
    sizes = [sum(len(made.before_sentinels(part)) for part in parts) for parts in (made.impressions, made.clicks)]
    waiting = made.partitions * made.waiting
    problems += check.balance_differences(balance_of(site.marks()), sizes[0], sizes[1] + waiting, waiting)
    return joined, problems


def _by_clock(site: Site) -> tuple[list[loop.Joined], list[str]]:
    """Compare the log with what the oracle makes of the inputs with the positions of each mark."""
    s, marks = site.scenario.settings, site.marks()
    problems: list[str] = []
    given = [[loop.Mark(m.first_tick, m.last_tick, m.next_impression, m.click_cursor) for m in part] for part in marks]
    inputs = records(site.scenario.impressions), records(site.scenario.clicks)
    replayed = loop.replay_topics(*inputs, given, s)
    for log, of_partition in zip(site.logs(), replayed, strict=True):
        wanted = plain_examples(chain.from_iterable(joined.examples for joined in of_partition))
        problems += check.log_differences(log.partition, log.examples(), wanted)
        for mark, joined in zip(log.marks, of_partition, strict=True):
            ours = mark.counts.impressions._asdict(), mark.counts.clicks._asdict()
            where = f"partition {log.partition} tick {mark.last_tick}"
            problems += check.count_differences(where, ours, counts_of(joined))
    sizes = [sum(map(len, parts)) for parts in (site.scenario.impressions, site.scenario.clicks)]
    problems += check.balance_differences(balance_of(marks), sizes[0], sizes[1], waiting=0)
    return [joined for of_partition in replayed for joined in of_partition], problems


def balance_of(marks: list[list[Mark]]) -> Balance:
    """The sums of the counts of accepted marks."""
    balance = Balance()
    for mark in chain.from_iterable(marks):
        balance.add(mark)
    return balance


def _learner_differences(site: Site, fleet: Fleet, model: loop.Fold) -> list[str]:
    """Compare the state directory after the faults with that of an undisturbed learner."""
    problems: list[str] = []
    whose = [("the learner", fleet.state_dir), ("an undisturbed learner", site.folder / "undisturbed")]
    if "standby" in fleet.slots:
        whose.append(("the standby", fleet.standby_dir))
    for who, state_dir in whose:
        alone = {"publish": False, "copies": False, "memory": None, "state_dir": str(state_dir)}
        role = site.learner(site.changed(learner=alone))
        with running(role):
            wait_until(lambda role=role: role.tick >= site.last_tick(), f"{who} has folded every tick")  # type: ignore[misc]
        digest = f"{role.learner.digest_full():016x}"
        problems += check.model_differences(who, state_of(role.learner), digest, model)
    return problems


def _audit_findings(site: Site) -> list[str]:
    """The findings of `stream-learner audit --replay` about the topics; empty if they are sound."""
    found = audit.audit(site.config, AuditRequest(replay=True))
    told = [f"audit: {finding}" for finding in found["findings"][:MOST_FINDINGS]]
    error = audit.verdict(found)
    return told if error is None else [f"audit: {error}", *told]


def _scorer_differences(site: Site, fleet: Fleet, examples: list[loop.Example], result: Result) -> list[str]:
    """Compare every version of every witness; the last version must be among them."""
    replicas: list[check.ReplicaSeen] = []
    answers: list[check.AnswerSeen] = []
    problems: list[str] = []
    last = site.last_tick()
    for name in fleet.scorers:
        of_slot: list[check.ReplicaSeen] = []
        for file in fleet.witnessed(name):
            seen, asked = check.parse_witness(name, file.read_text(encoding="utf-8"))
            of_slot += seen
            answers += asked
        if not any(seen.version == last for seen in of_slot):
            problems.append(f"{name} never served version {last}")
        replicas += of_slot
    versions = {seen.version for seen in replicas} | {answer.version for answer in answers}
    result.versions = len(versions)
    s = site.scenario.settings
    folds = check.folds_at(examples, versions, s)
    return problems + list(check.replica_differences(replicas, answers, fleet.keys, folds, s))
