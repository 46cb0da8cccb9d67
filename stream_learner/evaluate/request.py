"""The request for an evaluation, checked without opening a file; and the rules for several passes.

With more than one pass the rules are those of Vowpal Wabbit. Every `period`-th example of a pass, counted from 1, is
held out: it is predicted and measured in every pass and never learned from. The loss of a pass is the mean loss of the
held-out examples. The figures reported are those of the best pass, and after `PATIENCE` passes in a row that are no
better than the best one the run ends. With one pass, or with holdout off, every example is measured before it is
learned from, over all passes together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.errors import ConfigError

if TYPE_CHECKING:
    from stream_learner.config import Config


PATIENCE: Final = 3
PERIOD: Final = 10


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The number of passes, and the examples held out. Raises ValueError for less than one pass, or a period under 2.

    patience: the run ends after so many passes in a row that are no better than the best one.
    """

    passes: int = 1
    holdout_off: bool = False
    period: int = PERIOD
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        if self.passes < 1 or self.period < 2:
            raise ValueError(
                f"passes ({self.passes}) must be at least 1, the holdout period ({self.period}) at least 2"
            )

    @property
    def holds_out(self) -> bool:
        """Whether any example is held out."""
        return self.passes > 1 and not self.holdout_off

    def held_out(self, before: int, count: int) -> NDArray[np.bool_]:
        """bool[count]: which of the examples before + 1 … before + count of a pass are held out."""
        if not self.holds_out:
            return np.zeros(count, np.bool_)
        held_out: NDArray[np.bool_] = np.arange(before + 1, before + count + 1) % self.period == 0
        return held_out


class BestPass:
    """Keeps track of the best pass so far, and of when to end."""

    def __init__(self, plan: PassPlan) -> None:
        self._plan = plan
        self.finished = 0
        self._best = math.inf
        self._waited = 0

    @property
    def done(self) -> bool:
        """Whether there is no further pass."""
        return self.finished >= self._plan.passes or self._waited >= self._plan.patience

    def finish(self, loss: float | None) -> bool:
        """Note the mean loss of a pass that has ended. Returns whether the pass is the best so far."""
        self.finished += 1
        if loss is not None and loss < self._best:
            self._best, self._waited = loss, 0
            return True
        self._waited += self._plan.holds_out
        return False


STDIN = "-"


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """The options of parsing VW text, for the configurations of `--learn`."""

    quadratic: tuple[str, ...] = ()
    cubic: tuple[str, ...] = ()
    ngram: int = 1
    skips: int = 0
    ignore: tuple[str, ...] = ()
    noconstant: bool = False

    def given(self) -> list[str]:
        """The options that differ from their defaults, by their names on the command line."""
        return _given(self, {"quadratic": "-q"})


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The meaning of columns of CSV or Parquet, or of fields of JSON lines; None or empty: the default of the
    format."""

    label: str | None = None
    weight: str | None = None
    columns: tuple[str, ...] = ()
    separator: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def given(self) -> list[str]:
        """The options that differ from their defaults, by their names on the command line."""
        return _given(self, {})


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """A request for an evaluation.

    files: paths, or `STDIN`; empty with `log`, or if a VW command line names a file. learn, vw: the texts of
    configurations. config: the configuration file, None without one. Raises ConfigError for a request that cannot
    work.
    """

    files: tuple[str, ...] = ()
    format: str = "auto"
    log: bool = False
    learn: tuple[str, ...] = ()
    vw: tuple[str, ...] = ()
    load: Path | None = None
    test: bool = False
    config: Config | None = None
    passes: PassPlan = field(default_factory=PassPlan)
    skip_bad: int = 0
    text: TextFeatures = field(default_factory=TextFeatures)
    table: TableColumns = field(default_factory=TableColumns)
    predictions: Path | None = None
    save: Path | None = None
    curve: Path | None = None

    def __post_init__(self) -> None:
        if self.log and self.files:
            raise _refused("both --log and files were given", "Evaluate one of them at a time.")
        if self.log and self.config is None:
            raise _refused("--log needs to know which training log", "Give the configuration of the model with -c.")
        if self.log and self.vw:
            raise _refused(
                "a training log has no text for --vw to read", "Use --learn, or evaluate VW text from files."
            )
        self._check_text()
        if STDIN in self.files and self.passes.passes > 1:
            raise _refused("standard input can be read only once", "Put the examples into a file for several passes.")
        if self.files.count(STDIN) > 1:
            raise _refused("standard input was given twice", "Name it once.")
        if self.test and self.load is None:
            raise _refused("--test predicts with a model that there is", "Name its file with --load.")

    def _check_text(self) -> None:
        """Raise ConfigError for options about text that would have no effect."""
        if self.log and (given := [*self.text.given(), *self.table.given()]):
            raise _refused(f"{given[0]} means nothing for a training log", "Its features are hashed; leave it out.")
        if self.vw and not self.learn and (given := self.text.given()):
            raise _refused(f"{given[0]} beside --vw means nothing to it", "Write it into the command line of --vw.")


def _given(options: Any, short: Mapping[str, str]) -> list[str]:
    changed = [f.name for f in fields(options) if getattr(options, f.name) != f.default]
    return [short.get(name, f"--{name}") for name in changed]


def pass_plan(passes: int, holdout_off: bool, period: int) -> PassPlan:
    """The plan of passes that the options describe. Raises ConfigError."""
    try:
        return PassPlan(passes, holdout_off, period)
    except ValueError as error:
        raise _refused(str(error), "Correct --passes or --holdout-period.") from None


def _refused(what: str, action: str) -> ConfigError:
    return ConfigError(what, action=action)
