"""Reads the configuration: defaults, then the file, then the environment, then `--set`; the last one wins.

This is the only reader of configuration files and of `STREAM_LEARNER__…`. An override that names another optimizer or
loss resets its section. A message must never hold the value of a `kafka` option: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from stream_learner.config.checked import CHOICES, BrokenRules, Config
from stream_learner.config.choice import chosen_in, written_path
from stream_learner.config.kafka import KafkaOptions
from stream_learner.config.paths import (
    Path,
    Target,
    UnknownSetting,
    leaves,
    locate,
    section_at,
    settings_of,
    unknown_message,
)
from stream_learner.config.yaml import YamlError, read_yaml
from stream_learner.errors import ConfigError

ENVIRONMENT_PREFIX = "STREAM_LEARNER__"
_SHOWN_INPUT_CHARS = 60
_PLACEHOLDER = "missing"
"""The value of a setting that must be given and is not, while the rest is looked at."""


class _Draft:
    """The tree as collected so far, the source of each value, and the problems found."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.sources: dict[Path, str] = {}
        self.problems: list[str] = []

    def put(self, target: Target, value: Any, source: str) -> None:
        place = self.tree
        for part in target.path[:-1]:
            inner = place.get(part)
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        name = target.path[-1]
        if isinstance(value, dict) and isinstance(place.get(name), dict):
            place[name] = place[name] | value
        else:
            place[name] = value
        self.sources[target.path] = source

    def choose(self, target: Target, value: Any) -> None:
        """Forget the settings of a section if its `name` is about to change."""
        place: Any = self.tree
        for part in target.path[:-1]:
            place = place.get(part) if isinstance(place, dict) else None
        if isinstance(place, dict) and place.get("name", CHOICES[target.path].default) != value:
            place.clear()

    def source_of(self, path: Path) -> str:
        """The source of the value at `path`, or of the nearest one above it."""
        ends = range(len(path), 0, -1)
        return next((self.sources[path[:end]] for end in ends if path[:end] in self.sources), "")


def load_config(
    file: FilePath | str | None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    check_kafka: Callable[[KafkaOptions], Iterable[str]] | None = None,
) -> Config:
    """The configuration from a YAML file, `STREAM_LEARNER__A__B=…` in `environ` and `a.b=…` overrides.

    check_kafka: returns its findings about the `kafka` section; it is asked even where other settings cannot work.

    Raises ConfigError; its `problems` are all findings, each with its path and its source.
    """
    draft = _Draft()
    if file is not None:
        _read_file(draft, FilePath(file))
    for name, text in sorted((environ or {}).items(), key=_names_first):
        if name.startswith(ENVIRONMENT_PREFIX):
            parts = name[len(ENVIRONMENT_PREFIX) :].split("__")
            _override(draft, parts, text, f"environment variable {name}", environment=True)
    for override in overrides:
        name, equals, text = override.partition("=")
        if equals and name:
            _override(draft, name.strip().split("."), text, f"--set {name.strip()}")
        else:
            draft.problems.append("--set takes name=value, such as --set join.window=10m")
    return _validate(draft, check_kafka)


def _read_file(draft: _Draft, file: FilePath) -> None:
    try:
        text = file.read_text(encoding="utf-8")
        document = read_yaml(text)
    except OSError as error:
        raise _config_error([f"cannot read {file}: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise _config_error([f"cannot read {file}: it is not UTF-8 text"]) from None
    except YamlError as error:
        where = f"{file}, line {error.line}" if error.line else str(file)
        raise _config_error([f"{error} ({where})"]) from None
    if document.data is None:
        return
    if not isinstance(document.data, dict):
        raise _config_error([f"{file} must hold settings, `name: value`"])
    draft.tree = document.data
    draft.sources = {path: f"{file}, line {line}" for path, line in document.lines.items() if path}


def _override(draft: _Draft, parts: Sequence[str], text: str, source: str, *, environment: bool = False) -> None:
    try:
        target = locate(Config, parts, environment=environment)
        value = _typed(target, text)
        if target.path in CHOICES:
            draft.choose(target, value)
        draft.put(target, value, source)
    except (UnknownSetting, YamlError) as error:
        draft.problems.append(f"{error} ({source})")


def unread_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that are not read, though their names are nearly those of settings, each with what is wrong.

    A value such as Kubernetes gives to the ports of its services is none.
    """
    settings = {"_".join(path).upper().replace(".", "_"): path for path, _ in leaves(Config)}
    for name, value in sorted(environ.items()):
        path = settings.get(name.removeprefix(ENVIRONMENT_PREFIX[:-1]))
        if path is not None and name.startswith(ENVIRONMENT_PREFIX[:-1]) and "://" not in value:
            right = ENVIRONMENT_PREFIX + "__".join(path).upper().replace(".", "_")
            yield name, f"is not read: the variable of {'.'.join(path)} is {right}"


def _names_first(variable: tuple[str, str]) -> tuple[bool, str]:
    """The order in which variables are read: a `name` before the settings that depend on it."""
    return not variable[0].endswith("__NAME"), variable[0]


def _typed(target: Target, text: str) -> Any:
    """The value of an override: the text itself if the setting takes text, else the text read as YAML."""
    stripped = text.strip()
    if target.path[0] == "kafka":
        reference = stripped.startswith(("{file:", "{env:")) and stripped.endswith("}")
        return read_yaml(stripped).data if reference or len(target.path) == 1 else text
    if target.takes_text:
        return None if stripped in ("null", "~", "") else text
    return read_yaml(text).data


def _validate(draft: _Draft, check_kafka: Callable[[KafkaOptions], Iterable[str]] | None) -> Config:
    try:
        config = Config.model_validate(draft.tree)
    except ValidationError as error:
        _find_all(draft, error)
    if check_kafka is not None:
        # A section that cannot be read is among the findings already.
        with suppress(ValidationError):
            for line in check_kafka(KafkaOptions.model_validate(draft.tree.get("kafka"))):
                draft.problems.append(_with_source(draft, tuple(line.partition(":")[0].split(".", 1)), line))
    if draft.problems:
        raise _config_error(draft.problems)
    return config


def _find_all(draft: _Draft, error: ValidationError) -> None:
    """Note what is refused, and what the rest breaks without it: rules are asked only of settings that are each valid.
    What a rule says of a setting that was refused is left out.
    """
    tree, refused, tried = deepcopy(draft.tree), set[str](), set[tuple[Path, bool]]()
    while True:
        found = error.errors(include_url=False)
        lines = [line for detail in found for line in _lines(draft, detail)]
        draft.problems += [line for line in lines if not any(_is_about(line, name) for name in refused)]
        refused |= {".".join(written_path(detail["loc"])) for detail in found if detail["loc"]}
        wrong = {(written_path(detail["loc"]), detail["type"] == "missing") for detail in found} - tried
        tried |= wrong  # each once, or it would go on for ever where what is put in is refused
        mended = [_mend(tree, path, is_missing=is_missing) for path, is_missing in sorted(wrong)]
        if not any(mended):
            return
        try:
            Config.model_validate(tree)
        except ValidationError as next_one:
            error = next_one
        else:
            return


def _is_about(line: str, name: str) -> bool:
    """Whether a finding is of a setting or of a section that it is in, or names it."""
    return f"{name}.".startswith(f"{line.partition(':')[0]}.") or ("." in name and name in line)


def _mend(tree: dict[str, Any], path: Path, *, is_missing: bool) -> bool:
    """Take out what is refused at a path, or put in what is missing; returns whether that was possible."""
    place: Any = tree
    for part in path[:-1]:
        place = place.get(part) if isinstance(place, dict) else None
    if not isinstance(place, dict) or not path or is_missing == (path[-1] in place):
        return False
    if is_missing:
        place[path[-1]] = _PLACEHOLDER if section_at(Config, path) is None else {}
    else:
        del place[path[-1]]
    return True


def _lines(draft: _Draft, detail: Any) -> list[str]:
    path = written_path(detail["loc"])
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, BrokenRules):
        found = [(tuple(where.split(".")), f"{where}: {message}") for where, message in cause.problems]
    elif detail["type"] == "extra_forbidden":
        section = chosen_in(detail["loc"]) or section_at(Config, path[:-1])
        found = [(path, unknown_message(Config, section, path))]
    else:
        name = ".".join(path) or "the configuration"
        found = [(path, f"{name}: {_message(detail, path, cause)}")]
    return [_with_source(draft, where, line) for where, line in found]


def _with_source(draft: _Draft, path: Path, line: str) -> str:
    """A finding about a setting, with the place where it was written."""
    source = draft.source_of(path)
    return f"{line} ({source})" if source else line


def _message(detail: Any, path: Path, cause: Exception | None) -> str:
    """The finding in plain words, with the value unless it may be a secret."""
    kind = detail["type"]
    if kind == "missing":
        section = section_at(Config, path[:-1])
        about = settings_of(section)[path[-1]].description if section else ""
        return f"is missing. {about}" if about else "is missing"
    if cause is not None:
        return str(cause)
    if kind == "string_pattern_mismatch":
        words = "may hold only letters, digits, `.`, `_` and `-`, not too many of them"
    else:
        words = str(detail["msg"]).replace("Input should be", "must be").replace("String should", "must")
    value = detail["input"]
    shown = isinstance(value, (str, int, float, bool)) and path[:1] != ("kafka",)
    return f"{words}, not {str(value)[:_SHOWN_INPUT_CHARS]!r}" if shown else words


def _config_error(problems: Sequence[str]) -> ConfigError:
    count = len(problems)
    first = problems[0] if count == 1 else f"{count} settings cannot work"
    return ConfigError(first, problems=problems)
