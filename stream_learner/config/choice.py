"""Sections whose `name` decides which settings they have: `learner.optimizer` and `learner.loss`.

Each name has a section of its own. A setting of the tree that may be any of them is a union, tagged by the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from stream_learner.config.section import Section

_MARK: Final = "chosen "
"""The prefix of all tags; pydantic puts the tag into the path of a finding."""
_choices: dict[str, Choice] = {}


class Chosen(Section):
    """A section in which null stands for what `name` decides; it is neither shown nor written."""

    @model_serializer(mode="wrap")
    def _without_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    def given(self) -> dict[str, Any]:
        """The name, and the settings that are not null."""
        return self.model_dump()

    @classmethod
    def refusal(cls, setting: str) -> str | None:
        """The message about a setting that only other names have; None if no name has it."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _of_this_name(cls, written: Any) -> Any:
        """Leave out what is null. Refuse a setting that only other names have, and say which."""
        if not isinstance(written, dict):
            return written
        given = {name: value for name, value in written.items() if value is not None}
        for name in given:
            message = None if name in cls.model_fields else cls.refusal(name)
            if message:
                raise ValueError(message)
        return given


class Choice:
    """Makes a setting of the tree a union of the sections of all names, tagged by `name`.

    The sections are made when they are first needed.
    """

    def __init__(
        self,
        word: str,
        default: str,
        sections: Callable[[], Mapping[str, type[Chosen]]],
        every_setting: Callable[[], type[Chosen]],
    ) -> None:
        self.default = default
        """The name where none is written."""
        self._sections = sections
        self._every_setting = every_setting
        self._tag = f"{_MARK}{word} "
        _choices[word] = self

    def of(self, written: Mapping[str, Any]) -> Any:
        """The section of the known name in `written`. Raises ValidationError."""
        return self._sections()[written.get("name", self.default)].model_validate(dict(written))

    def section(self, name: str) -> type[Chosen] | None:
        """The section of a name; None for a name that is not known."""
        return self._sections().get(name)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A union. An unknown name leads to the section of all settings, which refuses it."""
        choices = {self._tag + name: handler.generate_schema(section) for name, section in self._sections().items()}
        choices[self._tag] = handler.generate_schema(self._every_setting())
        return core_schema.tagged_union_schema(choices, self._tag_of)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """All settings in one object, with those allowed for each name: editors show more of that than of a union."""
        every_setting = cast(core_schema.TaggedUnionSchema, schema)["choices"][self._tag]
        found = handler(core_schema.model_field(every_setting))
        handler.resolve_ref_schema(found)["allOf"] = [
            {
                "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                "then": {
                    "properties": dict.fromkeys(section.settings(), True),
                    "additionalProperties": {"type": "null"},
                },
            }
            for name, section in self._sections().items()
        ]
        return found

    def _tag_of(self, written: Any) -> str:
        """The tag of the union: the prefix and the name; the prefix alone if the name is unknown."""
        name = written.get("name") if isinstance(written, Mapping) else getattr(written, "name", "")
        name = self.default if name is None else name
        return self._tag + name if isinstance(name, str) and name in self._sections() else self._tag


def written_path(found: tuple[Any, ...]) -> tuple[str, ...]:
    """The path of a setting as written in a file, from the path of a finding of pydantic."""
    return tuple(str(part) for part in found if part != "[key]" and not str(part).startswith(_MARK))


def chosen_in(found: tuple[Any, ...]) -> type[Section] | None:
    """The section of the chosen name, if the path of a finding leads into one; else None."""
    tags = [str(part).removeprefix(_MARK) for part in found if str(part).startswith(_MARK)]
    word, _, name = tags[0].partition(" ") if tags else ("", "", "")
    return _choices[word].section(name) if word else None
