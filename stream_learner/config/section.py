"""The class of every section of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A part of the tree: read-only, and unknown names are refused.

    Its validator is built when it is first used, because that of `learner.optimizer` needs the optimizers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    @classmethod
    def settings(cls) -> dict[str, FieldInfo]:
        """The settings by the names they are written with, in order."""
        return {info.alias or name: info for name, info in cls.model_fields.items()}
