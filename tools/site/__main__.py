"""Checks a site that was built: `python -m tools.site FOLDER`.

Every link leads to a file of the folder, with the anchor that it names, and so does every link of an alert. Sphinx has
checked the links between pages before; this reads what a browser will. Ends with 1 after a line for each broken one.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ALERTS = Path(__file__).parents[2] / "helm" / "stream-learner" / "templates" / "prometheusrule.yaml"


class Page(HTMLParser):
    """The links of a page, and the places on it that a link may name."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what the element links to, and its name."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@cache
def page_of(file: Path) -> Page:
    """What is on the page in a file."""
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def broken(site: Path, file: Path, links: list[str]) -> list[str]:
    """Those of a page's links within the site that lead nowhere."""
    found = []
    for link in links:
        if re.match(r"[a-z]+:|//", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (file.parent / name.partition("?")[0]).resolve() if name else file
        lost = not target.is_file() or not target.is_relative_to(site)
        if lost or (anchor and target.suffix == ".html" and anchor not in page_of(target).anchors):
            found.append(f"{file.relative_to(site)}: {link}")
    return found


def main() -> None:
    """Check all pages, and the alerts' links as if they stood on the front page."""
    site = Path(sys.argv[1]).resolve()
    files = sorted(site.rglob("*.html"))
    found = [line for file in files for line in broken(site, file, page_of(file).links)]
    alerts = re.findall(r"^  page: (\S+)\n  section: (\S+)$", ALERTS.read_text(encoding="utf-8"), re.M)
    found += broken(site, site / "docs" / "index.html", [f"{page}.html#{section}" for page, section in alerts])
    print("\n".join([*found, f"{len(files)} pages, {len(alerts)} links of alerts, {len(found)} broken links"]))
    sys.exit(bool(found) or not files)


if __name__ == "__main__":
    main()
