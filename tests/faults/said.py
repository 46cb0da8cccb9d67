"""What a process says of itself: its log as events, and `/readyz`.

It must never wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.e2e.processes import RoleProcess


def events(process: RoleProcess) -> list[dict[str, Any]]:
    """The log so far, whole lines only."""
    return list(_events(process))


def _events(process: RoleProcess) -> Iterator[dict[str, Any]]:
    for line in process.log.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            yield json.loads(line)


def said(process: RoleProcess, name: str) -> int:
    """How often an event was logged."""
    return sum(event["event"] == name for event in _events(process))


def why_not_ready(port: int, path: str = "/readyz") -> str | None:
    """The reason that the process gives for not being ready, "" if it is, None if it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10):
            return ""
    except HTTPError as error:
        return str(error.read().decode())
    except (URLError, OSError):
        return None
