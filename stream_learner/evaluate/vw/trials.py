"""The command lines of `--vw` as trials of an evaluation, with how each reads its text and the files it names."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from stream_learner.errors import ConfigError
from stream_learner.evaluate.model_file import load_learner, read_model
from stream_learner.evaluate.models import LearnerModel
from stream_learner.evaluate.request import EvaluationRequest
from stream_learner.evaluate.vw.command import VwCommand, parse_vw
from stream_learner.evaluate.vw.model import VwTrial


@dataclass(frozen=True, slots=True)
class CommandTrial:
    """The trial of a command line. reading: its text options. files: the files it names."""

    trial: VwTrial
    reading: Hashable
    files: tuple[str, ...]


def vw_trials(request: EvaluationRequest) -> list[CommandTrial]:
    """The trials of the command lines of a request. With `load`, the trial goes on with the loaded model.

    Raises ConfigError for a flag that is not supported, or a model of another command line; BadInput for its file.
    """
    found = [_command_trial(parse_vw(text), request) for text in request.vw]
    if request.load is not None:
        for tool in found:
            _restore(tool.trial, request.load)
    return found


def _command_trial(command: VwCommand, request: EvaluationRequest) -> CommandTrial:
    words = command.text.split()
    name = " ".join(words if words[:1] == ["vw"] else ["vw", *words])
    trial = VwTrial(name, command, learn=not (command.test or request.test))
    return CommandTrial(trial, command.reading, command.files)


def _restore(trial: VwTrial, file: Path) -> None:
    """Give a trial the model of a file. It must be of the same command line."""
    learner = load_learner(file, *read_model(file))
    if (learner.optimizer, learner.loss) != (trial.model.learner.optimizer, trial.model.loss):
        raise ConfigError(
            f"{file} is not a model of {trial.name}", action="Give the command line that the model was learned with."
        )
    trial.model = LearnerModel(learner)
