"""Patches: names of the production code with other values, in memory, and only while they are applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

Patches = list[tuple[Any, str, Any]]
"""Target, attribute, value."""


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    """Apply patches while this is open."""
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(mock.patch.object(target, name, value))
        yield
