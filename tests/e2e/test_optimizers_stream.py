"""Other optimizers than the default through real roles: killed, started again, published, followed by scorers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_learner.config import Config
from stream_learner.core.machine.arithmetic import exp
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import sample_optimizer
from stream_learner.core.parts import compile_parts, fold_part
from stream_learner.operations.diff.run import compare_models
from stream_learner.operations.inspect_model import inspect_feature, inspect_snapshot
from stream_learner.roles.scorer.scorer import Scorer
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import Site, running, wait_until
from tests.e2e.test_variants import crash
from tests.e2e.variants import joined_site, role, run_until_done, variant
from tests.oracles.optimizers import make
from tests.scenarios import scenario
from tests.waiting import patience

KINDS: dict[str, dict[str, Any]] = {
    "adagrad": {"optimizer": {"eta": 0.3}},
    "pc_ogd": {"optimizer": {"low": -0.4, "high": 0.4}},
    "normalized": {"optimizer": {"eta": 0.4}, "loss": {"name": "half_squared"}},
    "averaged": {"optimizer": {"eta": 0.2, "schedule": "root"}, "loss": {"name": "poisson"}},
    "truncated_gradient": {"optimizer": {"l1": 0.01, "every": 5, "eta": 0.2}},
    "fobos": {"optimizer": {"l1": 0.002, "eta": 0.3}},
    "rda": {"optimizer": {"l1": 0.002, "gamma": 5.0}},
    "ftrl_sqrt": {"optimizer": {"c": 3.0}},
    "coin": {"optimizer": {}},
}
"""One of each kind: rows that stay; that move by the number of steps, or by formula; scalars; other losses."""

ORACLE_LOSSES = {"logistic": "log_loss", "half_squared": "squared", "poisson": "poisson"}


@pytest.fixture(scope="module", autouse=True)
def _kernels_of_the_optimizers() -> None:
    """Compiled once, so that no test waits for it."""
    compile_parts(fold_part(sample_optimizer(name)) for name in KINDS)


def configured(site: Site, name: str, label: str = "", **learner: Any) -> Config:
    """A model of the site's log with one of `KINDS`."""
    settings = {**KINDS[name], "optimizer": {"name": name, **KINDS[name]["optimizer"]}, **learner}
    model = f"{name.replace('_', '-')}{label}"
    state = {"state_dir": str(site.folder / model), "checkpoint_interval": "1s"}
    return variant(site, model, learner={**state, **settings}, snapshots={"shards": 2})


def weights_of(learner: Learner) -> dict[int, float]:
    """Every row's weight, as float64."""
    found: dict[int, float] = {}
    for rows in learner.table.items():
        found.update(zip(rows.keys.tolist(), learner.weights(rows.columns).tolist(), strict=True))
    return found


def dense_weights(site: Site, config: Config) -> dict[int, float]:
    """The weights of the dense oracle, which updates every coordinate at every step."""
    examples = [example for part in site.scenario.expected() for example in part.examples]
    keys = sorted({key for example in examples for key, _ in example.features})
    place = {key: i for i, key in enumerate(keys)}
    settings = config.learner.optimizer.given()
    name, loss = settings.pop("name"), config.learner.loss.name
    schedules = {"schedule", "decay", "t0", "power"} & settings.keys()
    if schedules:
        eta, kept = settings["eta"], {k: v for k, v in settings.items() if k not in schedules}
        settings = {**kept, "eta": (lambda t, k: eta / t**0.5) if settings["schedule"] == "root" else eta}
    oracle = make(name, len(keys), ORACLE_LOSSES[loss], **settings)
    for example in sorted(examples, key=lambda e: (e.tick, e.partition)):
        if np.isfinite([example.label, example.weight, *(x for _, x in example.features)]).all():
            oracle.update({place[key]: x for key, x in example.features}, example.label, example.weight)
    return dict(zip(keys, oracle.weights().tolist(), strict=True))


def assert_serves(scorer: Scorer, learner: Learner, tick: int) -> None:
    """A scorer has the learner's weights to the bit, and predicts with the link of its loss."""
    assert (scorer.version, scorer.description["digest"]) == (tick, f"{learner.digest():016x}")
    weights = {key: np.float32(weight) for key, weight in weights_of(learner).items()}
    assert {key: np.float32(scorer.weight(key)) for key in weights} == weights
    key = max(weights, key=lambda key: abs(weights[key]))
    margin = float(weights[key])
    expected = {"logistic": 1.0 / (1.0 + exp(-margin)), "poisson": exp(margin), "half_squared": margin}
    found = scorer.predict_hashed([key], [1.0], [0, 1]).p_click
    np.testing.assert_allclose(found, [expected[learner.loss.name]], rtol=1e-15)


@pytest.mark.thorough
def test_models_stopped_and_crashed_are_those_of_undisturbed_learners(make_site: MakeSite) -> None:
    """State and snapshots of every kind: the bits of a fold in one go, and the weights of the dense oracle."""
    site = joined_site(make_site, "plain")
    configs = [configured(site, name) for name in KINDS]
    alone = [configured(site, name, "-alone", publish=False) for name in KINDS]
    ticks = sorted({e.tick for part in site.scenario.expected() for e in part.examples})
    run_until_done(role(*configs, until_tick=ticks[len(ticks) // 3]))
    crash(role(*configs, until_tick=ticks[len(ticks) // 2]))
    crash(role(*configs, until_tick=ticks[-2]))
    disturbed = run_until_done(role(*configs, until_tick=site.end_tick))
    undisturbed = run_until_done(role(*alone, until_tick=site.end_tick))
    for fold, straight in zip(disturbed.models, undisturbed.models, strict=True):
        learner, name = fold.learner, fold.config.model
        assert learner.digest() == learner.digest_full() == straight.learner.digest(), name
        assert learner.state_scalars() == straight.learner.state_scalars(), name
        found, dense = weights_of(learner), dense_weights(site, fold.config)
        assert sum(map(bool, dense.values())) > 20, name
        ours = [found.get(key, 0.0) for key in dense]
        np.testing.assert_allclose(ours, list(dense.values()), rtol=1e-9, atol=1e-9, err_msg=name)
        with Scorer(site.settings.bootstrap, name, stale_after_ms=None) as scorer:
            scorer.wait_ready(patience())
            assert_serves(scorer, learner, site.end_tick)
    assert_inspected(configs, next(iter(found)))


def assert_inspected(configs: list[Config], key: int) -> None:
    """`inspect` and `diff` take models of other optimizers and losses."""
    squared, poisson = configs[list(KINDS).index("normalized")], configs[list(KINDS).index("averaged")]
    assert inspect_snapshot(poisson)["loss"] == {"name": "poisson"}
    found = inspect_feature(squared, f"0x{key:016x}")
    assert {"weight", "w", "s", "touched_tick"} <= found.keys()
    compared = compare_models(squared, poisson)
    assert (compared["same_optimizer"], compared["digests"], compared["equal"]) == (False, "differ", False)


@pytest.mark.thorough
def test_a_learner_whose_weights_move_is_killed_and_a_scorer_follows_it(make_site: MakeSite, tmp_path: Path) -> None:
    """kill -9 after a publication, and after a checkpoint: the scorer has the weights of the fold in one go."""
    settings = {"optimizer": {"name": "averaged", "eta": 0.2}, "loss": {"name": "hinge"}}
    site = make_site(scenario("plain").with_settings(agree=2), learner=settings)
    rounds = 2
    with running(site.joiner()), site.scorer() as scorer:
        for turn in range(rounds):
            with process_of(site, "learn") as process:
                process.wait_for("every_publication_is_the_whole_model")
                version = scorer.version
                site.produce(turn / (rounds + 1), (turn + 1) / (rounds + 1))
                wait_until(lambda: scorer.version > version, "a new version")  # noqa: B023
                if turn % 2:
                    process.wait_for('"checkpoint"')
                process.kill()
        with process_of(site, "learn"):
            site.produce(rounds / (rounds + 1), 1)
            wait_until(lambda: scorer.version >= site.end_tick, "the last version")
        state = {"state_dir": str(tmp_path / "alone"), "publish": False}
        undisturbed = site.learner(site.changed(learner=state))
        with running(undisturbed):
            wait_until(lambda: undisturbed.tick >= scorer.version, "every tick folded")
        assert_serves_margins(scorer, undisturbed.learner)


def assert_serves_margins(scorer: Scorer, learner: Learner) -> None:
    """The weights of a fold in one go; a prediction is the margin, for hinge knows no probability."""
    assert scorer.description["digest"] == f"{learner.digest():016x}"
    weights = {key: np.float32(weight) for key, weight in weights_of(learner).items()}
    assert {key: np.float32(scorer.weight(key)) for key in weights} == weights
    keys = list(weights)[:3]
    found = scorer.predict_hashed(keys, np.ones(len(keys)), np.arange(len(keys) + 1)).p_click
    assert found.tolist() == [float(weights[key]) for key in keys]
