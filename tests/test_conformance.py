"""The conformance suite: this project keeps every law, and every law catches the slip it is there for."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from proofs.conformance import laws_proximal
from proofs.conformance.__main__ import LAWS, PAGE, held, judge, page, subjects
from proofs.conformance.law import Law
from proofs.conformance.ours import Ours
from proofs.conformance.subject import Features, Machine


@pytest.mark.parametrize("law", LAWS, ids=[law.name for law in LAWS])
def test_this_project_keeps_the_law(law: Law) -> None:
    """Every law speaks of something that this project offers, and holds for it."""
    finding = judge(law, Ours())
    assert finding is not None and finding.holds, finding


class Slipped:
    """FTRL-Proximal by the book, but for one slip."""

    def __init__(self, slip: str, alpha: float, beta: float, l1: float, l2: float) -> None:
        self.slip, self.alpha, self.beta, self.l1, self.l2 = slip, alpha, beta, l1, l2
        self.z: dict[int, float] = {}
        self.n: dict[int, float] = {}
        self.late: dict[int, float] = {}

    def weight(self, i: int) -> float:
        z, n = self.z.get(i, 0.0), self.n.get(i, 0.0)
        if self.slip == "keeps weights" and abs(z) <= self.l1:
            return self.late.get(i, 0.0)
        if abs(z) <= self.l1:
            return 0.0
        shrunk = z + math.copysign(self.l1, z if self.slip == "sign of L1" else -z)
        w = -shrunk / ((self.beta + math.sqrt(n)) / self.alpha + self.l2)
        self.late[i] = w
        return w

    def margin(self, x: Features) -> float:
        if self.slip == "one step late":
            return sum(self.late.get(i, 0.0) * value for i, value in x.items())
        return sum(self.weight(i) * value for i, value in x.items())

    def learn(self, x: Features, y: float, h: float = 1.0) -> None:
        d = -y / (1.0 + math.exp(y * self.margin(x)))
        for i, value in x.items():
            self.weight(i)
            if value != 0.0 or self.slip == "learns zeros":
                self._step(i, value, d, h)

    def _step(self, i: int, value: float, d: float, h: float) -> None:
        g = d * value * (1.0 if self.slip == "importance" else h)
        if self.slip == "learns zeros" and value == 0.0:
            g = 1e-3
        before = self.weight(i)
        squared = min(abs(g), 1.0) ** 2 if self.slip == "clips" else g * g
        n = self.n.get(i, 0.0)
        sigma = (math.sqrt(n + squared) - math.sqrt(n)) / self.alpha
        self.n[i] = n + squared
        if self.slip == "w after":
            self.z[i] = self.z.get(i, 0.0) + g
            self.z[i] -= sigma * self.weight(i)
        else:
            self.z[i] = self.z.get(i, 0.0) + g - sigma * before

    def restored(self) -> Machine:
        other = copy.deepcopy(self)
        if self.slip == "forgets":
            other.n.clear()
        return other


class SlippedSubject:
    """A library with one slip, or with none."""

    version = "0"
    tolerance = 1e-9

    def __init__(self, slip: str) -> None:
        self.name = slip

    def make(self, algorithm: str, loss: str, **hyper: float) -> Machine:
        return Slipped(self.name, **hyper)


def named(name: str) -> Law:
    """A law of FTRL-Proximal."""
    return next(law for law in laws_proximal.LAWS if law.name == name)


@pytest.mark.parametrize("law", laws_proximal.LAWS, ids=[law.name for law in laws_proximal.LAWS])
def test_the_book_itself_keeps_the_law(law: Law) -> None:
    """Without a slip nothing is found."""
    finding = judge(law, SlippedSubject(""))
    assert finding is not None and finding.holds, finding


@pytest.mark.parametrize(
    ("slip", "law"),
    [
        ("keeps weights", "back to zero"),
        ("sign of L1", "sign of L1"),
        ("forgets", "restart"),
        ("learns zeros", "written zeros"),
        ("clips", "large gradients"),
        ("w after", "Algorithm 1"),
        ("w after", "per coordinate"),
        ("importance", "importance"),
        ("one step late", "newest weights"),
    ],
)
def test_a_known_slip_is_caught_by_its_law(slip: str, law: str) -> None:
    """The slips that public implementations are known for."""
    finding = judge(named(law), SlippedSubject(slip))
    assert finding is not None and not finding.holds, finding


def test_the_installed_vowpal_wabbit_misjudges_small_invariant_steps() -> None:
    """Its approximation of Lambert's W is wrong, even in sign, for small steps; the table says so by example."""
    wabbit = next(subject for subject in subjects() if subject.name == "Vowpal Wabbit")
    law = next(law for law in LAWS if law.name == "small invariant steps")
    finding = judge(law, wabbit)
    assert finding is not None and not finding.holds and "-" in finding.seen.split("is ")[-1]


def test_the_page_is_that_of_the_laws() -> None:
    """docs/conformance.md names every law as it is now; its verdicts on this project are yes throughout."""
    text = PAGE.read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| law")]
    assert [row.split(" | ")[0].removeprefix("| ").replace(r"\|", "|") for row in rows] == [law.says for law in LAWS]
    assert all(row.split(" | ")[2].removesuffix(" |") == "yes" for row in rows)


def test_a_broken_law_is_shown_by_example() -> None:
    """The page carries what was seen, not only the verdict."""
    law: Law = named("back to zero")
    who: list[Any] = [SlippedSubject("keeps weights")]
    found = {one.name: {who[0].name: None} for one in LAWS} | held((law,), who)
    text = page(found, who)
    finding = found[law.name][who[0].name]
    assert finding is not None and finding.seen in text
