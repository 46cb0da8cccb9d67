"""Texts of `--learn` become configurations; what cannot work is named."""

from __future__ import annotations

import pytest

from stream_learner.core.model.optimizers import make_optimizer
from stream_learner.errors import ConfigError
from stream_learner.evaluate.configurations import MOST, parse_configurations
from stream_learner.evaluate.request import PassPlan


def test_an_optimizer_with_its_settings_and_its_loss() -> None:
    """Names and values as written; the loss is logistic unless it is named."""
    (plain,) = parse_configurations(["adagrad eta=0.1"])
    assert (plain.name, plain.loss.name) == ("adagrad eta=0.1", "logistic")
    assert plain.optimizer == make_optimizer({"name": "adagrad", "eta": 0.1})
    (other,) = parse_configurations(["  ogd   eta=1e-2 schedule=root  loss=quantile tau=0.9 "])
    assert other.name == "ogd eta=1e-2 schedule=root loss=quantile tau=0.9"
    assert (other.loss.name, other.loss.option) == ("quantile", 0.9)
    assert other.optimizer.to_dict()["schedule"] == "root"


def test_commas_make_a_grid() -> None:
    """Every combination, the last name fastest; losses too; configurations in the order given."""
    found = parse_configurations(["ftrl_proximal alpha=0.1,0.2 l1=0,1", "adagrad eta=0.1 loss=hinge,logistic"])
    assert [configuration.name for configuration in found] == [
        "ftrl_proximal alpha=0.1 l1=0",
        "ftrl_proximal alpha=0.1 l1=1",
        "ftrl_proximal alpha=0.2 l1=0",
        "ftrl_proximal alpha=0.2 l1=1",
        "adagrad eta=0.1 loss=hinge",
        "adagrad eta=0.1 loss=logistic",
    ]
    assert [configuration.loss.name for configuration in found[4:]] == ["hinge", "logistic"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown optimizer ''"),
        ("adagard eta=0.1", "did you mean 'adagrad'"),
        ("adagrad etaa=0.1", "did you mean 'eta'"),
        ("adagrad eta", "'eta' is not name=value"),
        ("adagrad eta=", "is not name=value"),
        ("adagrad eta=0.1,,0.2", "is not name=value"),
        ("adagrad eta=0.1 eta=0.2", "eta is given twice"),
        ("adagrad eta=-1", "eta must be"),
        ("adagrad eta=much", "eta"),
        ("adagrad eta=0.1 loss=logistc", "did you mean 'logistic'"),
        ("adagrad eta=0.1 tau=0.5", "no option 'tau'"),
        ("adagrad eta=0.1 loss=quantile tau=2", "tau of the loss quantile must lie between"),
        ("adagrad eta=0.1 loss=quantile tau=x", "tau takes a number"),
        ("name=adagrad", "unknown optimizer 'name=adagrad'"),
        ("adagrad name=x", "the optimizer comes first"),
    ],
)
def test_what_cannot_work_is_named(text: str, words: str) -> None:
    """The text, what is wrong with it, and the nearest name there is."""
    with pytest.raises(ConfigError, match="--learn") as caught:
        parse_configurations([text])
    assert words in caught.value.message


def test_a_grid_has_a_bound() -> None:
    """Each configuration is a model in memory."""
    values = ",".join(str(0.001 * i) for i in range(1, MOST + 2))
    with pytest.raises(ConfigError, match="more than"):
        parse_configurations([f"adagrad eta={values}"])


def test_an_optimizer_that_is_not_defined_for_a_loss_is_refused() -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match="confidence_weighted is defined for"):
        parse_configurations(["confidence_weighted loss=logistic"])


def test_plans_of_no_pass_are_refused() -> None:
    """A plan without a pass, and a holdout that holds everything out, are refused."""
    for given in ((0, False, 10), (2, False, 1)):
        with pytest.raises(ValueError, match="at least"):
            PassPlan(*given)
