"""`Config`: the tree of settings, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from stream_learner.config import losses, optimizers
from stream_learner.config.choice import Choice, written_path
from stream_learner.config.rules import broken_rules
from stream_learner.config.tree import Tree
from stream_learner.errors import ConfigError

CHOICES: dict[tuple[str, ...], Choice] = {
    ("learner", "optimizer", "name"): optimizers.CHOICE,
    ("learner", "loss", "name"): losses.CHOICE,
}
"""The names that decide which settings their section has, by path."""


class BrokenRules(ValueError):
    """Settings that are each valid and cannot work together; `problems` are (path, message)."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in problems))
        self.problems = problems


class Config(Tree):
    """The configuration of one model."""

    @model_validator(mode="after")
    def _check_rules(self) -> Config:
        problems = list(broken_rules(self))
        if problems:
            raise BrokenRules(problems)
        return self

    def with_values(self, values: Mapping[tuple[str, ...], Any]) -> Config:
        """A configuration with other values, written as in a file, by path: `{("join", "max_rate"): 500}`.

        Another optimizer or loss begins with its own defaults. Raises ConfigError if the values cannot work.
        """
        tree = self.written()
        for path in CHOICES:
            section = tree[path[0]][path[1]]
            if values.get(path, section["name"]) != section["name"]:
                section.clear()
        for path, value in values.items():
            place = tree
            for name in path[:-1]:
                place = place[name]
            place[path[-1]] = value
        try:
            return Config.model_validate(tree)
        except ValidationError as error:
            problems = [_problem(detail) for detail in error.errors(include_url=False, include_input=False)]
            raise ConfigError("; ".join(problems), problems=problems) from None

    def renamed(self, model: str) -> Config:
        """A configuration of another model with these settings, which shares only the inputs with this model.

        Topics, group and members get their default names, made from the name of the model. If a state directory was
        given, the new one is beside it, with the name of the model. Raises ConfigError for a name that is not valid.
        """
        state_dir = self.learner.state_dir and str(Path(self.learner.state_dir).parent / model)
        own = [("topics", name) for name in ("examples", "snapshots", "dead_letters", "checkpoints")]
        values: dict[tuple[str, ...], Any] = dict.fromkeys([*own, ("join", "group"), ("join", "instance_id")])
        return self.with_values({**values, ("model",): model, ("learner", "state_dir"): state_dir})


def _problem(detail: Any) -> str:
    """A finding of pydantic as one line, without the value."""
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, BrokenRules):
        return str(cause)
    return f"{'.'.join(written_path(detail['loc']))}: {cause or detail['msg']}"
