"""What a role shows on its port."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

from tests.waiting import patience

_SAMPLE = re.compile(r"^stream_learner_(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)


def answer(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page of a role's port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=patience(30.0)) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def values_of(text: str) -> dict[tuple[str, str], float]:
    """Values by name, without the prefix, and the one label beside the model's."""
    found = {}
    for sample in _SAMPLE.finditer(text):
        labels = dict(pair.split("=") for pair in sample["labels"].split(","))
        labels.pop("model")
        found[sample["name"], ",".join(value.strip('"') for value in labels.values())] = float(sample["value"])
    return found
