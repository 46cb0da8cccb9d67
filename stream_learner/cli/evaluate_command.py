"""`stream-learner evaluate`: compares configurations on examples, predicting each before learning from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stream_learner.cli import evaluate_options as options
from stream_learner.cli.options import AsJson, ConfigFile, Overrides, load, start_logging
from stream_learner.config import ENVIRONMENT_PREFIX

if TYPE_CHECKING:
    from stream_learner.config import Config


def evaluate(
    files: options.Files = None,
    learn: options.Learn = None,
    vw: options.Vw = None,
    load_file: options.Load = None,
    test: options.Test = False,
    format_name: options.Format = "auto",
    log: options.Log = False,
    skip_bad: options.SkipBad = 0,
    passes: options.Passes = 1,
    holdout_off: options.HoldoutOff = False,
    holdout_period: options.HoldoutPeriod = 10,
    label: options.Label = None,
    weight: options.Weight = None,
    columns: options.Columns = None,
    separator: options.Separator = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    quadratic: options.Quadratic = None,
    cubic: options.Cubic = None,
    ngram: options.Ngram = 1,
    skips: options.Skips = 0,
    ignore: options.Ignore = None,
    noconstant: options.NoConstant = False,
    predictions: options.Predictions = None,
    curve: options.Curve = None,
    save: options.Save = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Measure configurations of the learner on your examples: every prediction before its example is learned from.

    Reads VW text, LIBSVM, CSV, JSON lines or Parquet, compressed or not, or with --log a model's training log. All
    configurations learn in one pass over the data, side by side, with the code that learns in production. Without
    --learn, --vw or --load it is the learner of the configuration file, or ftrl_proximal. For example:

    stream-learner evaluate clicks.vw.gz --learn "ftrl_proximal alpha=0.05,0.1 l1=1" --learn "adagrad eta=0.1"

    zcat clicks.vw.gz | stream-learner evaluate - --vw "--ftrl --loss_function logistic" --json

    stream-learner evaluate --log -c model.yaml --learn "ftrl_proximal alpha=0.02,0.05,0.1" --curve curves.png

    stream-learner evaluate day1.csv --label click --save models

    stream-learner evaluate day2.csv --label click --load models/1-ftrl_proximal.slm --test -p predictions.txt

    Several passes hold out every 10th example, and the row is that of the pass that was best on them, as with Vowpal
    Wabbit. docs/evaluate.md has the optimizers, the losses, the formats and every figure.
    """
    from stream_learner.cli.evaluate_view import report
    from stream_learner.evaluate.request import EvaluationRequest, TableColumns, TextFeatures, pass_plan
    from stream_learner.evaluate.run import Evaluation

    loaded = _configuration(config, overrides)
    request = EvaluationRequest(
        files=tuple(files or ()),
        format=format_name,
        log=log,
        learn=tuple(learn or ()),
        vw=tuple(vw or ()),
        load=load_file,
        test=test,
        config=loaded,
        passes=pass_plan(passes, holdout_off, holdout_period),
        skip_bad=skip_bad,
        text=TextFeatures(tuple(quadratic or ()), tuple(cubic or ()), ngram, skips, tuple(ignore or ()), noconstant),
        table=TableColumns(label, weight, _names(columns), _character(separator), _names(drop), _names(categorical)),
        predictions=predictions,
        save=save,
        curve=curve,
    )
    report(Evaluation(request), as_json=as_json)


def _configuration(file: Path | None, overrides: list[str] | None) -> Config | None:
    """The configuration, None without one: files can be evaluated without a configuration."""
    if file is None and not overrides and not any(name.startswith(ENVIRONMENT_PREFIX) for name in os.environ):
        return None
    config = load(file, overrides, secrets=False)
    start_logging(config)
    return config


def _names(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for text in texts or () for part in text.split(","))


def _character(text: str | None) -> str | None:
    if text is None:
        return None
    character = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(character.encode()) != 1:
        raise typer.BadParameter(f"--separator takes one character, such as , or \\t, not {text!r}")
    return character
