"""Random JSON text for the tests of decoding, made with a `random.Random`: ordinary, hostile and damaged events.

Not all of it is valid JSON, because decoders differ most at the edges of validity.
"""

from __future__ import annotations

from random import Random

KEYS = ["id", "t", "w", "v", "user", "a", "b", "c", "d.e", "d", "e", "f", "n", "x", "log", "bucket", "number",
        "é", "cat", "", "a_name_of_some_length", "a_name_that_is_longer_than_thirty_two_bytes",
        "a=b", "bucket=b1", "a:missing", r"b\\", "=_a_name_that_is_longer_than_thirty-two_bytes="]  # fmt: skip

NUMBERS = [
    "0", "-0", "1", "-1", "7", "12", "123456789", "1234567890123", "999999999999999999",
    "1000000000000000000", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "9007199254740992", "9007199254740993", "18446744073709551615",
    "18446744073709551616", "12345678901234567890123", "0.0", "-0.0", "0.5", "1.5", "-2.75", "0.1",
    "0.30000000000000004", "3.141592653589793", "0.00012345678901234567", "1e3", "1E5", "1e+05", "1e-5",
    "1e22", "1e23", "1e308", "1e309", "-1e400", "1.7976931348623157e308", "1.7976931348623159e308",
    "2.2250738585072014e-308", "5e-324", "1e-400", "4.35", "0.000001", "123456789.123456789",
    "9007199254740993.0", "1e00005", "01", "00", "-01", "1.", ".5", "+1", "1e", "1e+", "-", "-a", "0x10",
    "1_000", "NaN", "Infinity", "1.5.5", "1700000000", "1700000000.25", "1700000000123", "1700000000123456",
    "253402300799999", "253402300800000", "100000000000", "99999999999", "100000000000000",
    "100000000000000000", "1e11",
]  # fmt: skip

STRINGS = ["", "x", "y", "abcdefg", "abcdefgh", "68fd1e64", "a longer string, of more than thirty-two bytes in all",
           "true", "é", "日本語テキスト", "😀", "mixé d 日 text", "\x7f", "2026-01-01T00:00:00Z",
           "1999-02-28T23:59:59.999+05:30",
           "2024-02-29 12:00", "2023-02-29T00:00:00Z", "2026-01-01T00:00:00.123456789-00:30", "x" * 39]  # fmt: skip

ESCAPES = [r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u0041", r"\u00e9", r"\u20AC", r"\ud83d\ude00",
           r"\ud83d", r"\ude00", r"\ud83dx", r"\u0000", r"\u12", r"\x41", "\\", r"\ud83d\u0041", r"\uD800\uDC00",
           r"\u00zz", "\x00", "\x1f", "\n", r"\udbff\udfff", r"\U0041"]  # fmt: skip

RAW_BYTES = [b"\xc3\xa9", b"\xc0\x80", b"\xe0\x80\x80", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80",
             b"\xf0\x90\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
             b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff", b"\xef\xbb\xbf"]  # fmt: skip

SPACES = [b"", b"", b"", b"", b" ", b" ", b"\n", b"\t", b"\r\n", b"  \n        ", b"\x0b", b"\xc2\xa0"]


def space(rng: Random, odd: float) -> bytes:
    """White space between tokens, empty or one blank if nothing odd is wanted."""
    return rng.choice(SPACES) if rng.random() < odd else rng.choice((b"", b" "))


def string(rng: Random, odd: float, text: str | None = None) -> bytes:
    """A string with its quotes."""
    body = (rng.choice(STRINGS) if text is None else text).encode()
    if rng.random() < odd:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.choice([rng.choice(ESCAPES).encode(), rng.choice(RAW_BYTES)]) + body[at:]
    return b'"' + body + b'"'


def number(rng: Random, odd: float) -> bytes:
    """A number, or what looks like one."""
    if rng.random() < odd:
        return rng.choice(NUMBERS).encode()
    kind = rng.randrange(4)
    if kind == 0:
        return str(rng.randrange(10 ** rng.randrange(1, 19))).encode()
    if kind == 1:
        return repr(rng.uniform(-10, 10)).encode()
    if kind == 2:
        return str(round(rng.uniform(-1000, 1000), rng.randrange(1, 5))).encode()
    return str(-rng.randrange(1000)).encode()


def value(rng: Random, odd: float, depth: int) -> bytes:
    """Any value."""
    kind = rng.randrange(12)
    if kind < 4:
        return string(rng, odd)
    if kind < 8:
        return number(rng, odd)
    if kind == 8:
        literals = (b"true", b"false", b"null", b"tru", b"True", b"nul", b"falsey", b"f")
        return rng.choice(literals if rng.random() < odd else literals[:3])
    if kind == 9 and depth > 0:
        return listing(rng, odd, depth - 1)
    if kind == 10 and depth > 0:
        return obj(rng, odd, depth - 1)
    return string(rng, odd)


def listing(rng: Random, odd: float, depth: int) -> bytes:
    """A list."""
    if rng.random() < odd * 0.2:
        deep = rng.choice((5, 47, 48, 49, 60, 1030))
        return b"[" * deep + value(rng, 0, 0) + b"]" * deep
    parts = [space(rng, odd) + value(rng, odd, depth) + space(rng, odd) for _ in range(rng.randrange(4))]
    return b"[" + b",".join(parts) + (b"," if rng.random() < odd * 0.1 else b"") + b"]"


def obj(rng: Random, odd: float, depth: int, first: tuple[bytes, ...] = ()) -> bytes:
    """An object; `first` are members it has in any case. Duplicate keys only if something odd is wanted."""
    count = rng.randrange(6)
    keys = rng.choices(KEYS, k=count) if rng.random() < odd else rng.sample(KEYS[5:], count)
    parts = list(first)
    for key in keys:
        colon = space(rng, odd) + (b":" if rng.random() > odd * 0.02 else b"") + space(rng, odd)
        parts.append(space(rng, odd) + string(rng, odd * 0.2, key) + colon + value(rng, odd, depth) + space(rng, odd))
    if rng.random() < 0.2:
        rng.shuffle(parts)
    return b"{" + b",".join(parts) + (b"," if rng.random() < odd * 0.05 else b"") + b"}"


def event(rng: Random, odd: float) -> bytes:
    """An event with an id, mostly a time, at times weight and value; the more odd, the more can be wrong."""
    identity = string(rng, odd) if rng.random() < 0.7 else number(rng, odd)
    time = string(rng, odd) if rng.random() < 0.3 else rng.choice((b"1700000000000", b"1700000000", number(rng, odd)))
    members = [b'"id":' + identity, b'"t":' + time, b'"user":{"id":' + identity + b',"kind":"x"}']
    if rng.random() < 0.3:
        members.append(b'"w": ' + number(rng, odd))
    if rng.random() < 0.3:
        members.append(b'"v":' + rng.choice((b"0.5", b"1", b"null", value(rng, odd, 1))))
    if rng.random() < odd * 0.3:
        members.pop(rng.randrange(len(members)))
    return space(rng, odd) + obj(rng, odd, 3, tuple(members)) + space(rng, odd)


def damage(rng: Random, raw: bytes) -> bytes:
    """The bytes with something done to them."""
    kind = rng.randrange(7)
    at = rng.randrange(len(raw) + 1)
    if kind == 0:
        return raw[:at]
    if kind == 1:
        return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
    if kind == 2:
        return raw[:at] + bytes([rng.choice(b'{}[]",:\\0123456789.eE+- \x00\x1f\x80\xff')]) + raw[at:]
    if kind == 3:
        return raw[:at] + raw[at + rng.randrange(1, 4) :]
    if kind == 4:
        other = rng.randrange(len(raw) + 1)
        return raw[: max(at, other)] + raw[min(at, other) :]
    if kind == 5:
        return raw + rng.choice((b"}", b"x", b",", b"\x00", b"{}", b"\x0c", b" \n", b"]"))
    return rng.choice(
        (b"", b" ", b"{}", b"[]", b"null", b"1", b'"x"', b"{", b"}", b"\xef\xbb\xbf" + raw, b"[" + raw + b"]")
    )
