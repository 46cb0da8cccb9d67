"""The command lines of `--vw` as trials of an evaluation, with how each reads its text and the files it names."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from pathlib import Path

from stream_learner.core.machine.entries import compile_entries
from stream_learner.errors import BadInput, ConfigError
from stream_learner.evaluate.compiling import notice_if_slow
from stream_learner.evaluate.model_file import load_learner, read_model
from stream_learner.evaluate.models import LearnerModel, Trial
from stream_learner.evaluate.request import EvaluationRequest
from stream_learner.evaluate.vw.command import VwCommand, parse_vw
from stream_learner.evaluate.vw.float32 import engine
from stream_learner.evaluate.vw.model import EngineModel, VwTrial


@dataclass(frozen=True, slots=True)
class CommandTrial:
    """The trial of a command line. reading: its text options. files: the files it names."""

    trial: Trial
    reading: Hashable
    files: tuple[str, ...]


def vw_trials(request: EvaluationRequest) -> list[CommandTrial]:
    """The trials of the command lines of a request. With `load`, the trial goes on with the loaded model.

    Raises ConfigError for a flag that is not supported, or a model of another command line; BadInput for its file.
    """
    found = [_command_trial(parse_vw(text), request) for text in request.vw]
    if request.load is not None:
        for command, tool in zip(map(parse_vw, request.vw), found, strict=True):
            _restore(tool.trial, command, request.load)
    return found


def compile_engine(say: Callable[[str], None]) -> None:
    """Load or compile the kernels of VW's arithmetic."""
    with notice_if_slow(say, "compiling the arithmetic of Vowpal Wabbit, once on this machine"):
        compile_entries([engine.__name__], 0)


def _command_trial(command: VwCommand, request: EvaluationRequest) -> CommandTrial:
    words = command.text.split()
    name = " ".join(words if words[:1] == ["vw"] else ["vw", *words])
    trial = VwTrial(name, command, learn=not (command.test or request.test))
    trial.linked = False
    return CommandTrial(trial, command.reading, command.files)


def _restore(trial: Trial, command: VwCommand, file: Path) -> None:
    """Give a trial the model of a file. It must be of the same command line, in the same arithmetic."""
    about, arrays = read_model(file)
    model = trial.model
    same = False
    if isinstance(model, EngineModel) and about["kind"] == "vw":
        same = about["settings"] == asdict(command.settings)
        try:
            model.engine.restore(arrays if same else model.engine.arrays())
        except (ValueError, KeyError) as error:
            raise BadInput(f"{file}: {error}") from None
    elif isinstance(model, LearnerModel) and about["kind"] == "learner":
        learner = load_learner(file, about, arrays)
        same = (learner.optimizer, learner.loss) == (model.learner.optimizer, model.loss)
        trial.model = LearnerModel(learner)
    if not same:
        raise ConfigError(
            f"{file} is not a model of {trial.name}", action="Give the command line that the model was learned with."
        )
