"""Messages count in English: "1 partition", never "1 partitions". Sentences of the pages are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import stream_learner
from stream_learner.wording import count_of
from tools.docs import DOCS, NOTE

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


def sentences(page: str) -> list[list[str]]:
    """The sentences of a page's prose, as words: without code, tables, headings and the targets of links."""
    prose = re.sub(r"^```.*?^```|<!--.*?-->|^ {4}.*?$|^[|#:].*?$", "\n", page, flags=re.M | re.S)
    prose = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", prose))
    prose = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", prose, flags=re.M)
    found = re.split(r"(?<=[.!?])[*)\"]*\s+|\n\s*\n", prose)
    return [words for words in (re.findall(r"\S*\w\S*", one) for one in found) if len(words) > 2]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_has_sentences_of_a_length_that_can_be_read(page: Path) -> None:
    """At most 25 words on average; pages that the code writes, and decisions, are left out."""
    text = page.read_text(encoding="utf-8")
    if not text.startswith(NOTE.splitlines()[0]):
        lengths = sorted(map(len, sentences(text)))
        assert sum(lengths) <= 25 * len(lengths), f"{sum(lengths) / len(lengths):.1f} words; the longest {lengths[-3:]}"
