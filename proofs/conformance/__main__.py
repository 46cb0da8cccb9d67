"""Holds every subject against every law: `python -m proofs.conformance [--json] [--quick]`.

It prints a table, or writes `docs/conformance.md`. The exit code is 1 if this project breaks a law.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from proofs.conformance import laws_descent, laws_proximal
from proofs.conformance.law import Finding, Law
from proofs.conformance.ours import Ours
from proofs.conformance.subject import NotOffered, Subject

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
OTHERS = (
    ("vowpalwabbit", "proofs.conformance.wabbit", "Wabbit"),
    ("river", "proofs.conformance.river_subject", "River"),
)
LAWS: tuple[Law, ...] = (*laws_proximal.LAWS, *laws_descent.LAWS)

Found = dict[str, dict[str, Finding | None]]
"""Findings by law and subject; None if the subject does not offer what the law needs."""


def subjects() -> list[Subject]:
    """This project, and the other libraries that are installed."""
    found: list[Subject] = [Ours()]
    for package, module, kind in OTHERS:
        try:
            version(package)
        except PackageNotFoundError:
            continue
        found.append(getattr(importlib.import_module(module), kind)())
    return found


def judge(law: Law, subject: Subject) -> Finding | None:
    """The finding of a law for a subject; None if the subject does not offer what the law needs."""
    try:
        return law.check(subject)
    except NotOffered:
        return None


def held(laws: tuple[Law, ...], who: list[Subject]) -> Found:
    """The findings of every law for every subject."""
    return {law.name: {subject.name: judge(law, subject) for subject in who} for law in laws}


def word(finding: Finding | None) -> str:
    """A finding as a word of the table."""
    if finding is None:
        return "–"
    return "yes" if finding.holds else "no"


def page(found: Found, who: list[Subject]) -> str:
    """The page: the table, with an example for every law that a subject breaks."""
    names = [f"{subject.name} {subject.version}" for subject in who]
    lines = [
        "# Who does what the papers say",
        "",
        "Made by `make conformance ARGS=--write`; “–” where a program does not offer what the law speaks of.",
        "The losses that Vowpal Wabbit prints are compared live by the same command, over a grid of its options.",
        "",
        "| law | source | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for law in LAWS:
        says, words = law.says.replace("|", r"\|"), (word(found[law.name][subject.name]) for subject in who)
        lines.append(f"| {says} | {law.source} | {' | '.join(words)} |")
    broken = [
        f"- **{subject.name}**, {law.name}: {finding.seen}."
        for law in LAWS
        for subject in who
        if (finding := found[law.name][subject.name]) is not None and not finding.holds
    ]
    return "\n".join([*lines, "", "## By example", "", *(broken or ["Nobody breaks a law."])]) + "\n"


def show(found: Found, who: list[Subject], console: Console) -> None:
    """Print the table."""
    table = Table("law", *(f"{subject.name} {subject.version}" for subject in who))
    for law in LAWS:
        table.add_row(law.name, *(word(found[law.name][subject.name]) for subject in who))
    console.print(table)
    for law in LAWS:
        for subject in who:
            finding = found[law.name][subject.name]
            if finding is not None and not finding.holds:
                console.print(f"{subject.name}, {law.name}: {finding.seen}", highlight=False, markup=False)


def as_json(found: Found) -> dict[str, dict[str, Any]]:
    """The findings for a script."""
    return {
        law: {name: None if finding is None else finding._asdict() for name, finding in by_subject.items()}
        for law, by_subject in found.items()
    }


def main() -> int:
    """Run everything. Returns 1 if this project breaks a law."""
    parser = argparse.ArgumentParser(prog="make conformance", description="Who does what the papers say.")
    parser.add_argument("--json", action="store_true", help="findings as one JSON object")
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md anew")
    arguments = parser.parse_args()
    who = subjects()
    found = held(LAWS, who)
    if arguments.json:
        print(json.dumps(as_json(found), ensure_ascii=False))
    else:
        show(found, who, Console())
    if arguments.write:
        PAGE.write_text(page(found, who), "utf-8")
    ours = [finding for by_subject in found.values() if (finding := by_subject[Ours.name]) is not None]
    return 0 if len(ours) == len(LAWS) and all(finding.holds for finding in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
