"""Bodies of prediction requests: the array of events that is found without parsing, against a parser.

The first byte of an input chooses the features. No HTTP server takes part: the code under test reads bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import orjson

from proofs.fuzz.guard import GuardedBuffer, Side, fenced, fenced_arrays
from proofs.fuzz.json_text import event_text
from proofs.fuzz.mutate import mutated
from proofs.fuzz.target import Target, Wrong
from proofs.fuzz.targets.events import FEATURES, plainly, rows
from stream_learner.core.events import decoders
from stream_learner.core.events.decoders import BatchDecoder
from stream_learner.core.events.fast import fields as decode_fields
from stream_learner.core.events.fast.requests import Elements, TooManyElements, find_elements, take_elements
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.plan import Plan
from stream_learner.core.machine.memory import address_of

KEY = b"instances"
MOST = 20
_DEEPEST = 1_000
"""orjson refuses nesting deeper than 1,024, and an event alone is two levels less deep than in its body."""


class Requests(Target):
    """`{"instances": [event, …], …}`."""

    name = "requests"

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._bodies = [data[1:] for data in corpus]
        self._plans = [Plan({}, FeatureSpec.from_dict(features), ("id", "t")) for features in FEATURES]
        self._buffers: dict[Side, GuardedBuffer] = {"end": GuardedBuffer("end"), "begin": GuardedBuffer("begin")}

    def make(self, rng: Random) -> bytes:
        number = bytes((rng.randrange(len(self._plans)),))
        if rng.random() < 0.5:
            return number + mutated(rng, rng.choice(self._bodies), self._bodies)
        odd = rng.random() < 0.3
        events = [self._event(rng) for _ in range(rng.choice((0, 1, 1, 2, 3, 20, 21)))]
        comma = rng.choice((b",", b", ", b" ,", b",\n")) if odd else b","
        array = b"[" + comma.join(events) + (rng.choice((b"]", b" ]", b",]", b"", b"}")) if odd else b"]")
        members = [b'"%b":%b' % (rng.choice((KEY, KEY, b"instance", b"inst\\u0061nces")) if odd else KEY, array)]
        for _ in range(rng.choice((0, 0, 1, 2))):
            other = rng.choice((b'"a":1', b'"signature_name":"x"', b'"b":[1,{"instances":[]}]', b'"c":"]"', b'"d":x'))
            members.insert(rng.randrange(len(members) + 1), other)
        if odd and rng.random() < 0.2:
            members.append(members[0])
        body = b"{" + b",".join(members) + b"}" + (rng.choice((b"", b" \n", b"x", b"}")) if odd else b"")
        return number + (mutated(rng, body, self._bodies) if rng.random() < 0.3 else body)

    def _event(self, rng: Random) -> bytes:
        seed = b'{"id":"x","a":1,"user":{"kind":"k"}}'
        text = event_text(rng, (seed,)) if rng.random() < 0.3 else rng.choice((seed, b'{"b":2}', b"{}"))
        return orjson.dumps(text.decode("utf-8", "ignore")) if rng.random() < 0.1 else text

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(data[0] % len(self._plans), data[1:], side) for data in inputs if data)

    def _check(self, number: int, body: bytes, side: Side) -> bool:
        whole = parsed(body)
        try:
            found = find_elements(body, KEY, MOST)
            count = -1 if found is None else len(found)
        except TooManyElements as error:
            found, count = None, error.count
            if whole is not None and (not isinstance(whole.get("instances"), list) or len(whole["instances"]) != count):
                raise Wrong(f"{body[:300]!r}: {count} instances were counted") from None
        if self._find_at_the_edge(body, side) != count:
            raise Wrong(f"{body[:300]!r}: another place of the same bytes gives another count than {count}")
        if found is None:
            return False
        self._compare(body, whole, found)
        return self._decode(number, found, side)

    def _find_at_the_edge(self, body: bytes, side: Side) -> int:
        """Run the kernel on memory that ends with the body, into memory that ends with the last byte it may write."""
        if not body:
            return -1
        room = min(len(body) // 2 + 1, MOST)
        text, key = self._buffers[side].put(body), np.frombuffer(KEY, np.uint8)
        written = [fenced(size, side) for size in (8 * (room + 1), len(body), 24)]
        bounds, data, span = map(address_of, written)
        return int(take_elements(address_of(text), len(body), address_of(key), len(KEY), bounds, room, data, span))

    def _compare(self, body: bytes, whole: dict[str, Any] | None, found: Elements) -> None:
        """The body is JSON if its rest is, and every element; a parser must then find the same."""
        data, bounds = found.data.tobytes(), found.bounds.tolist()
        texts = [data[a:b] for a, b in itertools.pairwise(bounds)]
        try:
            elements, rest = [orjson.loads(text) for text in texts], orjson.loads(found.rest)
        except ValueError:
            if whole is not None:
                raise Wrong(f"{body[:300]!r} is JSON, but not {found.rest[:100]!r} and {texts[:3]}") from None
            return
        if whole is None and max(body.count(b"["), body.count(b"{")) < _DEEPEST:
            raise Wrong(f"{body[:300]!r} is no JSON, but its parts are")
        if whole is not None and (whole["instances"] != elements or whole != {**rest, "instances": elements}):
            raise Wrong(f"{body[:300]!r} was cut up wrongly: {texts[:3]}, {found.rest[:100]!r}")
        if found.any_text != any(isinstance(element, str) for element in elements):
            raise Wrong(f"{body[:300]!r}: any_text is {found.any_text}")

    def _decode(self, number: int, found: Elements, side: Side) -> bool:
        """Decode the elements in the body with the encoder of a scorer."""
        plan, bounds = self._plans[number], found.bounds.tolist()
        data = found.data.tobytes()
        texts = [data[a:b] for a, b in itertools.pairwise(bounds)]
        with fenced_arrays(side, decoders, decode_fields):
            got = rows(BatchDecoder(plan).decode(self._buffers[side].put(data), found.bounds))
        for text, row in zip(texts, got, strict=True):
            if row != (right := plainly(plan, text, 0)):
                raise Wrong(f"{text[:300]!r} is {row}, not {right}")
        return all(row[0] == 0 for row in got)


def parsed(body: bytes) -> dict[str, Any] | None:
    """The object of a body, by the parser."""
    try:
        found = orjson.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
