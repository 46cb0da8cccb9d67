"""The plan of a backfill: the models, the log, the beginning and the last tick.

No two models may meet in a topic, a group or a state directory; the plan is refused if they would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream_learner.config import Config
from stream_learner.config.values import format_duration_ms, format_start
from stream_learner.errors import ConfigError

EARLIEST = "earliest"
OWN_SECTIONS = frozenset({"model", "learner", "snapshots", "features"})
"""Sections that may differ between models of one training log; `features` only if the log exists already."""


@dataclass(frozen=True)
class Span:
    """The impressions of [start, until_ms), as far as the topics hold them.

    start: "earliest", or ms since the epoch. until_ms: None for no end.
    """

    start: str | int = EARLIEST
    until_ms: int | None = None


@dataclass(frozen=True)
class BackfillPlan:
    """The task of a backfill. models: the one asked for, then its variants, all of one training log. source: the model
    whose log is folded, None if the backfill joins. joiners: how many processes join. until_tick: the last tick, None
    for no end.
    """

    models: tuple[Config, ...]
    span: Span
    until_tick: int | None
    joiners: int = 1
    source: Config | None = None

    @property
    def main(self) -> Config:
        """The model asked for."""
        return self.models[0]

    @property
    def joins(self) -> bool:
        """Whether it makes a training log of its own."""
        return self.source is None


def last_tick(until_ms: int, window_ms: int, tick_ms: int) -> int:
    """The tick in which the window of the last millisecond before `until_ms` closes: the last tick of a backfill.

    Every impression with a log time before `until_ms` is learned, with its whole window. So are later ones that close
    within the same tick; there are none if `until_ms + window_ms` is a multiple of `tick_ms`.

    >>> last_tick(60_000, window_ms=10_000, tick_ms=1_000), last_tick(60_001, window_ms=10_000, tick_ms=1_000)
    (69, 70)
    """
    return (until_ms - 1 + window_ms) // tick_ms


def make_plan(
    live: Config,
    name: str,
    span: Span,
    *,
    joiners: int = 1,
    max_rate: int | None = None,
    from_log: str | None = None,
    variants: Mapping[str, Config] | None = None,
) -> BackfillPlan:
    """The plan. variants: by name, the configuration of the live model with the variant's own settings.

    Raises ConfigError if two models would meet in a topic, group or directory, or cannot share a training log.
    """
    main = live.renamed(name).with_values({("join", "start"): format_start(span.start)})
    if max_rate is not None:
        main = main.with_values({("join", "max_rate"): max_rate})
    source = None
    if from_log is not None:
        source = live if from_log == live.model else live.renamed(from_log)
        main = _on_log(main, source)
    models = [main]
    for variant, config in (variants or {}).items():
        _refuse_other_sections(live, config, variant, with_features=source is not None)
        models.append(_on_log(config.renamed(variant), main))
    others = [live] if source in (None, live) else [live, source]
    for at, config in enumerate(models):
        for other in (*others, *models[:at]):
            _refuse_meeting(config, other, makes_log=config is main and source is None)
    until_tick = None
    if span.until_ms is not None:
        until_tick = last_tick(span.until_ms, main.join.window_ms, main.join.tick_ms)
    return BackfillPlan(tuple(models), span, until_tick, joiners, source)


def _on_log(config: Config, of: Config) -> Config:
    """The configuration with the training log of another."""
    return config.with_values({("topics", "examples"): of.examples_topic})


def _refuse_meeting(config: Config, other: Config, *, makes_log: bool) -> None:
    """Raise ConfigError if a model would write where another one does."""
    if config.model == other.model:
        raise ConfigError(
            f"{config.model} is another model's name already",
            action="Give the new model a name of its own; the one in the configuration is the live model's.",
        )
    topics = {config.snapshots_topic, config.dead_letters_topic, config.checkpoints_topic}
    topics |= {config.examples_topic} if makes_log else set()
    theirs = {other.examples_topic, other.snapshots_topic, other.dead_letters_topic, other.checkpoints_topic}
    shared = sorted(topics & theirs)
    if shared:
        raise ConfigError(f"models {config.model} and {other.model} would both write to {', '.join(shared)}")
    if config.group == other.group:
        raise ConfigError(f"models {config.model} and {other.model} would have the same group, {config.group}")
    if config.state_dir == other.state_dir:
        raise ConfigError(f"models {config.model} and {other.model} would have the same state, in {config.state_dir}")


def _refuse_other_sections(live: Config, config: Config, variant: str, *, with_features: bool) -> None:
    """Raise ConfigError if a variant differs in how events are joined: it may differ in how it learns."""
    allowed = OWN_SECTIONS if with_features else OWN_SECTIONS - {"features"}
    wrong = [name for name in Config.model_fields if getattr(live, name) != getattr(config, name)]
    wrong = [name for name in wrong if name not in allowed]
    if wrong:
        raise ConfigError(
            f"variant {variant} has other settings of {', '.join(wrong)}, but shares the training log",
            action="A variant may differ in learner.* and snapshots.*, and with --from-log in features.*; for the "
            "rest run a backfill of its own.",
        )


def describe(plan: BackfillPlan) -> str:
    """One sentence that says what the plan does."""
    names = " and ".join(config.model for config in plan.models)
    end = "and stays live" if plan.span.until_ms is None else f"until {format_start(plan.span.until_ms)}"
    if plan.source is not None:
        return f"{names}: folds {plan.source.examples_topic} {end}"
    window = format_duration_ms(plan.main.join.window_ms)
    return f"{names}: joins from {format_start(plan.span.start)} {end}, each impression's window of {window} included"
