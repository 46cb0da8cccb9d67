"""Makes the plan of an evaluation from its request: models, trials, and how they are fed.

Nothing is read here but the beginnings of files, for their format and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.errors import ConfigError
from stream_learner.evaluate.compiling import compile_learners
from stream_learner.evaluate.configurations import Configuration, parse_configurations
from stream_learner.evaluate.log_source import LogSource, read_log_block
from stream_learner.evaluate.model_file import key_rule_of, load_learner, read_model
from stream_learner.evaluate.models import LearnerModel, Trial
from stream_learner.evaluate.pipeline import Reader, Source, TrialGroup
from stream_learner.evaluate.readers import FileReaders, check_key_rule
from stream_learner.evaluate.request import EvaluationRequest
from stream_learner.evaluate.vw.trials import vw_trials
from stream_learner.roles.common.key_rule import with_key_rule

if TYPE_CHECKING:
    from stream_learner.config import Config

Say = Callable[[str], None]
_LEAVE_OUT: Final = "Leave --learn out: the file says what it learns by."


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The models, readings and blocks of an evaluation, as the pipeline runs them.

    source: where blocks come from. groups: the trials by their way of reading blocks. trials: all of them, in the order
    of the request. files: the files that are read.
    """

    source: Source
    groups: list[TrialGroup]
    trials: list[Trial]
    files: tuple[str, ...] = ()


def make_plan(request: EvaluationRequest, say: Say) -> EvaluationPlan:
    """Make the models, and open the examples. Raises ConfigError, BadInput, and the errors of Kafka."""
    if request.log and request.config is not None:
        request = replace(request, config=with_key_rule(request.config))
    tools = vw_trials(request)
    trials = _learner_trials(request) if request.load is None else _loaded(request.load, request)
    key_rule = next((trial.model.key_rule for trial in trials), _configured_rule(request))
    if request.log:
        assert request.config is not None
        check_key_rule(key_rule, request.config)
        plan = EvaluationPlan(LogSource(request.config), [TrialGroup(lambda: read_log_block, trials)], trials)
        compile_learners([trial.model.learner.optimizer for trial in trials], say)
        return plan
    readers = FileReaders(request, [file for tool in tools for file in tool.files], key_rule)
    groups: dict[Hashable, TrialGroup] = {}
    for trial in trials:
        _group(groups, None, readers.reader_of).trials.append(trial)
    for tool in tools:
        _group(groups, tool.reading, readers.reader_of).trials.append(tool.trial)
    trials = [*trials, *(tool.trial for tool in tools)]
    compile_learners([trial.model.learner.optimizer for trial in trials], say)
    readers.compile_parsers([group.make_reader for group in groups.values()], say)
    return EvaluationPlan(readers.source, list(groups.values()), trials, readers.files)


def _configured_rule(request: EvaluationRequest) -> int:
    """The key rule of the configuration file; the newest without one."""
    return (None if request.config is None else request.config.features.key_rule) or NEWEST_RULE


def _group(
    groups: dict[Hashable, TrialGroup], reading: Any, reader_of: Callable[[Any], Callable[[], Reader]]
) -> TrialGroup:
    """The group of trials with this reading, made at the first call."""
    if reading not in groups:
        groups[reading] = TrialGroup(reader_of(reading), [])
    return groups[reading]


def _learner_trials(request: EvaluationRequest) -> list[Trial]:
    """A trial for each `--learn` configuration; if nothing else is asked for, for the learner of the configuration
    file."""
    configurations = parse_configurations(request.learn)
    if not (configurations or request.vw):
        configurations = [default_configuration(request.config)]
    if len({configuration.name for configuration in configurations}) < len(configurations):
        raise ConfigError("a configuration is given twice", action="Give each --learn once.")
    rule = _configured_rule(request)
    models = {c.name: LearnerModel(Learner(c.optimizer, loss=c.loss), rule) for c in configurations}
    return [Trial(name, model, request.passes) for name, model in models.items()]


def default_configuration(config: Config | None) -> Configuration:
    """The learner of the configuration file; without a file, FTRL-Proximal with its defaults and logistic loss."""
    if config is None:
        return parse_configurations([FtrlProximal.name])[0]
    optimizer = config.optimizer()
    settings = {key: value for key, value in optimizer.to_dict().items() if value is not None}
    return Configuration(_name(settings, str(config.loss())), optimizer, config.loss())


def _name(settings: dict[str, Any], loss: str) -> str:
    given = dict(settings)
    return " ".join([given.pop("name"), *(f"{key}={value}" for key, value in given.items()), f"loss={loss}"])


def _loaded(file: Path, request: EvaluationRequest) -> list[Trial]:
    """The trial of a saved model. If a configuration is given, the model must be of that configuration.

    The list is empty for the model of a `--vw` command line, whose trial loads the file itself.
    """
    configurations = parse_configurations(request.learn)
    if len(configurations) + len(request.vw) > 1:
        raise ConfigError("--load goes on with one model, and there are several configurations", action=_LEAVE_OUT)
    if request.vw:
        return []
    about, arrays = read_model(file)
    learner = load_learner(file, about, arrays)
    settings = {key: value for key, value in learner.optimizer.to_dict().items() if value is not None}
    name = _name(settings, str(learner.loss))
    for asked in configurations:
        if (asked.optimizer, asked.loss) != (learner.optimizer, learner.loss):
            raise ConfigError(f"{file} is a model of {name}, not of {asked.name}", action=_LEAVE_OUT)
        name = asked.name
    model = LearnerModel(learner, key_rule_of(file, about))
    return [Trial(name, model, request.passes, learn=not request.test)]
