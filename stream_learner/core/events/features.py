"""Features of events: the specification that a model is trained and served with, and the encoder of a scorer.

Events are decoded by the `BatchDecoder` of the joiner, so both give the same features:

| in the event | becomes |
|---|---|
| string, boolean, or integer of a categorical field | key `XXH64("N=value")`, value 1 (`true`, `false`, decimals) |
| number of kind `auto` | key `XXH64("N=b<s>")` with its size s (`feature_keys`), value 1; by rules 1, 2 as `number` |
| number of kind `number` | key `XXH64("N")`, value the number; also one with a fraction in a categorical field |
| number of kind `log` | key `XXH64("N")`, value sgn(x) log1p(abs(x)) |
| number of kind `bucket` | key `XXH64("N=b<i>")`, value 1 |
| time: value of kind `hour`, `weekday`, `hour_of_week` | key `XXH64("N=<i>")` (`local_time`), value 1 |
| list | one feature for each element; lists and objects inside are treated likewise |
| object | its fields, names joined with `.` |
| null, empty list, empty object | nothing; key `XXH64("N:missing")`, value 1, if the specification asks for it |
| cross of a and b | key `XXH64(key_a || key_b)`, little-endian, value the product, for all combinations |
| always | the bias: key `XXH64("")`, value 1 |

`N` is the name of the field, as `feature_keys` writes it.

The features of a row stand in this order: those of fields as they occur, depth first; missing indicators, then crosses,
in the order of the specification; the bias. Values of equal keys are summed at the place of the first, and a feature
whose value is then 0 is left out. The hash 0 becomes 1.

`names_of_keys` goes back from keys to names, for messages. A key does not tell its name, so every text that the event
might have given is hashed and compared: never use it on a hot path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_learner.core.events.decoders import BatchDecoder
from stream_learner.core.events.feature_keys import size_text
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.kinds import Kind, Missing
from stream_learner.core.events.local_time import PARTS
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import parse_event, walk
from stream_learner.core.machine.hashing import hash_texts

__all__ = ["EncodedRows", "Event", "FeatureEncoder", "FeatureSpec", "FieldSpec", "Kind", "Missing", "event_text"]

Event = bytes | str | dict[str, Any]

_DUMPS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


@dataclass(slots=True)
class EncodedRows:
    """Features of n events: status u8[n] (`Reason`, 0 = OK; an event that cannot be used has an empty row),
    row_start i64[n+1], keys u64[m] (distinct within a row, never 0), values f64[m] (finite, never 0).
    """

    status: NDArray[np.uint8]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.status)


class FeatureEncoder:
    """Turns events into features for scoring: no id and no time are needed.

    ignore_fields: paths of the event's id, time, weight and value that are no features (`EventSpec.paths`).
    One encoder serves one thread at a time. Raises ValueError if the specification uses an ignored field.
    """

    def __init__(self, feature_spec: FeatureSpec, ignore_fields: Sequence[str] = ()) -> None:
        self.decoder = BatchDecoder(Plan(roles={}, features=feature_spec, ignore=tuple(ignore_fields)))

    @property
    def handed_over(self) -> int:
        """How many events so far the fast decoder did not take, because they were unusual or had unknown fields."""
        return self.decoder.handed_over

    def encode_json(self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> EncodedRows:
        """Features of the n events data[bounds[i]:bounds[i+1]], bounds i64[n+1].

        Raises ValueError if the bounds do not rise from 0 or more to len(data) or less.
        """
        columns = self.decoder.decode(data, bounds, None)
        return EncodedRows(columns.status, columns.row_start, columns.keys, columns.values)

    def encode(self, events: Sequence[Event]) -> EncodedRows:
        """Features of events of any kind, as `event_text` reads them. Raises TypeError naming one that has no JSON."""
        texts = [event_text(event, position) for position, event in enumerate(events)]
        bounds = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
        return self.encode_json(b"".join(texts), bounds)

    def encode_one(self, event: Event) -> EncodedRows:
        """Features of one event, as a batch of one. Raises TypeError for what has no JSON."""
        text = event_text(event)
        return self.encode_json(text, np.array((0, len(text)), np.int64))


def event_text(event: Event, position: int = 0) -> bytes:
    """The JSON of an event: its bytes or text unchanged, a dictionary as orjson writes it.

    So in a dictionary, NaN and infinities become null, because JSON lacks them; NumPy scalars and arrays become numbers
    and lists. Raises TypeError, naming the event's position, for values that have no JSON.
    """
    if isinstance(event, bytes):
        return event
    if isinstance(event, str):
        return event.encode("utf-8", "surrogatepass")
    try:
        return orjson.dumps(event, option=_DUMPS)
    except TypeError as error:
        raise TypeError(f"event {position}: {error}") from None


def category_key(field: str, value: bool | int | str, spec: FeatureSpec) -> int:
    """The key (u64) of the feature that a value of a field becomes; of a time the value is its hour or weekday.

    Raises ValueError if it becomes no category, or one for the size of the value.

    >>> category_key("site", "news", FeatureSpec()) == hash_texts([b"site=news"])[0]
    True
    """
    settings = spec.of(field)
    if settings.is_time and type(value) is int and 0 <= value < PARTS[settings.kind][1]:
        return hash_texts([f"{spec.in_keys(field)}={value}".encode()])[0]
    is_size = type(value) is int and settings.kind == "auto"
    alone = replace(
        spec,
        fields={name: replace(found, missing="skip") for name, found in spec.fields.items()},
        crosses=(),
        bias=False,
    )
    event: Any = value
    for name in reversed(field.split(".")):
        event = {name: event}
    rows = FeatureEncoder(alone).encode_one(event)
    if (
        is_size
        or settings.is_time
        or int(rows.status[0])
        or len(rows.keys) != 1
        or rows.keys[0] == hash_texts([spec.in_keys(field).encode()])[0]
    ):
        raise ValueError(f"{field} with the value {value!r} is not a category among the features")
    return int(rows.keys[0])


def names_of_keys(keys: Iterable[int], event: bytes, spec: FeatureSpec) -> list[str]:
    """The fields and crosses that gave these keys, each once; for an unexplained key, 0x and its hex digits.

    >>> names_of_keys(hash_texts([b"site=news", b"price"]), b'{"site":"news","price":3}', FeatureSpec())
    ['site', 'price']
    """
    explained = dict(_explained(event, spec))
    return list(dict.fromkeys(explained.get(key, f"0x{key:016x}") for key in keys))


def _explained(event: bytes, spec: FeatureSpec) -> Iterator[tuple[int, str]]:
    """Keys with the field or cross that may have given them. Of several names for one key, the last is the surest."""
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
    """All texts that a field may be hashed as, whatever its kind."""
    text, settings = spec.in_keys(name), spec.of(name)
    if settings.is_time:
        return [f"{text}={i}" for i in range(PARTS[settings.kind][1])]
    if isinstance(value, bool):
        return [f"{text}={'true' if value else 'false'}"]
    if isinstance(value, str):
        return [f"{text}={value}"]
    if not isinstance(value, int | float):
        return []
    return [
        text,
        f"{text}={value}",
        f"{text}={size_text(value)}",
        f"{text}=b{int(np.searchsorted(settings.edges, value, side='right'))}",
    ]
