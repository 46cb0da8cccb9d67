"""What must hold after a run, whoever ran and however often it was interrupted.

It must never compare with anything but the oracle and the records that were produced.
"""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np

from stream_learner.core.log.balance import Balance
from stream_learner.core.model.fold import Learner
from stream_learner.errors import Fenced
from stream_learner.roles.scorer.scorer import Scorer
from tests.e2e.site import Site, running, wait_until
from tests.e2e.training_log import counts_of, plain_examples
from tests.oracles import loop
from tests.oracles.fold import model_digest

State = dict[int, tuple[float, ...]]


def assert_log_equals(site: Site, joined: list[loop.Joined]) -> None:
    """The accepted ticks hold the oracle's examples to the last one, in order, and its counts."""
    for log, expected in zip(site.logs(), joined, strict=True):
        found, wanted = log.examples(), plain_examples(expected.examples)
        difference = next((pair for pair in zip_longest(found, wanted) if pair[0] != pair[1]), None)
        assert difference is None, f"partition {log.partition}: {len(found)} examples of {len(wanted)}"
        balance = Balance()
        for mark in log.marks:
            balance.add(mark)
        counts = [{k: v for k, v in side._asdict().items() if v} for side in (balance.impressions, balance.clicks)]
        assert tuple(counts) == counts_of(expected), f"partition {log.partition}"


def assert_balance(site: Site) -> None:
    """From the training log alone: every record up to the sentinels was read, and ended in one outcome; no click waits
    but sentinels."""
    balance, made = balance_of(site), site.scenario
    assert balance.problems == []
    i, c = balance.impressions, balance.clicks
    assert i.read == sum(len(made.before_sentinels(part)) for part in made.impressions)
    assert i.read == i.examples + i.duplicates + i.late + i.sampled_out + i.dead
    assert c.waiting == made.partitions * made.waiting
    assert c.read - c.waiting == sum(len(made.before_sentinels(part)) for part in made.clicks)
    assert c.read - c.waiting == c.matched + c.duplicates + c.orphans + c.late + c.dead


def balance_of(site: Site) -> Balance:
    """The sums of all accepted marks."""
    balance = Balance()
    for marks in site.marks():
        for mark in marks:
            balance.add(mark)
    return balance


def expected_fold(joined: list[loop.Joined], s: loop.Settings, *, libm: bool = False) -> loop.Fold:
    """The oracle's model of all examples of all partitions; with `libm` by `math.exp` and `math.log1p`."""
    examples = [example for partition in joined for example in partition.examples]
    return loop.fold(examples, s, math.exp, math.log1p) if libm else loop.fold(examples, s)


def assert_model_equals(learner: Learner, model: loop.Fold) -> None:
    """z and n to the last bit, the digest, and the progressive log-loss."""
    state = state_of(learner)
    assert state == {key: row for key, row in model.state.items() if any(row)}
    assert f"{learner.digest():016x}" == model.digest == model_digest(state, model.folded)
    assert learner.digest_full() == learner.digest()
    assert (learner.examples, learner.refused) == (model.folded, model.refused)


def assert_equal_to_oracle(site: Site, expected: list[loop.Joined]) -> None:
    """Log, balance, and the model that a learner of the site's state directory goes on to, or makes of the log."""
    assert_log_equals(site, expected)
    assert_balance(site)
    learner = site.learner()
    with running(learner):
        wait_until(lambda: site.folded(learner), "every tick folded")
    assert_model_equals(learner.learner, expected_fold(expected, site.scenario.settings))


def assert_model_is_near(model: loop.Fold, by_libm: loop.Fold) -> None:
    """Assert that the models agree to 1e-9: the oracle uses the platform's `exp`."""
    assert model.state.keys() == by_libm.state.keys()
    ours, theirs = (np.array([fold.state[key] for key in model.state]) for fold in (model, by_libm))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def assert_predictions_equal(scorer: Scorer, site: Site, model: loop.Fold, limit: int = 600) -> None:
    """A scorer's predictions of the scenario's own impressions are the oracle's, to float32."""
    s = site.scenario.settings
    weights = loop.published(model.state, s)
    read = [(m.value, event) for m, event in _readable(site, limit) if event.time_ms is not None]
    found = scorer.predict_many([value for value, _ in read])
    assert not found.status.any()
    expected = [loop.predict(weights, event.features) for _, event in read]
    assert found.p_click.astype(np.float32).tolist() == np.float32(expected).tolist()
    one = scorer.predict(read[0][0])
    assert (np.float32(one.p_click), one.version) == (np.float32(expected[0]), found.version)


def _readable(site: Site, limit: int):  # type: ignore[no-untyped-def]
    s = site.scenario.settings
    messages = [message for part in site.scenario.impressions for message in part]
    for m in messages[:: max(1, len(messages) // limit)]:
        if m.value is not None:
            yield m, loop.read_impression(loop.Record(0, m.timestamp_ms, m.value), s)


def state_of(learner: Learner) -> State:
    """z and n by key, of every row that is not all zero."""
    found: State = {}
    for rows in learner.table.items():
        found.update(zip(rows.keys.tolist(), map(tuple, rows.columns.tolist()), strict=True))
    return {key: row for key, row in found.items() if any(row)}


def assert_fenced(site: Site, error: BaseException | None) -> None:
    """A learner has ended because another one leads, and says so: by the model, and by the transactional id that it
    used next, to publish a version or to copy a checkpoint."""
    assert isinstance(error, Fenced)
    assert f"another learner publishes {site.model}" in str(error)
    ids = site.config.publisher_id, site.config.copier_id
    assert any(f"(transactional id {taken})" in str(error) for taken in ids), error
