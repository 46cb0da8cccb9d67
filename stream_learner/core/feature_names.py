"""What the keys of an event's features were made from, for messages.

In: keys, the event, the specification. Out: names of fields and crosses. This file must never be on a hot path: a key
does not tell its name, so every text that the event might have given is hashed and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from stream_learner.core.decode_plain import parse_event, walk
from stream_learner.core.feature_spec import FeatureSpec
from stream_learner.core.features import FeatureEncoder
from stream_learner.core.hashing import hash_texts
from stream_learner.core.reasons import Refused


def names_of_keys(keys: Iterable[int], event: bytes, spec: FeatureSpec) -> list[str]:
    """The fields and crosses that gave these keys, each once; a key that none explains as 0x and hex digits.

    >>> names_of_keys(hash_texts([b"site=news", b"price"]), b'{"site":"news","price":3}', FeatureSpec())
    ['site', 'price']
    """
    explained = dict(_explained(event, spec))
    return list(dict.fromkeys(explained.get(key, f"0x{key:016x}") for key in keys))


def _explained(event: bytes, spec: FeatureSpec) -> Iterator[tuple[int, str]]:
    """Keys, each with the name of what may have given it; of several the last is the surest."""
    try:
        fields = parse_event(event, len(event))
    except Refused:
        return
    for cross in spec.crosses:
        alone = FeatureEncoder(replace(spec, crosses=(cross,))).encode_one(event)
        yield from ((key, " x ".join(cross)) for key in alone.keys.tolist())
    texts = [(f"{spec.in_keys(name)}:missing", name) for name in spec.fields]
    for name, value in walk(fields, lambda _: True):
        texts += [(text, name) for text in _texts(name, value, spec)]
    yield from zip(hash_texts([text.encode() for text, _ in texts]), (name for _, name in texts), strict=True)


def _texts(name: str, value: Any, spec: FeatureSpec) -> list[str]:
    """What a field may be hashed as, whatever its kind."""
    text = spec.in_keys(name)
    if isinstance(value, bool):
        return [f"{text}={'true' if value else 'false'}"]
    if isinstance(value, str):
        return [f"{text}={value}"]
    if not isinstance(value, int | float):
        return []
    edges = spec.of(name).edges
    return [text, f"{text}={value}", f"{text}=b{int(np.searchsorted(edges, value, side='right'))}"]
