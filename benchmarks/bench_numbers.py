"""What numbers are best made into: kind `auto` beside the other kinds, and beside leaving the field out.

In: generated examples with a site, a slot and numbers, and the tables of `../shared/data`. Out: for each set and rule
the normalized entropy of the default learner, each example predicted before it is learned; the note has those of `vw`
and `normalized`. docs/evidence-numbers.md has the rows as a table.
"""

from __future__ import annotations

import math
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

from benchmarks import bench_defaults
from benchmarks.rows import Incomplete, Row
from stream_learner.config import Config
from stream_learner.evaluate.request import EvaluationRequest, TableColumns
from stream_learner.evaluate.run import Evaluation

EXAMPLES = 60_000
LEARNERS = ("ftrl_proximal", "vw", "normalized eta=0.1")
RULES = {
    "left out": ("ignore", 0),
    "number": ("number", 0),
    "log": ("log", 0),
    "category": ("category", 0),
    "powers of two": ("category", 52),
    "auto": ("auto", 0),
    "quarters": ("category", 50),
}
"""The kind of the numbers. Where bits are named, each number is first made a text of its float64 without that many."""
WIDTHS = (320, 360, 375, 384, 390, 393, 412, 414, 428, 768, 800, 1024, 1280, 1366, 1440, 1536, 1600, 1920, 2560)
TOWNS = [(round(r.uniform(-120, 140), 4), round(r.uniform(-35, 60), 4)) for r in map(Random, range(12))]
CONFIG: dict[str, Any] = {
    "model": "numbers",
    "kafka": {"bootstrap.servers": "none"},
    "input": {"impressions": {"topic": "shown"}, "clicks": {"topic": "clicked"}},
}


@cache
def own(number: object, spread: float = 0.6) -> float:
    """An effect that a value shares with no other."""
    return Random(repr(number)).gauss(0.0, spread)


def size(number: float) -> float:
    """The logarithm, with the sign of the number."""
    return math.copysign(math.log1p(abs(number)), number)


def count(chance: Random, most: float = 1e6) -> int:
    """A heavy tail: as often of one length as of another."""
    return int(most ** chance.random())


def price(chance: Random) -> float:
    """In whole cents, with a long tail."""
    return round(chance.lognormvariate(3, 1), 2)


def share(chance: Random) -> float:
    """From 0 to 1, evenly."""
    return round(chance.random(), 4)


def click_log(chance: Random) -> tuple[int | None, ...]:
    """Thirteen counts of one to six digits, three of them often missing."""
    return tuple(None if i < 3 and chance.random() < 0.45 else count(chance, 10.0 ** (1 + i % 6)) for i in range(13))


def by_every_other(counts: Sequence[int | None]) -> float:
    """Seven of them matter, by their logarithms."""
    return sum(0.15 * (-1) ** i * (size(n) - 4) for i, n in enumerate(counts[::2]) if n is not None)


GENERATED: dict[str, tuple[Callable[[Random], Any], Callable[[Any], float]]] = {
    "screen width: 360, 768, 1440": (lambda r: r.choices((360, 768, 1440), (12, 3, 5))[0], lambda x: 1 - x / 720),
    "screen width: 19 usual ones, each with a rate of its own": (lambda r: r.choice(WIDTHS), own),
    "counts up to 1,000,000, rate by their logarithm": (count, lambda x: 0.25 * (size(x) - 7)),
    "the same counts, rate without them": (count, lambda x: 0.0),
    "log-normal prices, rate by their logarithm": (price, lambda x: 0.8 * (size(x) - 3)),
    "the same prices, rate highest in the middle": (price, lambda x: 0.5 - 0.5 * (size(x) - 3) ** 2),
    "whole numbers of both signs, heavy tails": (lambda r: r.choice((-1, 1)) * count(r), lambda x: 0.12 * size(x)),
    "counts, 45 % missing": (lambda r: None if r.random() < 0.45 else count(r), lambda x: 0.25 * (size(x) - 7)),
    "milliseconds since 1970, rate without them": (
        lambda r: 1_764_000_000_000 + r.randrange(2_592_000_000),
        lambda x: 0.0,
    ),
    "0 to 10, each with a rate of its own": (lambda r: r.randint(0, 10), own),
    "1 to 10, rate falls evenly": (lambda r: r.randint(1, 10), lambda x: 0.2 * (5.5 - x)),
    "hours, rate as a wave": (lambda r: r.randrange(24), lambda x: 0.8 * math.sin(x * math.pi / 12)),
    "ages, rate highest at 48": (lambda r: r.randint(18, 80), lambda x: 0.5 - ((x - 48) / 20) ** 2),
    "shares of 0 to 1, rate rises evenly": (share, lambda x: 2.2 * x - 1.1),
    "shares of 0 to 1, rate lowest in the middle": (share, lambda x: 7 * (x - 0.5) ** 2 - 0.6),
    "normal numbers, rate rises evenly": (lambda r: round(r.gauss(0, 1), 4), lambda x: 0.9 * x),
    "longitude and latitude of 12 towns": (lambda r: r.choice(TOWNS), own),
    "3,000 ids from 1,000 on": (lambda r: 1000 + int(3000 * r.random() ** 3), own),
    "3,000 ids of ten digits": (lambda r: 10**9 + 2_654_435_761 * int(3000 * r.random() ** 3) % (9 * 10**9), own),
    "13 counts as in click logs, 3 with missing ones, 7 matter": (click_log, by_every_other),
}
"""How the numbers of an example are drawn, and their effect on the logarithm of the odds."""


def generated(name: str, examples: int) -> Iterator[list[str]]:
    """The header and lines of a set, in cells."""
    chance = Random(name)
    draw, effect = GENERATED[name]
    for i in range(examples):
        drawn = draw(chance)
        numbers = drawn if isinstance(drawn, tuple) else (drawn,)
        if not i:
            yield ["label", "site", "slot", *(f"n{at}" for at in range(len(numbers)))]
        site, slot = f"s{chance.randrange(20)}", f"t{chance.randrange(5)}"
        log_odds = own(site) + own(slot, 0.3) - 1.6 + (0.0 if drawn is None else effect(drawn))
        label = chance.random() < 1 / (1 + math.exp(-log_odds))
        yield [str(int(label)), site, slot, *("" if number is None else str(number) for number in numbers)]


def real(lines: Sequence[str], label: str, *left_out: str) -> Iterator[list[str]]:
    """The header and lines of a table all of whose other columns are numbers, in cells."""
    names = lines[0].split(",")
    kept = [at for at, name in enumerate(names) if name not in left_out]
    yield ["label" if names[at] == label else names[at] for at in kept]
    for line in lines[1:]:
        cells = line.split(",")
        yield [cells[at] for at in kept]


def measured(table: Sequence[list[str]], rule: str, learners: Sequence[str] = LEARNERS) -> list[float]:
    """The normalized entropy of each learner where the numbers of a table are made features by a rule."""
    kind, bits = RULES[rule]
    header, *lines = table
    numbers = [at for at, name in enumerate(header) if name not in ("label", "site", "slot")]
    fields = {header[at]: {"kind": kind} for at in numbers}
    with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as file:
        file.write(",".join(header) + "\n")
        for line in lines:
            cells = [_cut(cell, bits) if bits and at in numbers else cell for at, cell in enumerate(line)]
            file.write(",".join(cells) + "\n")
        file.flush()
        config = Config.model_validate({**CONFIG, "features": {"fields": fields}})
        request = EvaluationRequest((file.name,), learn=tuple(learners), config=config, table=TableColumns("label"))
        figures = Evaluation(request).run(lambda status: None, lambda text: None).figures
    return [row["normalized_entropy"] for row in figures]


def run(quick: bool) -> list[Row]:
    """Rows of name, value (normalized entropy; 1 is a constant), unit and note."""
    rows: list[Row] = []
    for name in list(GENERATED)[: 1 if quick else None]:
        rows += _rows(name, list(generated(name, EXAMPLES)))
    if quick:
        return rows
    if not bench_defaults.DATA.is_dir():
        raise Incomplete(rows, "phishing and TalkingData need the data sets of ../shared/data")
    rows += _rows("phishing, real: 9 numbers of 0, ½, 1", list(real(bench_defaults.phishing(), "is_phishing")))
    clicks = real(bench_defaults.talkingdata(), "is_attributed", "click_time", "attributed_time")
    rows += _rows("TalkingData, real: five ids, no text", list(clicks))
    return rows


def _rows(name: str, table: Sequence[list[str]]) -> Iterator[Row]:
    for rule in RULES:
        value, *others = measured(table, rule)
        note = ", ".join(f"{learner} {other:.3f}" for learner, other in zip(LEARNERS[1:], others, strict=True))
        yield {"name": f"{name}: {rule}", "value": value, "unit": "NE", "note": note}


def _cut(cell: str, bits: int) -> str:
    return cell and f"b{struct.unpack('<Q', struct.pack('<d', float(cell) + 0.0))[0] >> bits}"
