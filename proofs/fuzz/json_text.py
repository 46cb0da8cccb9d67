"""Random and damaged JSON: events, and texts that are almost events."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from proofs.fuzz.mutate import json_bytes_mutated, mutated
from tests.core.events import json_texts

_DEPTHS = (2, 3, 46, 47, 48, 49, 50, 51, 200, 1022, 1023, 1024, 1025, 3000)
_LONG = (15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 4_095, 4_096, 4_097)


def event_text(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """An event made from a grammar, a seed changed as a value or as bytes, or a special case."""
    kind = rng.random()
    if kind < 0.30:
        return json_texts.event(rng, rng.choice((0.0, 0.01, 0.1, 0.3)))
    if kind < 0.45:
        return json_texts.damage(rng, json_texts.event(rng, 0.05))
    if kind < 0.75:
        return mutated(rng, rng.choice(seeds), seeds)
    if kind < 0.88:
        return json_bytes_mutated(rng, rng.choice(seeds))
    return _ODDITIES[rng.randrange(len(_ODDITIES))](rng, rng.choice(seeds))


def _nested(rng: Random, seed: bytes) -> bytes:
    """An event with deeply nested lists or objects, not always closed."""
    depth = rng.choice(_DEPTHS)
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"f":[', b"]}"), (b'{"d":{"e":', b"}}")))
    inner = rng.choice((b"1", b'"x"', b"null", b"{}", b"[]", b""))
    missing = rng.choice((0, 0, 0, 1, -1))
    return b'{"id":"x","t":1,"f":' + opening * depth + inner + closing * max(0, depth - missing) + b"}"


def _long_text(rng: Random, seed: bytes) -> bytes:
    """An event with a text, name or number whose length is at a limit of the decoder."""
    size = rng.choice(_LONG) + rng.choice((-1, 0, 0, 1))
    text = rng.choice((b"a", b"\\n", "é".encode(), b"\\u00e9", b"\\ud83d\\ude00")) * size
    number = rng.choice((b"1", b"0", b"9")) * size
    return rng.choice(
        (
            b'{"id":"%b","a":"x"}' % text,
            b'{"id":1,"t":1,"a":"%b"}' % text,
            b'{"id":1,"%b":"x"}' % text,
            b'{"id":1,"user":{"%b":[1,"%b"]}}' % (text, text),
            b'{"id":%b,"b":1%b.5,"n":0.%b1,"x":%be%d}' % (b"7", number, number, b"1", rng.randrange(-400, 400)),
            b'{"id":%b}' % number,
        )
    )


def _spaced(rng: Random, seed: bytes) -> bytes:
    """An event with much white space before, behind and inside."""
    space = rng.choice((b" ", b"\n", b"\t", b"\r", b" \n\t\r")) * rng.choice((1, 7, 16, 64, 65, 300))
    at = rng.randrange(len(seed) + 1)
    return rng.choice((seed + space, space + seed, space, seed[:at] + space + seed[at:], space + seed + space))


def _wide(rng: Random, seed: bytes) -> bytes:
    """An event with many fields or elements, and names that are equal or nearly so."""
    count = rng.choice((2, 5, 40, 300))
    names = [rng.choice((b"a", b"a%d" % i, b"a.%d" % i, b"\\u0061", b"user", b"")) for i in range(count)]
    values = (b"1", b'"x"', b"[]", b'{"id":"y","a":1}', b"null", b"[1,2]", b"-0.0")
    members = b",".join(b'"%b":%b' % (name, rng.choice(values)) for name in names)
    return rng.choice((b'{"id":"x",%b}' % members, b'{"id":1,"f":{%b}}' % members, b"[{%b}]" % members))


_ODDITIES = (_nested, _long_text, _spaced, _wide)
