"""`evaluate`, as a command: rows against the dense oracle, formats, passes, bad lines, models, predictions, errors."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import vowpalwabbit

from stream_learner.evaluate.model_file import read_model
from tests.cli_e2e.commands import Ended, answer_of
from tests.cli_e2e.conftest import Learned
from tests.core.model.optimizers.optimizer_help import in_domain, oracle_for
from tests.evaluate.evaluation_help import DIMENSION, generated, vw_text
from tests.oracles.optimizers.base import Example, progressive
from tests.waiting import patience

FIELDS = [
    "config",
    "examples",
    "average_loss",
    "log_loss",
    "normalized_entropy",
    "auc",
    "calibration",
    "mistakes",
    "nonzero",
    "seconds",
]
SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("ftrl_proximal", "logistic", {"alpha": 0.3, "beta": 0.5, "l1": 0.05, "l2": 0.1}),
    ("ogd", "hinge", {"eta": 0.2, "schedule": "root"}),
    ("ogd", "exponential", {"eta": 0.05, "schedule": "power", "t0": 2.0, "power": 0.5, "decay": 0.8}),
    ("adagrad", "half_squared", {"eta": 0.4}),
    ("normalized", "logistic", {"eta": 0.3}),
    ("averaged", "logistic", {"eta": 0.1}),
    ("invariant", "logistic", {"eta": 0.2}),
    ("invariant", "hinge", {"eta": 0.2}),
    ("fobos", "logistic", {"eta": 0.1, "l1": 0.01}),
    ("truncated_gradient", "logistic", {"eta": 0.1, "l1": 0.05, "every": 3, "theta": 0.5}),
    ("rda", "logistic", {"gamma": 1.0, "l1": 0.01}),
    ("ftrl_sqrt", "logistic", {"c": 2.0}),
]
ROWS = 150


Evaluate = Callable[..., Ended]


@pytest.fixture
def evaluate() -> Evaluate:
    """`stream-learner evaluate` in this process, which has the kernels, to its end."""
    return partial(answer_of, "evaluate")


def learn(name: str, loss: str, hyper: dict[str, Any]) -> str:
    """A configuration as one writes it."""
    return " ".join([name, *(f"{key}={value}" for key, value in hyper.items()), f"loss={loss}"])


def with_constant(examples: list[Example], loss: str) -> list[Example]:
    """The constant feature as one more coordinate, labels as the oracle has them."""
    return [Example({**e.x, DIMENSION: 1.0}, in_domain(loss, e.y), e.h) for e in examples]


def written(folder: Path, examples: list[Example], name: str = "clicks.vw") -> Path:
    """Examples as a file of VW text."""
    file = folder / name
    text = vw_text(examples).encode()
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return file


def rows_of(ended: Ended) -> list[dict[str, Any]]:
    """The list that `--json` prints; no NaN in it."""
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = json.loads(ended.out, parse_constant=pytest.fail)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("passes", [1, 3])
def test_rows_of_many_configurations_are_those_of_the_oracle(tmp_path: Path, evaluate: Evaluate, passes: int) -> None:
    """All optimizers at once over one file, compressed; each row as the dense oracle measures it alone."""
    examples = generated(ROWS)
    file = written(tmp_path, examples, "clicks.vw.gz")
    options = [word for setting in SETTINGS for word in ("--learn", learn(*setting))]
    rows = rows_of(evaluate(file, *options, "--passes", str(passes), "--holdout-off", "--json"))
    assert [row["config"] for row in rows] == [learn(*setting) for setting in SETTINGS]
    for row, (name, loss, hyper) in zip(rows, SETTINGS, strict=True):
        assert list(row) == FIELDS
        oracle = oracle_for(name, loss, hyper, DIMENSION + 1)
        expected = progressive(oracle, with_constant(examples, loss), passes)
        assert row["examples"] == ROWS * passes
        assert row["average_loss"] == pytest.approx(expected.average_loss, rel=1e-9), row
        assert row["mistakes"] == (None if loss == "half_squared" else expected.mistakes), row
        assert row["nonzero"] == sum(abs(w) > 1e-12 for w in expected.weights), row
        assert row["log_loss"] == (row["average_loss"] if loss == "logistic" else None)


def test_every_format_gives_the_same_rows(tmp_path: Path, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    """VW text, LIBSVM, CSV, JSON lines, Parquet, each guessed; gzip, Zstandard, standard input."""
    import pyarrow
    import zstandard
    from pyarrow import parquet

    examples = generated(ROWS, weights=False)
    names = [f"f{i}" for i in range(DIMENSION)]
    cells = [[repr(e.x[i]) if i in e.x else "" for i in range(DIMENSION)] for e in examples]
    csv = "\n".join(
        [",".join(["click", *names]), *(",".join([f"{e.y:g}", *c]) for e, c in zip(examples, cells, strict=True))]
    )
    records = [{"click": e.y, **{f"f{i}": v for i, v in e.x.items()}} for e in examples]
    files = {
        "a.vw": vw_text(examples).encode(),
        "a.svm": "".join(f"{e.y:g} {' '.join(f'{i}:{v!r}' for i, v in e.x.items())}\n" for e in examples).encode(),
        "b.csv": csv.encode(),
        "b.json": "".join(json.dumps(record) + "\n" for record in records).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "c.csv.zst").write_bytes(zstandard.compress(files["b.csv"]))
    columns = {name: [record.get(name) for record in records] for name in ("click", *names)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "b.parquet")
    options = ["--learn", learn(*SETTINGS[0]), "--json"]
    named = ["a.vw", "a.svm", "b.csv", "b.json", "c.csv.zst", "b.parquet"]
    config = tmp_path / "numbers.yaml"
    config.write_text(
        "model: ctr\nkafka: {bootstrap.servers: 'localhost:1'}\ninput: {impressions: {topic: a}, clicks: {topic: b}}\n"
        f"features: {{fields: {{{', '.join(f'{name}: {{kind: number}}' for name in names)}}}}}\n"
    )
    events = ["--label", "click", "-c", config]
    commands = [[tmp_path / n, *options, *([] if n[0] == "a" else events)] for n in named]
    found = [rows_of(ended)[0] for ended in (evaluate(*command) for command in commands)]
    with (tmp_path / "a.vw").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found += rows_of(evaluate("-", *options))
    oracle = oracle_for(*SETTINGS[0][:2], SETTINGS[0][2], DIMENSION + 1)
    expected = progressive(oracle, with_constant(examples, "logistic")).average_loss
    for row in found:
        assert row["average_loss"] == pytest.approx(expected, rel=1e-9)
        assert (row["examples"], row["mistakes"], row["nonzero"]) == tuple(
            found[0][name] for name in ("examples", "mistakes", "nonzero")
        )


def test_a_bad_line_is_named_and_may_be_skipped(tmp_path: Path, evaluate: Evaluate) -> None:
    """File, line, column, what was expected; exit code 61. With --skip-bad the rest is as if it were not there."""
    lines = vw_text(generated(30)).splitlines()
    good, bad = tmp_path / "good.vw", tmp_path / "bad.vw"
    good.write_text("\n".join(lines) + "\n")
    bad.write_text("\n".join([*lines[:20], "1 |n f1:0.5 f2:x f3:1", *lines[20:]]) + "\n")
    refused, skipped, plain = evaluate(bad), evaluate(bad, "--skip-bad", "1", "--json"), evaluate(good, "--json")
    assert refused.code == 61
    assert re.search(r"bad\.vw line 21 column \d+: expected ", refused.err)
    assert "--skip-bad" in refused.err and refused.out == ""
    assert "1 bad line was skipped" in skipped.err
    with_time_left_out = [{**rows_of(ended)[0], "seconds": 0} for ended in (skipped, plain)]
    assert with_time_left_out[0] == with_time_left_out[1]


def test_a_model_goes_on_where_it_was_saved(tmp_path: Path, evaluate: Evaluate) -> None:
    """Saved after the first file and loaded for the second: the bytes of the model at the end are those of one run."""
    examples = generated(80)
    one, two = written(tmp_path, examples[:50], "one.vw"), written(tmp_path, examples[50:], "two.vw")
    setting = learn(*SETTINGS[0])
    first = evaluate(one, "--learn", setting, "--save", tmp_path / "m1")
    assert first.code == 0, first.err
    model = tmp_path / "m1" / "1-ftrl_proximal.slm"
    on, whole, other = (
        evaluate(two, "--load", model, "--save", tmp_path / "m2", "--json"),
        evaluate(one, two, "--learn", setting, "--save", tmp_path / "m3", "--json"),
        evaluate(two, "--load", model, "--learn", "adagrad eta=0.1"),
    )
    assert rows_of(on)[0]["nonzero"] == rows_of(whole)[0]["nonzero"]
    assert (tmp_path / "m2" / model.name).read_bytes() == (tmp_path / "m3" / model.name).read_bytes()
    assert other.code == 10 and "is a model of ftrl_proximal" in other.err


def test_a_saved_model_keeps_the_rule_of_its_keys(tmp_path: Path, evaluate: Evaluate) -> None:
    """By rule 1 the number `a=b` is the category `b` of `a`, and a model of that rule goes on so; a configuration of
    another rule is refused. The file of a model of rule 1 says nothing of it, as none did before there was another."""
    config, train, ask = tmp_path / "m.yaml", tmp_path / "train.json", tmp_path / "ask.json"
    config.write_text(
        "model: ctr\nkafka: {bootstrap.servers: 'localhost:1'}\ninput: {impressions: {topic: a}, clicks: {topic: b}}\n"
    )
    train.write_text('{"label":1,"a":"b"}\n{"label":0,"c":1}\n' * 20)
    ask.write_text('{"a":"b"}\n{"a=b":1}\n{}\n')
    chances = {}
    for rule, another in ((1, 2), (2, 3), (3, 1)):
        folder = tmp_path / str(rule)
        saved = evaluate(train, "-c", config, "--set", f"features.key_rule={rule}", "--save", folder)
        assert saved.code == 0, saved.err
        model, asked = folder / "1-ftrl_proximal.slm", folder / "asked.txt"
        assert read_model(model)[0].get("key_rule") == (None if rule == 1 else rule)
        evaluate(ask, "--load", model, "--test", "--predictions", asked)
        chances[rule] = asked.read_text().split()
        other = evaluate(ask, "--load", model, "--test", "-c", config, "--set", f"features.key_rule={another}")
        assert other.code == 10 and f"saved with key rule {rule}, features.key_rule is {another}" in other.err
    (category, number, nothing), by_2 = chances[1], chances[2]
    assert category == number != nothing
    assert by_2 == chances[3] == [category, nothing, nothing]


def test_predictions_of_a_model_that_is_only_tested(tmp_path: Path, evaluate: Evaluate) -> None:
    """A line each, with its tag; the lines need no label; the model stays as it was."""
    examples = generated(40)
    train = written(tmp_path, examples)
    text = "".join(f"'t{i} |n f0:{i / 10}\n" for i in range(5))
    (tmp_path / "ask.vw").write_text(text)
    evaluate(train, "--learn", learn(*SETTINGS[0]), "--save", tmp_path)
    asked = evaluate(
        *(tmp_path / "ask.vw", "--load", tmp_path / "1-ftrl_proximal.slm", "--test", "--json"),
        *("--predictions", tmp_path / "p.txt", "--save", tmp_path / "after"),
    )
    assert rows_of(asked)[0]["examples"] == 0
    lines = [line.split(" ") for line in (tmp_path / "p.txt").read_text().splitlines()]
    assert [line[1] for line in lines] == ["t0", "t1", "t2", "t3", "t4"]
    chances = [float(line[0]) for line in lines]
    assert chances == sorted(chances) and 0.0 < chances[0] < chances[-1] < 1.0
    name = "1-ftrl_proximal.slm"
    assert (tmp_path / "after" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_table_in_a_pipe_has_a_whole_line_for_each_configuration(tmp_path: Path, evaluate: Evaluate) -> None:
    """However long its name: names and figures below their titles, in plain characters, with those of `--json`."""
    file = written(tmp_path, generated(60))
    names = [learn("ftrl_proximal", "logistic", {"alpha": a, "beta": 1.0, "l1": 0.0, "l2": 1e-300}) for a in (0.1, 2.5)]
    options = [word for name in names for word in ("--learn", name)]
    head, *lines = evaluate(file, *options).out.splitlines()
    assert head.split()[:3] == ["config", "examples", "loss"] and "".join([head, *lines]).isascii()
    for name, line, row in zip(names, lines, rows_of(evaluate(file, *options, "--json")), strict=True):
        assert line.startswith(name) and len(line) == len(head)
        assert line[len(name) :].split()[:2] == ["60", f"{row['average_loss']:.6f}"]


def test_curves_are_drawn(tmp_path: Path, evaluate: Evaluate) -> None:
    """A plot with a line for each configuration, and the same as JSON."""
    file = written(tmp_path, generated(60))
    drawn, points = (
        evaluate(file, "--learn", "ftrl_proximal alpha=0.1,0.2", "--curve", tmp_path / "c.svg"),
        evaluate(file, "--learn", "ftrl_proximal alpha=0.1,0.2", "--curve", tmp_path / "c.json", "--json"),
    )
    assert drawn.code == 0 and "ftrl_proximal alpha=0.2" in drawn.out
    assert "<svg" in (tmp_path / "c.svg").read_text()
    curves = json.loads((tmp_path / "c.json").read_text())
    rows = rows_of(points)
    assert [curve["config"] for curve in curves] == ["ftrl_proximal alpha=0.1", "ftrl_proximal alpha=0.2"]
    assert [curve["points"][-1]["average_loss"] for curve in curves] == [row["average_loss"] for row in rows]


def test_without_a_configuration_it_is_ftrl_proximal(tmp_path: Path, evaluate: Evaluate) -> None:
    """With its defaults, by its name; with a configuration file, that file's learner."""
    file = written(tmp_path, generated(50))
    config = tmp_path / "model.yaml"
    config.write_text(
        "model: ctr\nkafka: {bootstrap.servers: 'localhost:1'}\n"
        "input: {impressions: {topic: a}, clicks: {topic: b}}\nlearner: {optimizer: {alpha: 0.4}}\n"
    )
    plain, named, configured, same = (
        evaluate(file, "--json"),
        evaluate(file, "--json", "--learn", "ftrl_proximal"),
        evaluate(file, "--json", "-c", config),
        evaluate(file, "--json", "--learn", "ftrl_proximal alpha=0.4"),
    )
    losses = [rows_of(ended)[0]["average_loss"] for ended in (plain, named, configured, same)]
    assert losses[0] == losses[1] != losses[2] == losses[3]
    assert "alpha=0.4" in rows_of(configured)[0]["config"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 10, "nothing to evaluate on"),
        (["{missing}"], 61, "No such file"),
        (["{file}", "--learn", "adagard eta=1"], 10, "did you mean 'adagrad'"),
        (["{file}", "--log"], 10, "both --log and files"),
        (["--log"], 10, "Give the configuration of the model with -c"),
        (["-", "--passes", "2"], 10, "only once"),
        (["{file}", "--test"], 10, "Name its file with --load"),
        (["{file}", "--curve", "x.gif"], 10, ".json, .png, .svg"),
        (["{file}", "--format", "xml"], 10, "auto, vw"),
        (["{file}", "--load", "{file}"], 61, "no model of stream-learner"),
        (["{file}", "-q", "abc"], 10, "must be 2 letters"),
        (["{file}", "--predictions", "{missing}/p.txt"], 61, "cannot be written"),
        (["{file}", "--skip-bad", "-1"], 2, "--skip-bad"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_what_cannot_work_is_said_with_what_to_do(
    tmp_path: Path, evaluate: Evaluate, arguments: list[str], code: int, words: str
) -> None:
    """Exit code, what was found, what to do; nothing on stdout, no traceback."""
    file = written(tmp_path, generated(5))
    places = {"file": str(file), "missing": str(tmp_path / "missing")}
    ended = evaluate(*(argument.format(**places) for argument in arguments))
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert words in ended.err and "Traceback" not in ended.err


def test_a_training_log_is_folded_as_the_learner_folds_it(tmp_path: Path, learned: Learned, evaluate: Evaluate) -> None:
    """Over the log the live configuration ends with the digest that the learner has published; another does not."""
    config = learned.world.file
    live = rows_of(evaluate("--log", "-c", config, "--save", tmp_path, "--json"))[0]
    other = rows_of(evaluate("--log", "-c", config, "--learn", "adagrad eta=0.05", "--json"))[0]
    twice = rows_of(evaluate("--log", "-c", config, "--passes", "2", "--holdout-off", "--json"))[0]
    published = last_published(learned)
    assert read_model(tmp_path / "1-ftrl_proximal.slm")[0]["state"]["digest"] == published["digest"]
    assert live["examples"] == other["examples"] == published["metrics"]["examples"]
    assert twice["examples"] == 2 * live["examples"]
    assert live["log_loss"] == published["metrics"]["log_loss"] != other["log_loss"]


def last_published(learned: Learned) -> dict[str, Any]:
    """The last publication of the learner."""
    found: dict[str, Any] = answer_of("inspect", "snapshot", "-c", learned.world.file, "--json").json
    return found


def test_a_command_line_gives_what_the_tool_prints(tmp_path: Path, evaluate: Evaluate) -> None:
    """Live, beside one of ours; a saved model goes on with its own command line only."""
    examples = generated(120, labels=(-1.0, 1.0))
    whole = written(tmp_path, examples)
    one, two = written(tmp_path, examples[:70], "one.vw"), written(tmp_path, examples[70:], "two.vw")
    flags = ["--loss_function hinge", "--ftrl --l1 0.01 --loss_function logistic"]
    options = [word for flag in flags for word in ("--vw", flag)]
    rows = rows_of(evaluate(whole, *options, "--learn", "adagrad eta=0.1", "--save", tmp_path / "whole", "--json"))
    assert [row["config"] for row in rows] == ["adagrad eta=0.1", *(f"vw {flag}" for flag in flags)]
    for row, flag in zip(rows[1:], flags, strict=True):
        tool = vowpalwabbit.Workspace(f"{flag} -d {whole} --quiet")
        printed = tool.get_sum_loss() / tool.get_weighted_examples()
        tool.finish()
        assert row["average_loss"] == pytest.approx(printed, rel=1e-5), flag
    assert evaluate(one, "--vw", flags[1], "--save", tmp_path / "one").code == 0
    model = tmp_path / "one" / "1-vw.slm"
    on = evaluate(two, "--vw", flags[1], "--load", model, "--save", tmp_path / "two", "--json")
    assert rows_of(on)[0]["nonzero"] == rows[2]["nonzero"]
    assert (tmp_path / "two" / "1-vw.slm").read_bytes() == (tmp_path / "whole" / "3-vw.slm").read_bytes()
    refused = evaluate(two, "--vw", flags[0], "--load", model)
    assert refused.code == 10 and f"is not a model of vw {flags[0]}" in refused.err
    csv = tmp_path / "a.csv"
    csv.write_text("label,site\n1,a\n")
    refused = evaluate(csv, "--vw", flags[0])
    assert refused.code == 10 and "--vw reads VW text" in refused.err


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("", ["--format", "vw"], "there was no example"),
        ("label,site\n", ["--format", "csv"], "there was no example"),
        ("x\ny\n", ["--format", "libsvm", "--skip-bad", "2"], "there was no example"),
        ("5 |a b\n7 |a c\n", ["--learn", "ogd loss=hinge"], "all with a label were refused"),
        ("|a b\n|a c\n", [], "none that was not held out has a label"),
    ],
)
def test_who_has_learned_nothing_says_so(
    tmp_path: Path, evaluate: Evaluate, text: str, arguments: list[str], words: str
) -> None:
    """The rows are printed all the same; the exit code is no success."""
    file = tmp_path / "examples"
    file.write_text(text)
    ended = evaluate(file, *arguments, "--json")
    assert (ended.code, json.loads(ended.out)[0]["examples"]) == (61, 0)
    assert words in ended.err and "Traceback" not in ended.err


def test_one_that_has_learned_nothing_does_not_hide_the_others(tmp_path: Path, evaluate: Evaluate) -> None:
    """Rows and models of all; the message names the one."""
    file = written(tmp_path, generated(20))
    file.write_text(re.sub(r"^\S+", "3", file.read_text(), flags=re.MULTILINE))
    options = ["--learn", "ogd loss=squared", "--learn", "ogd loss=hinge"]
    ended = evaluate(file, *options, "--save", tmp_path / "models", "--json")
    assert ended.code == 61 and "nothing was learned by ogd loss=hinge: of 20" in ended.err
    assert [row["examples"] for row in json.loads(ended.out)] == [20, 0]
    assert len(list((tmp_path / "models").iterdir())) == 2


@pytest.mark.parametrize(
    ("option", "name", "code", "words"),
    [
        ("--predictions", "{file}", 10, "would overwrite what is to be read"),
        ("--curve", "{json}", 10, "would overwrite what is to be read"),
        ("--predictions", "{folder}", 61, "Is a directory"),
        ("--curve", "{folder}/none/c.json", 61, "cannot be written"),
        ("--save", "{file}", 61, "cannot be written"),
        ("--save", "/proc/none", 61, "cannot be written"),
    ],
)
def test_places_that_cannot_be_written_are_found_before_the_work(
    tmp_path: Path, evaluate: Evaluate, option: str, name: str, code: int, words: str
) -> None:
    """Nothing is evaluated, no file of the user is touched, none is left behind."""
    file = written(tmp_path, generated(5))
    (tmp_path / "a.json").write_text('{"label": 1, "a": 2}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    given = name.format(file=file, json=tmp_path / "a.json", folder=tmp_path)
    ended = evaluate(tmp_path / "a.json" if "json}" in name else file, option, given)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert words in ended.err and "Traceback" not in ended.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_said_and_the_figures_are_not_lost(tmp_path: Path, evaluate: Evaluate) -> None:
    """A curve that cannot be written at the end costs no row; a pipe or a device as predictions is not tried before."""
    file, curve = written(tmp_path, generated(20)), tmp_path / "c.json"
    curve.symlink_to("/dev/full")
    ended = evaluate(file, "--curve", curve, "--json")
    assert (ended.code, rows_of(replace(ended, code=0))[0]["examples"]) == (61, 20)
    assert "No space left on device" in ended.err
    ended = evaluate(file, "--predictions", "/dev/full", "--json")
    assert (ended.code, ended.out) == (61, "") and "No space left on device" in ended.err


@pytest.mark.parametrize(
    ("name", "text", "option", "words"),
    [
        ("a.vw", "1 |a b\n", ["--drop", "b"], "--drop means nothing for vw"),
        ("a.csv", "label,b\n1,2\n", ["-q", "ab"], "-q means nothing for csv"),
        ("a.json", '{"label": 1, "b": 2}\n', ["--separator", ","], "--separator means nothing for json"),
        ("a.vw", "1 |a b\n", ["--vw", "--ftrl", "--ngram", "2"], "--ngram beside --vw means nothing"),
    ],
)
def test_an_option_that_nothing_would_heed_is_refused(
    tmp_path: Path, evaluate: Evaluate, name: str, text: str, option: list[str], words: str
) -> None:
    """Rather than passed over in silence."""
    (tmp_path / name).write_text(text)
    ended = evaluate(tmp_path / name, *option)
    assert (ended.code, ended.out) == (10, "") and words in ended.err


def test_columns_by_the_options_that_name_them(tmp_path: Path, evaluate: Evaluate) -> None:
    """Without a header, with another separator, columns left out, numbers as categories: the same as by hand."""
    bare, neat = tmp_path / "bare.txt", tmp_path / "neat.csv"
    bare.write_text("".join(f"{i % 2};{4 + i % 3};{i % 5};x{i % 7};{1 + i % 2}\n" for i in range(60)))
    neat.write_text("label,w,a,b\n" + "".join(f"{i % 2},{1 + i % 2},n{i % 3},{i % 5}\n" for i in range(60)))
    shape = ["--format", "csv", "--columns", "click, a, b, gone, w", "--separator", ";", "--label", "click"]
    found = evaluate(bare, *shape, "--weight", "w", "--drop", "gone", "--categorical", "a", "--json")
    expected = evaluate(neat, "--weight", "w", "--json")
    assert {**rows_of(found)[0], "seconds": 0} == {**rows_of(expected)[0], "seconds": 0}
    one_by_one = ["--drop", "gone", "--drop", "b", "--categorical", "a", "--json"]
    together = ["--drop", "gone,b", "--categorical", "a", "--json"]
    both = [{**rows_of(evaluate(bare, *shape, "--weight", "w", *of))[0], "seconds": 0} for of in (one_by_one, together)]
    assert both[0] == both[1] != {**rows_of(found)[0], "seconds": 0}
    plain = evaluate(bare, *shape, "--weight", "w", "--drop", "gone", "--json")
    assert rows_of(plain)[0]["average_loss"] != rows_of(found)[0]["average_loss"]


def test_an_interruption_ends_it_cleanly(tmp_path: Path) -> None:
    """Ctrl-C while it reads: no traceback, the code of the shell for it, no thread that waits."""
    command = [sys.executable, "-m", "stream_learner", "evaluate", "-", "--format", "vw"]
    # a job of a shell in the background ignores SIGINT, and its children with it
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    predictions = tmp_path / "p.txt"
    with subprocess.Popen(
        [*command, "-p", str(predictions)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, **heeding
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        while not (predictions.exists() and predictions.stat().st_size):
            process.stdin.write(b"1 |a b\n" * 20_000)
        process.send_signal(signal.SIGINT)
        assert process.wait(patience()) == 130
        said = process.stderr.read().splitlines()
        assert [line for line in said if not line.startswith(b"compiling")] == []  # where nothing was compiled before
