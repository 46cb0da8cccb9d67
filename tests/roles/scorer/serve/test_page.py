"""`docs/serving.md` says what a running server answers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stream_learner.adapters import prediction_server as serving_server
from stream_learner.adapters.http.connection import HEAD_BYTES
from stream_learner.adapters.http.executor import INLINE_BYTES
from stream_learner.adapters.http.routes import GZIP_FROM_BYTES
from tests.roles.scorer.serve.running import Server
from tests.waiting import patience

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "serving.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\$ (curl .*)\n(.*)$", PAGE, re.M)


def form(value: Any) -> Any:
    """A value without its figures: what is there, of which type, and which words."""
    if isinstance(value, dict):
        return {key: form(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [form(inner) for inner in value]
    if isinstance(value, bool) or (isinstance(value, str) and not value.isdigit()):
        return value
    return type(value).__name__


@pytest.mark.parametrize(("command", "answer"), EXAMPLES, ids=[command[8:50] for command, _ in EXAMPLES])
def test_an_example_is_answered_as_the_page_says(server: Server, command: str, answer: str) -> None:
    """Run as it stands, for the server and the model of this test: the same members, types and words."""
    command = command.replace("localhost:8080", f"127.0.0.1:{server.port}").replace("/ctr", f"/{server.model}")
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=patience())
    assert form(json.loads(found.stdout)) == form(json.loads(answer.replace('"ctr"', f'"{server.model}"')))


def test_there_are_examples_for_both_protocols() -> None:
    """The pattern finds them."""
    assert sum("/v1/" in command for command, _ in EXAMPLES) >= 4
    assert sum("/v2" in command for command, _ in EXAMPLES) >= 5


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    """Sizes that are no settings."""
    assert f"up to {INLINE_BYTES >> 10} KiB" in PAGE
    assert f"Answers of {GZIP_FROM_BYTES >> 10} KiB" in PAGE
    assert f"more than {HEAD_BYTES >> 10} KiB" in PAGE
    assert f"less {serving_server.OTHER_FILES} |" in PAGE
