"""The site of `make site`: its navigation has every page once, and what an alert leads to is found in its HTML.

That no link is broken is what `make site` checks itself, since a build takes half a minute: CI runs it. Here its check
is held to be able to fail.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.test_readme import PAGES, anchors

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"
OTHERS = [PROJECT / "helm" / "stream-learner" / "README.md", PROJECT / "proofs" / "README.md"]


def navigation(page: Path) -> list[Path]:
    """The pages that a page's toctrees name, in their order."""
    named = []
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for line in re.findall(r"^[^:\n].*", block, re.M):
            named += sorted(page.parent.glob(f"{line}.md")) if "*" in line else [page.parent / f"{line}.md"]
    return [path.resolve() for path in named]


def test_the_navigation_names_every_page_once() -> None:
    """The front page and the decisions have them; who has no place there is not found by those who look for it."""
    named = Counter([*navigation(DOCS / "index.md"), *navigation(DOCS / "adr" / "README.md")])
    assert named == Counter({*PAGES, *OTHERS} - {DOCS / "index.md"})


def test_the_front_page_answers_a_dozen_questions() -> None:
    """Each with a link to its answer, which is then one click away."""
    rows = re.findall(r"^\| (?!who asks|---)[^|]+\| ([^|]+) \| (.+) \|$", (DOCS / "index.md").read_text("utf-8"), re.M)
    assert len(rows) >= 12
    assert all("](" in where for _, where in rows)


def test_the_check_of_a_site_finds_what_is_broken(tmp_path: Path) -> None:
    """A page that is not there, an anchor that is not there, an alert that leads nowhere."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.html").write_text('<a id="a" href="#a"></a><a href="x.html"></a><a href="#b"></a>')
    for page in DOCS.glob("*.md"):
        headings = "".join(f'<h2 id="{anchor}"></h2>' for anchor in anchors(page) - {"growth"})
        if page.name != "index.md":
            (tmp_path / "docs" / f"{page.stem}.html").write_text(headings)
    command = [sys.executable, "-m", "tools.site", str(tmp_path)]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    found = {line.split(": ")[1] for line in ended.stdout.splitlines()[:-1]}
    assert found == {"x.html", "#b", "alerts-learner.html#growth"}
