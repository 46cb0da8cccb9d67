"""Names of settings: which there are, which one an override means, and which one a wrong name was meant to be."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from stream_learner.config.kafka import KafkaOptions
from stream_learner.config.section import Section

Path = tuple[str, ...]


class UnknownSetting(ValueError):
    """An override names a setting that does not exist."""


@dataclass(frozen=True)
class Target:
    """The setting that an override sets: its path in the tree, and whether its value is the text as written."""

    path: Path
    takes_text: bool


def settings_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The settings of a section by the names they are written with, in order."""
    return section.settings()


def section_in(annotation: Any) -> type[Section] | None:
    """The annotation, if it is a section; else None."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def items_of(annotation: Any) -> type[Section] | None:
    """The section of a `dict[name, section]` annotation; else None."""
    return section_in(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def leaves(section: type[Section], path: Path = ()) -> Iterator[tuple[Path, FieldInfo]]:
    """Every setting that is not a section, depth first; the settings of named items under `<name>`."""
    for name, info in settings_of(section).items():
        inner, items = section_in(info.annotation), items_of(info.annotation)
        if inner:
            yield from leaves(inner, (*path, name))
        elif items:
            yield from leaves(items, (*path, name, "<name>"))
        else:
            yield (*path, name), info


def locate(root: type[Section], parts: Sequence[str], *, environment: bool = False) -> Target:
    """The setting that the parts of a dotted override, or of the name of an environment variable, mean.

    The rest of a path below `kafka` is one option, the middle of a path below `features.fields` one field
    name, so that both may contain dots; so may names below `registry`. In an environment variable, names of settings
    are in any case, and `_` stands for `.` in an option of librdkafka and below `registry`. Raises UnknownSetting.
    """
    section = root
    path: Path = ()
    for position, part in enumerate(parts):
        name = part.lower() if environment else part
        settings = settings_of(section)
        whole = ".".join(parts[position:])
        whole = whole.lower().replace("_", ".") if environment else whole
        if whole in settings and "." in whole:
            return Target((*path, whole), _takes_text(settings[whole].annotation))
        if name not in settings:
            raise UnknownSetting(unknown_message(root, section, (*path, name)))
        path, rest = (*path, name), list(parts[position + 1 :])
        annotation = settings[name].annotation
        inner, items = section_in(annotation), items_of(annotation)
        if annotation is KafkaOptions and rest:
            option = ".".join(rest)
            return Target((*path, option.lower().replace("_", ".") if environment else option), True)
        if items and len(rest) >= 2:
            inner_name = rest[-1].lower() if environment else rest[-1]
            inside = locate(items, [inner_name])
            return Target((*path, ".".join(rest[:-1]), *inside.path), inside.takes_text)
        if inner is None:
            if rest and not items:
                raise UnknownSetting(f"{'.'.join(path)} is a single value, nothing is below it")
            return Target((*path, *rest), _takes_text(annotation))
        section = inner
    return Target(path, False)


RENAMED: dict[Path, str] = {
    ("scorer", "max_staleness"): "it is scorer.stale_after now, and refuses nothing; scorer.refuse_after does",
}
"""Hints for settings of earlier versions."""


def unknown_message(root: type[Section], section: type[Section] | None, path: Path) -> str:
    """The message for the unknown setting `path`, whose last part is not in `section`."""
    known = list(settings_of(section)) if section else []
    name = path[-1]
    if path in RENAMED:
        return f"{'.'.join(path)}: unknown setting; {RENAMED[path]}"
    near = get_close_matches(name.lower().replace("-", "_"), known, n=1)
    elsewhere = [".".join(other) for other, _ in leaves(root) if other[-1] == name]
    if near:
        hint = f"did you mean {'.'.join((*path[:-1], near[0]))}?"
    elif elsewhere:
        hint = f"did you mean {elsewhere[0]}?"
    else:
        hint = "known here: " + ", ".join(known) if known else "nothing may be set here"
    return f"{'.'.join(path)}: unknown setting; {hint}"


def section_at(root: type[Section], path: Sequence[str]) -> type[Section] | None:
    """The section at a path of the tree, None if there is none."""
    section: type[Section] | None = root
    items: type[Section] | None = None
    for part in path:
        if items:
            section, items = items, None
            continue
        settings = settings_of(section) if section else {}
        annotation = settings[part].annotation if part in settings else None
        section, items = section_in(annotation), items_of(annotation)
    return section


def _takes_text(annotation: Any) -> bool:
    """Whether a value of this type is text as written, never to be read as a number or a list."""
    if get_origin(annotation) is Annotated:
        return _takes_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_takes_text(part) for part in get_args(annotation))
    return annotation is str or get_origin(annotation) is Literal
