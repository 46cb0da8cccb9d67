"""A part of the configuration's tree.

In: nothing. Out: the class that every section is. This file must never hold a setting.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the tree: read-only, and unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
