"""Compares what is left at the end of a schedule with what it must be, and describes the differences.

Everything is compared with the oracle or with what was sent, never with another part of the system.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.balance import Balance
from tests.e2e.training_log import PlainExample
from tests.oracles import loop as oracle

State = Mapping[int, tuple[float, ...]]
Counts = Mapping[str, int]


@dataclass(frozen=True)
class ReplicaSeen:
    """One version in a scorer: digest, and weights float32 by key."""

    scorer: str
    version: int
    digest: str
    weights: dict[int, float]


@dataclass(frozen=True)
class AnswerSeen:
    """One answer of a scorer to a request with one event for each key."""

    scorer: str
    version: int
    p_click: NDArray[np.float64]


def input_differences(topic: str, sent: Sequence[Any], found: Sequence[Any]) -> Iterator[str]:
    """Compare an input topic with what was sent. If it differs, no other comparison means anything."""
    if list(sent) != list(found):
        yield f"{topic}: {len(found)} records where {len(sent)} were sent, or others"


def log_differences(partition: int, found: Sequence[PlainExample], wanted: Sequence[PlainExample]) -> Iterator[str]:
    """Compare the examples in the accepted ticks of a partition with the oracle's, in order."""
    pairs = zip_longest(found, wanted)
    first = next(((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1]), None)
    if first is not None:
        number, (ours, theirs) = first
        yield (
            f"training log partition {partition}: {len(found)} examples, the oracle has {len(wanted)}; "
            f"the first that differs is number {number}: {_short(ours)}, the oracle's {_short(theirs)}"
        )


def count_differences(where: str, found: Sequence[Counts], wanted: Sequence[Counts]) -> Iterator[str]:
    """Compare the counts of outcomes of impressions and of clicks; a count of 0 may be left out."""
    for side, ours, theirs in zip(("impressions", "clicks"), found, wanted, strict=True):
        names = sorted(name for name in {*ours, *theirs} if ours.get(name, 0) != theirs.get(name, 0))
        if names:
            told = ", ".join(f"{name} {ours.get(name, 0)} not {theirs.get(name, 0)}" for name in names)
            yield f"{where}: {side}: {told}"


def balance_differences(balance: Balance, impressions_read: int, clicks_read: int, waiting: int) -> Iterator[str]:
    """Check, from the training log alone, that every record was read and has one outcome, and how many clicks wait."""
    yield from (f"balance: {problem}" for problem in balance.problems)
    i, c = balance.impressions, balance.clicks
    ends_i = i.examples + i.duplicates + i.late + i.sampled_out + i.dead
    ends_c = c.matched + c.duplicates + c.orphans + c.late + c.dead + c.waiting
    for what, read, wanted, ends in (
        ("impressions", i.read, impressions_read, ends_i),
        ("clicks", c.read, clicks_read, ends_c),
    ):
        if read != wanted:
            yield f"balance: {read} {what} read, {wanted} were sent"
        if read != ends:
            yield f"balance: {read} {what} read, {ends} accounted for"
    if c.waiting != waiting:
        yield f"balance: {c.waiting} clicks wait, not {waiting}"


def model_differences(who: str, state: State, digest: str, wanted: oracle.Fold) -> Iterator[str]:
    """Compare every bit of the learner's state, and its digest."""
    theirs = {key: row for key, row in wanted.state.items() if any(row)}
    ours = {key: row for key, row in state.items() if any(row)}
    wrong = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    if wrong:
        key = wrong[0]
        told = f"key {key:016x} is {ours.get(key)}, the oracle's {theirs.get(key)}"
        yield f"{who}: {len(wrong)} rows of {len(theirs)} differ: {told}"
    if digest != wanted.digest:
        yield f"{who}: digest {digest}, the oracle's {wanted.digest}"


def folds_at(examples: Iterable[oracle.Example], versions: Iterable[int], s: oracle.Settings) -> dict[int, oracle.Fold]:
    """The oracle's model at each of these versions."""
    ordered = sorted(examples, key=lambda e: (e.tick, e.partition))
    folds: dict[int, oracle.Fold] = {}
    done, model = 0, oracle.fold([], s)
    for version in sorted(set(versions)):
        stop = next((n for n in range(done, len(ordered)) if ordered[n].tick > version), len(ordered))
        if stop > done:
            model = oracle.fold(ordered[done:stop], s, before=model)
            done = stop
        folds[version] = model
    return folds


def replica_differences(
    replicas: Iterable[ReplicaSeen],
    answers: Iterable[AnswerSeen],
    keys: Sequence[int],
    folds: Mapping[int, oracle.Fold],
    s: oracle.Settings,
) -> Iterator[str]:
    """Compare every version that a scorer held, and every answer, with the fold at that version."""
    weights = {version: oracle.published(fold.state, s) for version, fold in folds.items()}
    for seen in replicas:
        where = f"{seen.scorer} version {seen.version}"
        if seen.digest != folds[seen.version].digest:
            yield f"{where}: digest {seen.digest}, the oracle's {folds[seen.version].digest}"
        ours, theirs = {k: w for k, w in seen.weights.items() if w != 0}, weights[seen.version]
        wrong = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
        if wrong:
            key = wrong[0]
            told = f"key {key:016x} is {ours.get(key)}, the oracle's {theirs.get(key)}"
            yield f"{where}: {len(wrong)} weights of {len(theirs)} differ: {told}"
    expected: dict[int, NDArray[np.float64]] = {}
    for answer in answers:
        known = weights[answer.version]
        if answer.version not in expected:
            made = [oracle.predict(known, ((key, 1.0),)) for key in keys]
            expected[answer.version] = np.array(made, np.float64)
        wrong_at = np.flatnonzero(answer.p_click != expected[answer.version])
        if wrong_at.size:
            at = int(wrong_at[0])
            told = f"{answer.p_click[at]!r}, the oracle's {expected[answer.version][at]!r}"
            yield f"{answer.scorer} answered as version {answer.version}: {wrong_at.size} keys differ, the first {told}"


def parse_witness(scorer: str, text: str) -> tuple[list[ReplicaSeen], list[AnswerSeen]]:
    """Parse what a witness wrote; a last line that a kill has cut off is ignored."""
    replicas, answers = [], []
    whole = text[: text.rfind("\n") + 1]
    for line in whole.splitlines():
        found = json.loads(line)
        if found["kind"] == "replica":
            keys = np.frombuffer(base64.b64decode(found["keys"]), "<u8").tolist()
            weights = np.frombuffer(base64.b64decode(found["weights"]), "<f4").tolist()
            replicas.append(
                ReplicaSeen(scorer, found["version"], found["digest"], dict(zip(keys, weights, strict=True)))
            )
        else:
            p_click = np.frombuffer(base64.b64decode(found["p_click"]), "<f8")
            answers.append(AnswerSeen(scorer, found["version"], p_click))
    return replicas, answers


def _short(example: PlainExample | None) -> str:
    if example is None:
        return "none"
    tick, log_time_ms, id_hash, label, weight, features = example
    return (
        f"tick {tick} log time {log_time_ms} id {id_hash:016x} label {label} weight {weight} ({len(features)} features)"
    )
