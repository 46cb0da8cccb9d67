"""The comparison at the end of a schedule catches the smallest difference, planted by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from proofs.chaos import check
from proofs.chaos.check import AnswerSeen, ReplicaSeen
from proofs.chaos.gather import keys_of
from stream_learner.core.log.balance import Balance
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, TickCounts
from tests.e2e.training_log import counts_of, plain_examples
from tests.oracles import loop
from tests.scenarios import Scenario, scenario


@pytest.fixture(scope="module")
def made() -> Scenario:
    """Some traffic."""
    return scenario("duplicates", 2)


@pytest.fixture(scope="module")
def joined(made: Scenario) -> list[loop.Joined]:
    """The ticks that the join must make."""
    return made.expected()


@pytest.fixture(scope="module")
def examples(joined: list[loop.Joined]) -> list[loop.Example]:
    """All examples."""
    return [example for of_partition in joined for example in of_partition.examples]


class Replicas:
    """The rows and answers of a correct scorer at two versions."""

    def __init__(self, made: Scenario, examples: list[loop.Example]) -> None:
        self.s, self.keys = made.settings, keys_of(made)
        ticks = sorted({example.tick for example in examples})
        self.versions = (ticks[len(ticks) // 2], ticks[-1])
        self.folds = check.folds_at(examples, self.versions, self.s)

    def replica(self, version: int) -> ReplicaSeen:
        """All weights of a version."""
        fold = self.folds[version]
        return ReplicaSeen("scorer-0", version, fold.digest, loop.published(fold.state, self.s))

    def answer(self, version: int) -> AnswerSeen:
        """The answer to a feature for each key."""
        weights = loop.published(self.folds[version].state, self.s)
        return AnswerSeen("scorer-0", version, np.array([loop.predict(weights, ((k, 1.0),)) for k in self.keys]))

    def differences(self, replicas: list[ReplicaSeen], answers: list[AnswerSeen]) -> list[str]:
        """The differences that the check reports."""
        return list(check.replica_differences(replicas, answers, self.keys, self.folds, self.s))


@pytest.fixture(scope="module")
def replicas(made: Scenario, examples: list[loop.Example]) -> Replicas:
    """A scorer that is right."""
    return Replicas(made, examples)


def test_a_lost_example_is_found(joined: list[loop.Joined]) -> None:
    """One of them left out, whichever; and one twice, one changed."""
    wanted = plain_examples(joined[0].examples)
    assert list(check.log_differences(0, wanted, wanted)) == []
    for at in (0, len(wanted) // 2, len(wanted) - 1):
        lost = [*wanted[:at], *wanted[at + 1 :]]
        twice = [*wanted[: at + 1], *wanted[at:]]
        other = [*wanted[:at], (*wanted[at][:3], 1.0 - wanted[at][3], *wanted[at][4:]), *wanted[at + 1 :]]
        for found in (lost, twice, other):
            [told] = check.log_differences(0, found, wanted)
            assert f"number {at}" in told or found is twice


def test_a_click_counted_twice_is_found(joined: list[loop.Joined]) -> None:
    """In the counts of a partition, and in the balance."""
    wanted = counts_of(joined[1])
    clicks = {**wanted[1], "matched": wanted[1]["matched"] + 1}
    assert list(check.count_differences("partition 1", wanted, wanted)) == []
    [told] = check.count_differences("partition 1", (wanted[0], clicks), wanted)
    assert f"matched {clicks['matched']} not {wanted[1]['matched']}" in told
    n_i, n_c = joined[1].impressions["read"], joined[1].clicks["read"]
    waiting = joined[1].clicks["waiting"]

    def told_of(balance: Balance, *sums: int) -> str:
        return "\n".join(check.balance_differences(balance, *sums))

    assert told_of(_balance(joined[1]), n_i, n_c, waiting) == ""
    assert "accounted for" in told_of(_balance(joined[1], matched=1), n_i, n_c, waiting)
    assert f"{n_c + 1} were sent" in told_of(_balance(joined[1]), n_i, n_c + 1, waiting)
    assert f"not {waiting - 1}" in told_of(_balance(joined[1]), n_i, n_c, waiting - 1)


def _balance(joined: loop.Joined, **too_many: int) -> Balance:
    """The balance of one mark with the oracle's counts, and some counted too often."""
    clicks = Counter(joined.clicks)
    clicks.update(too_many)
    counts = TickCounts(ImpressionCounts(**joined.impressions), ClickCounts(**clicks))
    balance = Balance()
    balance.add(Mark(1, 1, 0, 9, 0, 0, 0, 0, 0, -1, counts))
    return balance


def test_one_bit_of_the_learners_state_is_found(made: Scenario, examples: list[loop.Example]) -> None:
    """In `z`, in `n`, a row too few, a row too many, a digest of something else."""
    model = loop.fold(examples, made.settings)
    assert list(check.model_differences("the learner", model.state, model.digest, model)) == []
    key = sorted(model.state)[3]
    z, n = model.state[key]
    states = [
        {**model.state, key: (float(np.nextafter(z, 1e9)), n)},
        {**model.state, key: (z, float(np.nextafter(n, 1e9)))},
        {k: row for k, row in model.state.items() if k != key},
        {**model.state, 12345: (1.0, 1.0)},
    ]
    for state in states:
        [told] = check.model_differences("the learner", state, model.digest, model)
        assert "1 rows" in told
    other = loop.fold(examples[:-1], made.settings)
    assert any("digest" in told for told in check.model_differences("the learner", model.state, other.digest, model))


def test_a_wrong_weight_in_a_replica_is_found(replicas: Replicas) -> None:
    """In any version: the last bit of one weight, one too few, one too many, another digest."""
    right = [replicas.replica(version) for version in replicas.versions]
    assert replicas.differences(right, []) == []
    for seen in right:
        key = sorted(seen.weights)[0]
        wrong = float(np.nextafter(np.float32(seen.weights[key]), np.float32(9)))
        for weights in (
            {**seen.weights, key: wrong},
            {k: w for k, w in seen.weights.items() if k != key},
            {**seen.weights, 7: 0.5},
        ):
            [told] = replicas.differences([replace(seen, weights=weights)], [])
            assert f"version {seen.version}" in told and "1 weight" in told
        [told] = replicas.differences([replace(seen, digest="0" * 16)], [])
        assert "digest" in told


def test_a_version_half_applied_is_found(replicas: Replicas) -> None:
    """An answer that mixes two versions, under the name of either."""
    first, last = (replicas.answer(version) for version in replicas.versions)
    assert replicas.differences([], [first, last]) == []
    assert (first.p_click != last.p_click).any()
    half = np.where(np.arange(len(replicas.keys)) % 2 == 0, first.p_click, last.p_click)
    for version in replicas.versions:
        [told] = replicas.differences([], [replace(first, version=version, p_click=half)])
        assert f"answered as version {version}" in told


def test_folds_at_versions_are_those_of_the_examples_up_to_them(
    made: Scenario, examples: list[loop.Example], replicas: Replicas
) -> None:
    """Each as if it were folded alone."""
    for version in replicas.versions:
        alone = loop.fold([example for example in examples if example.tick <= version], made.settings)
        assert replicas.folds[version].state == alone.state
        assert replicas.folds[version].digest == alone.digest


def test_an_input_record_that_was_not_sent_is_found() -> None:
    """Sent twice by the producer, or lost."""

    def told(found: list[int]) -> Iterator[str]:
        return check.input_differences("clicks", [1, 2, 3], found)

    assert list(told([1, 2, 3])) == []
    assert list(told([1, 2, 2, 3])) and list(told([1, 3])) and list(told([1, 3, 2]))


def test_a_line_that_a_kill_has_cut_off_does_not_count() -> None:
    """What a witness wrote before it still does."""
    line = '{"kind": "replica", "version": 5, "digest": "00", "keys": "", "weights": ""}\n'
    replicas, answers = check.parse_witness("scorer-1", line + line[:30])
    assert [seen.version for seen in replicas] == [5] and answers == []
