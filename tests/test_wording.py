"""Messages count in English: "1 partition", never "1 partitions"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import stream_learner
from stream_learner.wording import count_of

PACKAGE = Path(stream_learner.__file__).parent
PURE = [PACKAGE / folder for folder in ("core", "evaluate/formats")]
OUTSIDE_CORE = sorted(path for path in PACKAGE.rglob("*.py") if not {*PURE} & {*path.parents})


@pytest.mark.parametrize(
    ("count", "noun", "plural", "text"),
    [
        (0, "partition", "", "0 partitions"),
        (1, "partition", "", "1 partition"),
        (2, "partition", "", "2 partitions"),
        (1_200, "bad line", "", "1,200 bad lines"),
        (1, "pass", "passes", "1 pass"),
        (3, "pass", "passes", "3 passes"),
    ],
)
def test_a_count_has_the_noun_that_it_needs(count: int, noun: str, plural: str, text: str) -> None:
    """One is singular, all others are plural."""
    assert count_of(count, noun, plural) == text


def counted_nouns() -> set[str]:
    """The plural of every noun that is counted with `count_of` anywhere."""
    found = set()
    for path in OUTSIDE_CORE:
        for call in re.findall(r"count_of\([^\n]*?, '([a-z ]+)'(?:, '([a-z ]+)')?\)", path.read_text(encoding="utf-8")):
            found.add((call[1] or call[0] + "s").split()[-1])
    return found


def plural_after_a_value(path: Path, nouns: set[str]) -> Iterator[str]:
    """The places where a formatted value, no constant and no rate, is followed by one of the nouns in the plural."""
    for text in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(text, ast.JoinedStr):
            continue
        for value, after in zip(text.values, text.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            words = re.match(r" (?:[a-z]+[a-rt-z] )?([a-z]+)(?![\w/])", str(after.value))
            is_constant = isinstance(value.value, ast.Name) and value.value.id.isupper()
            is_rate = "a second" in str(after.value)
            if words and words[1] in nouns and not is_constant and not is_rate:
                yield f"{path.relative_to(PACKAGE)}:{value.lineno}: {ast.unparse(value.value)}{words[0]}"


def test_every_message_counts_with_the_one_function() -> None:
    """What `count_of` counts somewhere is nowhere written as a value and a plural."""
    nouns = counted_nouns()
    assert {"partitions", "records", "examples", "clicks", "findings", "passes"} <= nouns
    assert [place for path in OUTSIDE_CORE for place in plural_after_a_value(path, nouns)] == []
