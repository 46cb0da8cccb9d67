"""The long description and the addresses in the metadata of a wheel, as hatchling asks for them.

It must never guess an address: without SOURCE the wheel names none, and a link is its text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")


class WheelMetadata(MetadataHookInterface):
    """Adds what `project.dynamic` in pyproject.toml leaves open."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in `readme`, and `urls` where the address is known."""
        source = os.environ.get("SOURCE", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, source)}
        if source:
            metadata["urls"] = {
                "Source": source,
                "Documentation": f"{source}/blob/HEAD/README.md#read-on",
                "Configuration": f"{source}/blob/HEAD/docs/configuration.md",
            }


def described(readme: str, source: str) -> str:
    """The README with its relative links made absolute, or replaced by their texts where `source` is ""."""
    return RELATIVE_LINK.sub(rf"[\1]({source}/blob/HEAD/\2)" if source else r"\1", readme)
