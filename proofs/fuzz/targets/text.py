"""Files of examples, LIBSVM, CSV, JSON lines and VW text: every line as a slow reader reads it.

The text lies in memory with exactly the room around it that `VwText` promises to its kernels, and then an
inaccessible page.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from proofs.fuzz import slow_vw
from proofs.fuzz.guard import Side, fenced, fenced_arrays
from proofs.fuzz.json_text import event_text
from proofs.fuzz.mutate import mutated
from proofs.fuzz.target import Target, Wrong
from stream_learner.core.events import decoders
from stream_learner.core.events.fast import fields
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.plan import Plan
from stream_learner.evaluate.formats.base import LineParser, Parsed
from stream_learner.evaluate.formats.csv import CsvText
from stream_learner.evaluate.formats.json_lines import JsonLines
from stream_learner.evaluate.formats.libsvm import LibsvmText
from stream_learner.evaluate.formats.vw import parser as vw
from stream_learner.evaluate.formats.vw.parser import VwText, VwTextOptions
from tests.evaluate.formats import text_oracle

NUMBERS = (
    "0", "-0", "+1", "1", "007", ".5", "5.", "1e5", "1E-3", "1e400", "1e-400", "5e-324", "0.00012345678901234567",
    "9007199254740993", "18446744073709551616", "18446744073709551616.5", "1" + "0" * 64, "1" + "0" * 64 + ".5",
    "1e0005", "1.7976931348623157e308", "nan", "inf", "1x", "-", "+", "e5", ".", "1e", "1e+", "--1", "0x1", "1_0", "",
)  # fmt: skip
_BLOCK_FROM = 60


class _Lines(Target):
    """Blocks of lines through one parser, which is replaced now and then."""

    batch_inputs = 100

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._parsers: dict[Side, LineParser] = {}
        self._left = 0

    def make_parser(self) -> LineParser:
        """A new parser."""
        raise NotImplementedError

    def line(self, rng: Random) -> bytes:
        """A line, mostly a good one."""
        raise NotImplementedError

    def wanted(self, line: bytes) -> text_oracle.Line:
        """The slow reader's result for a line."""
        raise NotImplementedError

    def make(self, rng: Random) -> bytes:
        if rng.random() < 0.3:
            return mutated(rng, rng.choice(self.corpus), self.corpus)
        text = b"".join(self.line(rng) for _ in range(rng.choice((1, 1, 2, 5))))
        return mutated(rng, text, self.corpus) if rng.random() < 0.3 else text

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        accepted = 0
        for text in inputs:
            with fenced_arrays(side, vw, fields, decoders):
                if self._left == 0:
                    self._parsers = {}
                    self._left = _BLOCK_FROM
                self._left -= 1
                parser = (
                    self._parsers.setdefault(side, self.make_parser())
                    if side not in self._parsers
                    else self._parsers[side]
                )
                self._at_the_edge(parser, text, side)
                parsed = parser.parse(text, 7)
            wanted = [self.wanted(line) for line in text_oracle.split(text)]
            try:
                text_oracle.check(parsed, wanted, 7)
            except AssertionError:
                found = text_oracle.examples(parsed), parsed.faults
                raise Wrong(f"{text[:300]!r} is {str(found)[:600]}, not {wanted}") from None
            accepted += len(parsed.lines) > 0
        return accepted

    def _at_the_edge(self, parser: Any, text: bytes, side: Side) -> None:
        """Give a parser that copies its text memory of exactly the size of the text."""
        work = getattr(parser, "_work", None)
        if work is not None:
            work._text = fenced(len(text) + 2 * vw._MARGIN, side)


class LibsvmLines(_Lines):
    """LIBSVM text."""

    name = "libsvm-text"

    def make_parser(self) -> LineParser:
        return LibsvmText()

    def wanted(self, line: bytes) -> text_oracle.Line:
        return text_oracle.libsvm(line)

    def line(self, rng: Random) -> bytes:
        tokens = [rng.choice((rng.choice(NUMBERS), "1", "-1", "+1", ""))]
        for _ in range(rng.randrange(8)):
            index = rng.choice((str(rng.randrange(30)), str(rng.randrange(10**19)), "0007", "x", "qid", "1" * 20))
            number = rng.choice((rng.choice(NUMBERS), repr(rng.uniform(-9, 9))))
            tokens.append(index + rng.choice((":", ":", ":", ":", "", "::")) + number)
        end = rng.choice(("\n", "\n", "\r\n", " # a 1:2\n", "\t\n", "", "#\n"))
        return (rng.choice((" ", " ", "\t", "  ")).join(tokens) + end).encode()


class CsvLines(_Lines):
    """CSV text with crosses, buckets, logarithms and missing indicators."""

    name = "csv-text"
    names = ("y", "site", "age", "w", "a name that is longer than thirty-two bytes", "size", "x=", "skipped")
    spec: dict[str, Any] = {  # noqa: RUF012 - never changed
        "categorical": ["x="],
        "fields": {
            "size": {"kind": "bucket", "edges": [0.0, 1.5, 100.0], "missing": "indicator"},
            "age": {"kind": "log", "edges": [], "missing": "skip"},
        },
        "crosses": [["site", "x="], ["age", "size"]],
        "key_rule": 3,
    }

    def make_parser(self) -> LineParser:
        return CsvText(self.names, label="y", weight="w", features=FeatureSpec.from_dict(self.spec), header=False)

    def wanted(self, line: bytes) -> text_oracle.Line:
        return text_oracle.csv_line(line, list(self.names), "y", "w", self.spec)

    def make(self, rng: Random) -> bytes:
        """Fields hold UTF-8 without control characters, which Python's reader treats differently."""
        text = super().make(rng).decode("utf-8", "ignore")
        return "".join(c for c in text if c == "\n" or c == "\t" or (c >= " " and c != "\x7f")).encode()

    def line(self, rng: Random) -> bytes:
        cells = [rng.choice(NUMBERS) if rng.random() < 0.2 else self._cell(rng) for _ in self.names]
        cells[0], cells[3] = rng.choice(("0", "1", "", "true", "x", "-1")), rng.choice(("", "2", "0", "-1", "0.5", "1"))
        if rng.random() < 0.1:
            cells = rng.choice((cells[:-1], [*cells, ""], [*cells, "x"]))
        return (",".join(cells) + rng.choice(("\n", "\n", "\r\n", ""))).encode()

    def _cell(self, rng: Random) -> str:
        plain = rng.choice(("", "a", "news", "5", " 5", "7.5 ", "é日", "x" * 40, "a b", "'", "="))
        return '"' + plain.replace('"', '""') + rng.choice(("", ",", '""')) + '"' if rng.random() < 0.2 else plain


class JsonLinesText(_Lines):
    """JSON lines, whose features must be those of the plain path."""

    name = "json-lines"
    ignore = ("id", "y", "w")

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._plan = Plan({}, FeatureSpec(), ("y", "w", "id"))

    def make_parser(self) -> LineParser:
        return JsonLines(label="y", weight="w", ignore=("id",))

    def wanted(self, line: bytes) -> text_oracle.Line:
        from proofs.fuzz.targets.events import plainly
        from stream_learner.core.events.reference import parse_event

        if text_oracle.without_end(line) == b"" and line in (b"\n", b"\r\n", b""):
            return None
        status, _, _, _, keys, values, _ = plainly(self._plan, line, 0)
        if status:
            return text_oracle.FAULT
        event = parse_event(line, 1 << 62)
        label, weight = _number_of(event, "y"), _number_of(event, "w")
        if isinstance(label, str):
            label = {"1": 1.0, "0": 0.0, "-1": -1.0, "true": 1.0, "false": 0.0}.get(label, text_oracle.FAULT)
        label = float(label) if isinstance(label, bool) else label
        if label == text_oracle.FAULT or isinstance(weight, (str, bool)) or (weight or 0) < 0:
            return text_oracle.FAULT
        features = list(zip(keys, values, strict=True))
        return None if label is None else float(label), 1.0 if weight is None else abs(float(weight)), features

    def line(self, rng: Random) -> bytes:
        text = event_text(rng, (b'{"id":"x","y":1,"w":2,"a":"b","n":1.5}', b'{"y":true,"w":null,"f":[1,{"x":2}]}'))
        return text.replace(b"\n", b" ") + rng.choice((b"\n", b"\n", b"\r\n", b""))


def _number_of(event: dict[str, Any], name: str) -> Any:
    """The value of the field for label or weight, or FAULT. A list of one value counts as that value.

    Names are joined with `.`, so a field `a.b` counts as the field `b` inside `a`.
    """
    found: list[Any] = []
    waiting: list[tuple[Any, bool]] = [(event[name], False)] if name in event else []
    waiting += [(value, True) for key, value in event.items() if key.startswith(name + ".")]
    while waiting:
        value, inside = waiting.pop()
        if isinstance(value, list):
            waiting += [(inner, inside) for inner in value]
        elif isinstance(value, dict):
            waiting += [(inner, True) for inner in value.values()]
        elif value is not None:
            found.append(text_oracle.FAULT if inside else value)
    return text_oracle.FAULT if len(found) > 1 else found[0] if found else None


VW_OPTIONS = (
    VwTextOptions(),
    VwTextOptions("vw", 18, ngram=2, skips=1, quadratic=("::",), repeats=True),
    VwTextOptions("vw", 24, hash_all=True, cubic=("aab",), ignore="1", constant=0.5),
    VwTextOptions(quadratic=("ab", "::"), ngram=3, keep="ab ", noconstant=True),
)
"""The first are compared with the slow reader; the others must read a line alone as they read it among others."""


class VwLines(Target):
    """VW text. The first byte of an input says with which options it is read again."""

    name = "vw-text"
    batch_inputs = 100

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._texts = [data[1:] for data in corpus]
        self._parsers: dict[tuple[Side, VwTextOptions], VwText] = {}
        self._left = _BLOCK_FROM

    def make(self, rng: Random) -> bytes:
        number = bytes((max(0, rng.randrange(-4, len(VW_OPTIONS))),))
        if rng.random() < 0.2:
            return number + mutated(rng, rng.choice(self._texts), self._texts)
        text = b"".join(self._line(rng) for _ in range(rng.choice((1, 1, 2, 4))))
        return number + (mutated(rng, text, self._texts) if rng.random() < 0.3 else text)

    def _line(self, rng: Random) -> bytes:
        """A line, mostly a good one."""
        head = " ".join(self._number(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
        head += rng.choice((" ", " ", "  ", "", "\t")) + rng.choice(("", "", "", "tag", "'t ", "'t:1", "'"))
        spaces = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            scale = ":" + self._number(rng) if rng.random() < 0.2 else ""
            words = [self._word(rng) for _ in range(rng.choice((0, 1, 2, 5)))]
            name = rng.choice(("a", "b", "ab", "1", "12", "c" * 35, "é", "", "", "\x01"))
            spaces.append("|" + name + scale + " " * bool(words) + rng.choice((" ", " ", "  ", "\t")).join(words))
        return (head + "".join(spaces) + rng.choice(("\n", "\n", "\r\n", " \n", ""))).encode()

    def _word(self, rng: Random) -> str:
        name = rng.choice(("x", "y", "site=news", "7", "0007", "9" * 21, "d" * 40, "é日", "", "\x00", "x^y", "%=_-."))
        return name + (":" + self._number(rng) if rng.random() < 0.5 else "")

    def _number(self, rng: Random) -> str:
        return rng.choice((rng.choice(NUMBERS), "1", "-1", "2", "0.5", repr(rng.uniform(-9, 9)), "1" * 25 + ".5"))

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(data[0] % len(VW_OPTIONS), data[1:], side) for data in inputs if data)

    def _check(self, number: int, text: bytes, side: Side) -> bool:
        lines = text_oracle.split(text)
        parsed = self._parse(side, VW_OPTIONS[0], text, 7)
        wanted = {place: slow_vw.read_line(line) for place, line in enumerate(lines, 7)}
        got = self._said(parsed)
        if got != {place: what for place, what in wanted.items() if what is not None}:
            raise Wrong(f"{text[:300]!r} is {str(got)[:600]}, not {str(wanted)[:600]}")
        if number:
            self._alone(VW_OPTIONS[number], text, lines, side)
        return len(parsed.lines) > 0

    def _alone(self, options: VwTextOptions, text: bytes, lines: list[bytes], side: Side) -> None:
        """Raise Wrong if a line is read otherwise among others than alone."""
        together = self._said(self._parse(side, options, text, 7))
        apart: dict[int, Any] = {}
        for place, line in enumerate(lines, 7):
            apart.update(self._said(self._parse(side, options, line, place)))
        if together != apart:
            raise Wrong(f"{text[:300]!r} with {options} is {str(together)[:400]}, line by line {str(apart)[:400]}")

    def _said(self, parsed: Parsed) -> dict[int, Any]:
        """The result for each line: FAULT, or label, weight, features and tag."""
        found: dict[int, Any] = {fault.line: slow_vw.FAULT for fault in parsed.faults}
        tags = parsed.tags or [b""] * len(parsed.lines)
        for (line, (label, weight, features)), tag in zip(text_oracle.examples(parsed).items(), tags, strict=True):
            if line in found:
                raise Wrong(f"line {line} is a fault and an example")
            found[line] = slow_vw.SlowExample(label, weight, features, tag)
        return found

    def _parse(self, side: Side, options: VwTextOptions, text: bytes, first_line: int) -> Parsed:
        """Parse with memory of exactly the size of the text."""
        with fenced_arrays(side, vw):
            if self._left == 0:
                self._parsers, self._left = {}, _BLOCK_FROM
            self._left -= 1
            parser = self._parsers.get((side, options)) or VwText(options)
            self._parsers[side, options] = parser
            parser._text = fenced(len(text) + 2 * vw._MARGIN, side)
            return parser.parse(text, first_line)
