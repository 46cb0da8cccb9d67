"""YAML as this program reads it: plain data, with the line of every value.

Nothing but plain data is constructed. Scalars follow YAML 1.2: only `true` and `false` are booleans, so a field named
`on` or `no` stays text, and so do dates and `12:30`. Repeated keys and aliases are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

Path = tuple[str, ...]


class YamlError(ValueError):
    """The text cannot be read as YAML; `line` counts from 1, 0 if it is not known."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Document:
    """`data` as written (None for an empty text); `lines` gives the line of each path, counted from 1."""

    data: Any
    lines: dict[Path, int] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012 - the base class declares it

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise YamlError("aliases (*name) are not supported", self.peek_event().start_mark.line + 1)
        return super().compose_node(parent, index)


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+."),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), ["" if c == "\0" else c for c in _first]
    )


def read_yaml(text: str) -> Document:
    """The one document in `text`. Raises YamlError."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Document(None)
            lines: dict[Path, int] = {}
            return Document(_plain(loader, node, (), lines), lines)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or "not YAML", mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError("not YAML" if isinstance(error, RecursionError) else str(error), 0) from None


def _plain(loader: _Loader, node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlError("a name must be text", line)
            if key in mapping:
                raise YamlError(f"{'.'.join((*path, key))} is there twice", line)
            inner = (*path, key)
            mapping[key] = _plain(loader, value_node, inner, lines)
            lines[inner] = line
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, item, (*path, str(i)), lines) for i, item in enumerate(node.value)]
    return cast(Any, loader.construct_object(node))
