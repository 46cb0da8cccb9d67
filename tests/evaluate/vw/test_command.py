"""What a Vowpal Wabbit command line means: defaults, what flags imply, and what is refused."""

from __future__ import annotations

import pytest

from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.model.optimizers.scale_free import CoinBetting, Pistol
from stream_learner.core.model.optimizers.vw import VwDescent
from stream_learner.errors import ConfigError
from stream_learner.evaluate.request import PassPlan
from stream_learner.evaluate.vw.command import parse_vw
from stream_learner.evaluate.vw.flags import FLAGS, Takes


@pytest.mark.parametrize(
    ("command", "parts", "eta", "initial_t"),
    [
        ("", (True, True, True), 0.5, 0.0),
        ("vw --sgd", (False, False, False), 10.0, 1.0),
        ("--adaptive", (True, False, False), 10.0, 0.0),
        ("--adaptive --normalized", (True, True, False), 0.5, 0.0),
        ("--invariant -l2", (False, False, True), 2.0, 1.0),
        ("--invariant --learning_rate=3 --initial_t 0", (False, False, True), 3.0, 0.0),
    ],
)
def test_parts_and_rates(command: str, parts: tuple[bool, bool, bool], eta: float, initial_t: float) -> None:
    """No part named is all three; the rate and t have defaults of their own for each choice."""
    found = parse_vw(command).optimizer()
    assert isinstance(found, VwDescent)
    assert (found.adaptive, found.normalized, found.invariant) == parts
    assert (found.eta, found.initial_t) == (eta, initial_t)


def test_other_updates_have_their_own_defaults() -> None:
    """Other updates have their own rates, and their own penalties if they have any."""
    assert parse_vw("--ftrl --l1 2").optimizer() == FtrlProximal(0.5, 1.0, 2.0, 0.0)
    assert parse_vw("--pistol").optimizer() == Pistol(alpha=1.0, beta=0.5)
    assert parse_vw("--coin --ftrl_alpha 3").optimizer() == CoinBetting(alpha=3.0, beta=1.0)


def test_text_passes_and_files() -> None:
    """Features, holdout and data; flags that change nothing are taken."""
    found = parse_vw(
        "-d a.vw -q ab --interactions abc --quadratic :a -b 10 --ngram 2 --skips 1 --ignore z --noconstant --hash all "
        "--passes 5 --holdout_period 4 --early_terminate 2 -c -k --cache_file x -P 1000 --quiet -f m -p out b.vw"
    )
    assert found.files == ("a.vw", "b.vw")
    assert found.plan == PassPlan(5, False, 4, 2)
    r = found.reading
    assert (r.hashing, r.bits, r.hash_all, r.noconstant, r.ignore) == ("vw", 10, True, True, "z")
    assert (r.quadratic, r.cubic, r.ngram, r.skips) == (("ab", ":a"), ("abc",), 2, 1)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--nn 2", "--nn is not supported; the nearest supported flag is --"),
        ("--adaptve", "nearest supported flag is --adaptive"),
        ("-i model", "-i is not supported"),
        ("--ftrl --adaptive", "--ftrl and --adaptive exclude each other"),
        ("--coin --pistol", "--pistol and --coin exclude each other"),
        ("--ftrl_alpha 1", "need --ftrl"),
        ("--loss_function expectile", "expectile is not supported; it is one of squared"),
        ("-l fast", "-l takes a number, not 'fast'"),
        ("-b 3.5", "-b takes a whole number"),
        ("-l", "-l needs a number"),
        ("-l 1 -l 2", "-l is given twice, as 1 and 2"),
        ("--sgd=1", "--sgd takes no value"),
        ("--l1 -1", "l1"),
        ("-q abc", "must be 2 letters"),
        ("--interactions abcd", "two or three letters"),
        ("--hash none", "strings or all"),
        ("--max_prediction 1", "--max_prediction is not supported"),
        ("--loss_function quantile --quantile_tau 2", "tau"),
        ("--passes 0", "passes"),
        ("-d 'a", "quotation"),
    ],
)
def test_what_is_refused_says_why(command: str, said: str) -> None:
    """With the command line, and where to look."""
    with pytest.raises(ConfigError) as refused:
        parse_vw(command)
    assert said in str(refused.value)
    assert command in str(refused.value)


def test_every_flag_of_the_table_is_taken() -> None:
    """Alone, or with the flags that it needs; none of them is in the table twice."""
    texts = {
        "loss_function": "hinge",
        "hash": "all",
        "quadratic": "ab",
        "cubic": "abc",
        "interactions": "ab",
    }
    with_others = {"ftrl_alpha": "--ftrl ", "ftrl_beta": "--coin "}
    with_others["skips"] = "--ngram 2 "
    values = {Takes.NOTHING: "", Takes.NUMBER: "0.5", Takes.COUNT: "3", Takes.WORD: "x"}
    for flag in FLAGS:
        for name in flag.names:
            value = texts.get(flag.key, values[flag.takes])
            parse_vw(f"{with_others.get(flag.key, '')}{name} {value}")
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))
