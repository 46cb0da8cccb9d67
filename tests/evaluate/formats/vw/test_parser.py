"""VW text into columns, against slow oracles: line by line, number by number, key by key."""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.evaluate.formats.base import Fault, Parsed
from stream_learner.evaluate.formats.vw.parser import CONSTANT_HASH, KEY_OF_INDEX, VwText, VwTextOptions
from tests.oracles.vw_text import _gram_offsets, read_line

DATA = Path(__file__).resolve().parents[4].parent / "shared" / "data" / "vw"
Features = list[tuple[int, float]]

seeds = st.integers(0, 2**32).map(Random)
LETTERS = "abcxyz0129_=%^-.'é€\x7f"
NAMESPACES = ["a", "b", "ab", "12", "1", "c" * 35, "é", ""]


def number(rng: Random, zero: bool = True) -> str:
    """Digits with or without decimals and exponent; the value fits into a float32 four times over."""
    whole = "".join(rng.choices("0123456789", k=rng.randint(1, 4)))
    decimals = "." + "".join(rng.choices("0123456789", k=rng.randint(1, 12))) if rng.random() < 0.5 else ""
    exponent = rng.choice([f"e{rng.randint(-9, 0)}", f"e+{rng.randint(0, 3)}"]) if rng.random() < 0.4 else ""
    text = rng.choice(["", "", "-"]) + whole + decimals + exponent
    return text if zero or float(text) != 0.0 else "1"


def word(rng: Random) -> str:
    """A name of digits, of letters or a long one, with or without a number."""
    digits = "".join(rng.choices("0123456789", k=rng.randint(1, 21)))
    name = digits if rng.random() < 0.2 else "".join(rng.choices(LETTERS, k=rng.choice([1, 1, 1, 3, 9, 40])))
    return name + (":" + number(rng) if rng.random() < 0.5 else "")


def good_line(rng: Random) -> str:
    """A line as VW likes it; a namespace may be empty, or hold nothing but zeros."""
    head = number(rng) + rng.choice(["", " 2", " .5"]) + " " + rng.choice(["", "tag", "'t:1"])
    segments = []
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(NAMESPACES)
        scale = ":" + number(rng, zero=False) if name and rng.random() < 0.3 else ""
        words = [word(rng) for _ in range(rng.randint(0, 6))]
        segments.append(f"|{name}{scale} {rng.choice([' ', '  ']).join(words)}")
    return head + "".join(segments) + rng.choice(["", " "])


def good_lines(rng: Random, most: int = 4) -> list[str]:
    """Some of them."""
    return [good_line(rng) for _ in range(rng.randint(1, most))]


def rows_of(parsed: Parsed) -> list[Features]:
    """The features of each example."""
    batch = parsed.batch
    pairs = list(zip(batch.keys.tolist(), batch.values.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(batch.row_start)]


def parse(lines_: Sequence[str], options: VwTextOptions | None = None) -> Parsed:
    """A block of these lines, by a new parser."""
    return VwText(options).parse("".join(line + "\n" for line in lines_).encode(), 1)


@settings(max_examples=150, deadline=None)
@given(
    rng=seeds,
    bits=st.integers(4, 32),
    ngram=st.integers(1, 3),
    skips=st.integers(0, 2),
    pairs=st.sets(st.sampled_from(["aa", "ab", "bc", "1a"])),
)
def test_in_vws_manner_everything_is_the_oracles(
    rng: Random, bits: int, ngram: int, skips: int, pairs: set[str]
) -> None:
    """Keys, values, labels and importances, in the tool's order."""
    block = good_lines(rng)
    options = VwTextOptions("vw", bits, False, tuple(pairs), (), ngram, skips, repeats=True)
    parsed = parse(block, options)
    assert parsed.faults == []
    for i, (line, found) in enumerate(zip(block, rows_of(parsed), strict=True)):
        wanted = read_line(line, np.float64, bits, ngram, skips, sorted(pairs))
        assert [key for key, _ in found] == [index + KEY_OF_INDEX for index, _ in wanted.features]
        assert [x for _, x in found] == pytest.approx([float(x) for _, x in wanted.features], rel=1e-12)
        assert parsed.batch.label[i] == pytest.approx(wanted.label, rel=1e-12)
        assert parsed.batch.weight[i] == wanted.importance


def key(*parts: bytes | int) -> int:
    """XXH64 of bytes and of keys as bytes."""
    return xxhash.xxh64_intdigest(b"".join(p.to_bytes(8, "little") if isinstance(p, int) else p for p in parts))


def slow_features(line: str, ngram: int, skips: int, pairs: Sequence[str], triples: Sequence[str]) -> Features:
    """Our keys and the nearest float64, a dictionary for the sums: all that the format has, the slow way."""
    groups: dict[str, Features] = {}
    for text in line.split("|")[1:]:
        head, *words = text.split(" ")
        name, _, scale = head.partition(":")
        prefix = name.encode() + b"^" if name else b""
        for word in filter(None, words):
            feature, _, value = word.partition(":")
            x = float(value or "1") * float(scale or "1")
            if x != 0.0:
                groups.setdefault((name or " ")[0], []).append((key(prefix + feature.encode()), x))
    for features in groups.values():
        plain = list(features)
        for more in range(1, ngram):
            for offsets in _gram_offsets(more, skips):
                for i in range(len(plain) - offsets[-1]):
                    gram = plain[i][0]
                    for offset in offsets:
                        gram = key(gram, plain[i + offset][0], b" ")
                    features.append((gram, 1.0))
    every = [f for features in groups.values() for f in features] + [(BIAS_KEY, 1.0)]
    for a, b in pairs:
        for i, (k, x) in enumerate(groups.get(a, [])):
            every += [(key(k, m), x * z) for m, z in groups.get(b, [])[i if a == b else 0 :]]
    for a, b, c in triples:
        for i, (k, x) in enumerate(groups.get(a, [])):
            for j, (m, y) in enumerate(groups.get(b, [])):
                if a != b or j >= i:
                    rest = groups.get(c, [])[j if b == c else 0 :]
                    every += [(key(k, m, n), x * y * z) for n, z in rest]
    sums: dict[int, float] = {}
    for k, x in every:
        sums[k] = sums[k] + x if k in sums else x
    return list(sums.items())


@settings(max_examples=150, deadline=None)
@given(
    rng=seeds,
    ngram=st.integers(1, 3),
    skips=st.integers(0, 2),
    pairs=st.sets(st.sampled_from(["aa", "ab", "1a", " a"])),
    triples=st.sets(st.sampled_from(["aaa", "aab", "abb", "1ab"])),
)
def test_our_keys_and_sums_are_those_of_the_slow_reader(
    rng: Random, ngram: int, skips: int, pairs: set[str], triples: set[str]
) -> None:
    """XXH64 of namespace^name; n-grams, interactions of two and three, repeats summed where they came first."""
    block = good_lines(rng)
    if triples:  # or there would be too many features
        ngram, skips = min(ngram, 2), 0
    options = VwTextOptions(quadratic=tuple(pairs), cubic=tuple(triples), ngram=ngram, skips=skips)
    parsed = parse(block, options)
    for line, found in zip(block, rows_of(parsed), strict=True):
        assert found == slow_features(line, ngram, skips, sorted(pairs), sorted(triples))


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(
        st.from_regex(r"[-+]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?", fullmatch=True),
        min_size=1,
        max_size=5,
    )
)
def test_exact_numbers_are_the_nearest_floats(texts: list[str]) -> None:
    """However long, however small: what Python reads. Infinite ones are faults, zeros are no features."""
    (wanted,) = [[float(text) for text in texts]]
    parsed = parse(["1 |a " + " ".join(f"{i}:{text}" for i, text in enumerate(texts))], VwTextOptions(repeats=True))
    if any(math.isinf(x) for x in wanted):
        assert [fault.expected for fault in parsed.faults] == ["a finite number"]
    else:
        assert parsed.batch.values.tolist() == [*(x for x in wanted if x != 0.0), 1.0]


def test_many_numbers_beyond_64_bits_are_decided_in_order() -> None:
    """More in one line than there is room for at first, in every part of the line."""
    wanted = [float(f"{i}.{'3' * 30}") for i in range(3000)]
    tail = "3" * 30
    text = f"1.{tail} 2.{tail} |a:1.{tail} " + " ".join(f"x{i}:{i}.{tail}" for i in range(3000))
    batch = parse(["3 | a", text, "4 | b"], VwTextOptions(repeats=True)).batch
    scale = float(f"1.{tail}")
    assert batch.values[2:-3].tolist() == [x * scale for x in wanted]
    assert (batch.label.tolist(), batch.weight[1]) == ([3.0, scale, 4.0], float(f"2.{tail}"))


@pytest.mark.parametrize("name", ["0001.dat.gz", "0002.dat.gz", "rcv1_small.dat.gz", "0002_25.dat"])
def test_the_tools_own_files_are_read_as_the_oracle_reads_them(name: str) -> None:
    """Every line of them."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs {name} in ../shared/data/vw")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    parsed = VwText(VwTextOptions(hashing="vw", repeats=True)).parse(raw, 1)
    text = raw.decode().splitlines()
    assert len(parsed.batch) == len(text)
    for line, found in zip(text, rows_of(parsed), strict=True):
        wanted = read_line(line, np.float64, 18)
        assert [key for key, _ in found] == [index + KEY_OF_INDEX for index, _ in wanted.features]
        assert [x for _, x in found] == pytest.approx([float(x) for _, x in wanted.features], rel=1e-12)


FAULTS = [
    ("1 a b", 6, "a bar | before the features"),
    ("1\t|a b", 2, "spaces, not a tab, between label and bar"),
    ("one |a b", 1, "a number as label, importance or base; or a tag, with its quote or next to the bar"),
    ("1e 't |a b", 1, "a number as label, importance or base; or a tag, with its quote or next to the bar"),
    ("nan |a b", 1, "a number as label, importance or base; or a tag, with its quote or next to the bar"),
    ("1e999 |a b", 1, "a finite number"),
    ("1 2 0 4 |a b", 7, "label, importance and base, and no further number"),
    ("1 2 0.5 |a b", 5, "no base, or 0"),
    ("1 'tag 2 |a b", 3, "a tag as the last word before the bar"),
    ("1 |a b |:2 c", 9, "a blank, a colon or a namespace behind the bar"),
    ("1 |a:x b", 6, "a number behind the colon"),
    ("1 |a: b", 6, "a number behind the colon"),
    ("1 |a b:", 8, "a number behind the colon"),
    ("1 |a b:red", 8, "a number behind the colon"),
    ("1 |a b:nan", 8, "a number behind the colon"),
    ("1 |a b:1e400", 8, "a finite number"),
    ("1 |a:1e300 b:1e300", 14, "a finite number"),
    ("1 |a b:1x c", 9, "a blank, a bar or the end of the line"),
    ("1 |a b:1:2", 9, "a blank, a bar or the end of the line"),
    ("1 |a:2x b", 7, "a blank, a bar or the end of the line"),
    ("1 |a b\rc d", 8, "the end of the line behind a carriage return"),
    ("1 |a b:1e308 b:1e308", 21, "a finite number"),
]


@pytest.mark.parametrize(("line", "column", "expected"), FAULTS)
def test_a_faulty_line_is_named_and_left_out(line: str, column: int, expected: str) -> None:
    """Line, column and what should stand there; the lines around it are as if it were not there."""
    parsed = parse(["1 |a x", "", line, "-1 |b y:2"])
    without = parse(["1 |a x", "", "", "-1 |b y:2"])
    assert parsed.faults == [Fault(3, column, expected)]
    assert rows_of(parsed) == rows_of(without)
    assert parsed.lines.tolist() == parsed.batch.id_hash.tolist() == [1, 4]


@settings(max_examples=150, deadline=None)
@given(
    rng=seeds,
    damage=st.binary(min_size=1, max_size=6) | st.text("0123456789.e+-:| \t\r'", max_size=6).map(str.encode),
    options=st.sampled_from(
        [
            VwTextOptions(),
            VwTextOptions("vw", repeats=True, ngram=2, quadratic=("::",)),
            VwTextOptions("vw", hash_all=True, cubic=("aab",), ignore="1"),
        ]
    ),
)
def test_damage_stays_in_its_line(rng: Random, damage: bytes, options: VwTextOptions) -> None:
    """Lines are read alike alone and in a block; each is a row, a fault or blank; the others do not change."""
    raw = [good_line(rng).encode() for _ in range(3)]
    hurt = raw[1]
    at = rng.randint(0, len(hurt))
    raw[1] = (hurt[:at] + damage + hurt[at + rng.choice([0, len(damage)]) :]).replace(b"\n", b" ")
    parser = VwText(options)
    block = parser.parse(b"\n".join(raw), 7)
    alone = [parser.parse(line, 7 + i) for i, line in enumerate(raw)]
    assert rows_of(block) == [row for one in alone for row in rows_of(one)]
    assert block.faults == [fault for one in alone for fault in one.faults]
    assert [len(one.batch) for one in alone[:1] + alone[2:]] == [1] * (len(raw) - 1)
    for one, line in zip(alone, raw, strict=True):
        assert len(one.batch) + len(one.faults) == (0 if not line.strip(b" \t\r") else 1)
        assert all(1 <= fault.column <= len(line) + 1 for fault in one.faults)
    assert np.isfinite(block.batch.values).all()
    assert block.batch.keys.all()


@settings(max_examples=100, deadline=None)
@given(text=st.binary(max_size=200) | st.text("01.e-:| \t\r\n'ab\x00\x01", max_size=200).map(str.encode))
def test_no_bytes_are_too_odd(text: bytes) -> None:
    """Anything at all gives rows and faults, in order of lines, and the same from a memoryview."""
    parsed = VwText(VwTextOptions(quadratic=("::",), ngram=2)).parse(memoryview(text), 2)
    numbered = sorted([*parsed.lines.tolist(), *(fault.line for fault in parsed.faults)])
    assert len(set(numbered)) == len(numbered)
    assert all(2 <= line <= 2 + text.count(b"\n") for line in numbered)
    assert parsed.lines.tolist() == sorted(parsed.lines.tolist())


def test_tags_labels_and_line_ends() -> None:
    """Tags with and without quote; no label is NaN; CRLF and blank lines count as lines; the last needs no end."""
    text = b"1 2 0 'first |a x\r\n\r\n   \t\n second|a x\n|a x\n'third|a x\n-1.5 | x\r\n3 4|"
    parsed = VwText().parse(text, 1)
    assert parsed.faults == []
    assert parsed.tags == [b"first", b"second", b"", b"third", b"", b"4"]
    assert parsed.lines.tolist() == [1, 4, 5, 6, 7, 8]
    np.testing.assert_array_equal(parsed.batch.label, [1.0, np.nan, np.nan, np.nan, -1.5, 3.0])
    assert parsed.labelled.tolist() == [True, False, False, False, True, True]
    assert parsed.batch.weight.tolist() == [2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert np.diff(parsed.batch.row_start).tolist() == [2, 2, 2, 2, 2, 1]
    assert parse(["1 |a x"]).tags == []
    assert len(VwText().parse(b"", 1).batch) == 0


def test_a_name_without_namespace_has_the_key_of_an_events_field() -> None:
    """So a model learned from a log reads the same words from VW text."""
    (row,) = rows_of(parse(["1 | site=example price:0.5"]))
    assert row == [(key(b"site=example"), 1.0), (key(b"price"), 0.5), (BIAS_KEY, 1.0)]


def test_namespaces_can_be_left_out_and_so_can_the_constant() -> None:
    """By first letter, a blank for the one without a name; the constant is no namespace."""
    line = ["1 |a x |b y | z |bb w"]
    a, b, none, bb = key(b"a^x"), key(b"b^y"), key(b"z"), key(b"bb^w")
    for options, wanted in [
        (VwTextOptions(ignore="b"), [a, none, BIAS_KEY]),
        (VwTextOptions(keep="b"), [b, bb, BIAS_KEY]),
        (VwTextOptions(keep="b ", ignore="b", noconstant=True), [none]),
        (
            VwTextOptions(ignore="a", quadratic=("ab", "bb")),
            [b, bb, none, BIAS_KEY, key(b, b), key(b, bb), key(bb, bb)],
        ),
    ]:
        ((*row,),) = rows_of(parse(line, options))
        assert [k for k, _ in row] == wanted
    ((*row,),) = rows_of(parse(["1 |"], VwTextOptions("vw", 30, constant=0.1, repeats=True)))
    assert row == [(CONSTANT_HASH + KEY_OF_INDEX, 0.1)]


def test_a_line_of_any_length_is_read_and_65535_features_are_the_most() -> None:
    """Room grows in the middle of a block and nothing is lost; one feature more is a fault."""
    most = "1 |a " + " ".join(f"w{i}" for i in range(65_534))
    parsed = parse(["1 |a x", most, most + " w", "1 |a y", "1 |b " + "b " * 363, "2 |a z"])
    assert np.diff(parsed.batch.row_start).tolist() == [2, 65_535, 2, 2, 2]
    assert [(fault.line, fault.expected) for fault in parsed.faults] == [(3, "at most 65,535 features")]
    pairs = parse(["1 |b " + " ".join(f"b{i}" for i in range(n)) for n in (360, 361)], VwTextOptions(quadratic=("bb",)))
    assert np.diff(pairs.batch.row_start).tolist() == [360 * 363 // 2 + 1]
    assert [fault.line for fault in pairs.faults] == [2]


def test_room_grows_while_grams_and_interactions_are_made() -> None:
    """A line that is read again counts once, also its namespaces; what follows n-grams does not overrun."""
    words = [" ".join(f"{letter}{i}" for i in range(1500)) for letter in "abc"]
    line = f"1 |a {words[0]} |b {words[1]} |c {words[2]} |d x y"
    for pairs in ((), ("da",)):
        ours = parse([line] * 3, VwTextOptions(ngram=2, quadratic=pairs))
        assert rows_of(ours) == [slow_features(line, 2, 0, pairs, ())] * 3


@settings(max_examples=50, deadline=None)
@given(rng=seeds)
def test_blocks_may_end_anywhere(rng: Random) -> None:
    """One parser for two blocks gives what another gives for the whole; what it handed out does not change."""
    block = good_lines(rng, 12)
    cut = rng.randint(0, len(block))
    options = VwTextOptions(quadratic=("::",), cubic=(":ba",))
    parser = VwText(options)
    first, second = (parser.parse("".join(x + "\n" for x in part).encode(), 1) for part in (block[:cut], block[cut:]))
    whole = parse(block, options)
    assert rows_of(first) + rows_of(second) == rows_of(whole)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hashing": "md5"}, "hashing is 'md5', must be one of xxh64, vw"),
        ({"bits": 0}, "bits is 0, must be from 1 to 62"),
        ({"ngram": 9}, "ngram is 9, must be from 1 to 8"),
        ({"skips": -1}, "skips is -1, must not be negative"),
        ({"ngram": 8, "skips": 50}, "50 skips of 8-grams are too many"),
        ({"quadratic": ("abc",)}, "an interaction is 'abc', must be 2 letters"),
        ({"cubic": ("ab",)}, "an interaction is 'ab', must be 3 letters"),
        ({"constant": math.nan}, "constant is nan, must be finite"),
    ],
)
def test_options_that_mean_nothing_are_refused(wrong: dict[str, object], message: str) -> None:
    """With the setting and what it may be."""
    with pytest.raises(ValueError, match=message):
        VwTextOptions(**wrong)  # type: ignore[arg-type]
