"""Schemas of records, and the values that a record read by its schema may hold besides those of JSON.

An event is the same event in every form. So a record of Avro or Protobuf stands for an event in JSON, its *reference
form*, and the decoder of JSON defines everything from there on. The reference form of a value is what nearly every
program writes when it makes JSON of it:

| value | in JSON |
|---|---|
| text, boolean, whole number, float64, list, map, record | itself; numbers and booleans as keys of maps are text |
| float32 | the shortest decimal number that stands for it: 0.7, not 0.699999988079071 |
| NaN, infinities | null, as `Scorer` takes them; as weight or value of an event they are refused |
| enum | its symbol |
| bytes, fixed | base64 |
| decimal | the number |
| moment: timestamp, local timestamp | milliseconds since 1970 as a number, with a fraction where there is one |
| date | `YYYY-MM-DD` |
| time of day, duration | a number: Avro's own, the seconds of Protobuf's |
| uuid | text |

The field of an event's time, and one of a kind for times, is read as what it is, whatever `time_unit` says, if it holds
a moment.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import orjson

from stream_learner.core.events.reference import MAX_TIME_MS

MOST_SCHEMA_BYTES = 1 << 20
"""The longest text of a schema."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DUMPS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS
Read = Callable[[bytes], Any]
"""Reads a record by a schema, to Python values. Raises Refused."""


class BadSchema(ValueError):
    """A schema cannot be used; the message says why."""


@dataclass(frozen=True)
class Schema:
    """A schema as a registry has it, or a file.

    kind: AVRO, PROTOBUF or JSON; "" for an id that the registry does not have. text: Avro's JSON, a file of Protobuf,
    or its descriptor in base64. references: names and schemas that it builds on, each after those that it needs itself.
    """

    kind: str
    text: str = ""
    references: tuple[tuple[str, Schema], ...] = ()


class Schemas(Protocol):
    """Where schemas come from. trouble: why one is not known, "" while nothing is amiss."""

    @property
    def trouble(self) -> str: ...

    def known(self, ids: Sequence[int]) -> dict[int, Schema]:
        """The schemas of these ids, without those that are not known yet; they are being asked for."""


@dataclass(frozen=True)
class OneSchema:
    """The same schema for every id: that of a file."""

    schema: Schema
    trouble = ""

    def known(self, ids: Sequence[int]) -> dict[int, Schema]:
        """The schema, for every id."""
        return dict.fromkeys(ids, self.schema)


@dataclass(frozen=True)
class Moment:
    """A point in time, microseconds since 1970, UTC."""

    micros: int

    def number(self) -> int | float:
        """Milliseconds since 1970."""
        ms, rest = divmod(self.micros, 1000)
        return self.micros / 1000 if rest else ms

    def written(self, time_unit: str) -> int | float | str | None:
        """What `reference.read_time` reads as this moment, to the millisecond; None for one that it refuses.

        >>> [Moment(1_000_001_500).written(unit) for unit in ("ms", "us", "s", "auto")]
        [1000001, 1000001500, 1000.0015, '1970-01-01T00:16:40.001500+00:00']
        """
        ms = self.micros // 1000
        if not 0 <= ms <= MAX_TIME_MS:
            return None
        if time_unit == "ms":
            return ms
        if time_unit == "us":
            return self.micros
        if time_unit == "s":
            return (ms + 0.5) / 1000  # from the middle of the millisecond no rounding leads out of it
        return (_EPOCH + timedelta(microseconds=self.micros)).isoformat()


def to_json(event: Any) -> bytes:
    """The reference form of Python values. Raises TypeError for values nested too deeply."""
    return orjson.dumps(event, default=_in_json, option=_DUMPS)


def _in_json(value: Any) -> Any:
    if isinstance(value, Moment):
        return value.number()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        is_whole = value.as_tuple().exponent == 0 and -(1 << 63) <= value < 1 << 64
        return int(value) if is_whole else float(value)
    raise TypeError(f"a value of {type(value).__name__} has no JSON")


def decimal_of(digits: bytes, scale: int) -> Decimal:
    """The decimal number of two's-complement digits, big-endian, and its digits behind the point. Raises ValueError,
    ArithmeticError for one that is too large.
    """
    return Decimal(f"{int.from_bytes(digits, 'big', signed=True)}E{-scale}")


def change_at(inside: Any, path: str, change: Callable[[Any], Any]) -> None:
    """Change what stands at a path of an event, in place; in lists, every element of it."""
    if isinstance(inside, list):
        for element in inside:
            change_at(element, path, change)
    elif isinstance(inside, dict):
        for name, value in inside.items():
            if name == path:
                inside[name] = [change(element) for element in value] if isinstance(value, list) else change(value)
            elif path.startswith(name + "."):
                change_at(value, path[len(name) + 1 :], change)


def moment_as(time_unit: str) -> Callable[[Any], Any]:
    """The change of a time field: a moment is written so that `time_unit` reads it."""
    return lambda value: value.written(time_unit) if isinstance(value, Moment) else value


def unread_if_not_finite(value: Any) -> Any:
    """The change of a weight or value: one that is not finite is refused; as null it would be 1."""
    return "NaN" if isinstance(value, (float, np.float32)) and not math.isfinite(value) else value
