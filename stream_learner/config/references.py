"""Values that are kept elsewhere: `{file: PATH}` or `{env: NAME}` as written, read each time the value is asked for.

This file must never keep a value that it has read, or show one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from stream_learner.errors import ConfigError


class FromFile(BaseModel):
    """A value that is the content of a file, without the line break at its end."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    file: str = Field(min_length=1, description="path of the file that holds the value")

    def read(self, setting: str) -> str:
        """The value now. Raises ConfigError, with the setting and the file, if it cannot be read."""
        try:
            return Path(self.file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"{setting}: cannot read the file {self.file}: {reason}") from None


class FromEnvironment(BaseModel):
    """A value that is an environment variable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    env: str = Field(min_length=1, description="name of the environment variable that holds the value")

    def read(self, setting: str) -> str:
        """The value now. Raises ConfigError, with the setting and the variable, if it is not set."""
        value = os.environ.get(self.env)
        if value is None:
            raise ConfigError(f"{setting}: the environment variable {self.env} is not set")
        return value


def _referring(value: Any) -> Any:
    """The value as it came, if it says where the real one is kept. What it is instead may be a secret: never shown."""
    if isinstance(value, (FromFile, FromEnvironment)):
        return value
    if isinstance(value, dict) and list(value) in (["file"], ["env"]) and all(map(_is_text, value.values())):
        return value
    raise ValueError("must be `{file: PATH}` or `{env: NAME}`: the value itself is in no configuration")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


Reference: TypeAlias = Annotated[FromFile | FromEnvironment, BeforeValidator(_referring)]
