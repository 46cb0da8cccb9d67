"""Durations, sizes, moments and shares as a person writes them ("30m", "64MiB", "2026-11-01T00:00Z"), and as numbers.

A duration without a unit is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from stream_learner.wording import moment_of

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ABSENCE_MS = HOUR_MS
"""Retention must let a role be away for so long, at least."""
KIB = 2**10
MIB = 2**20
GIB = 2**30

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS_BY_UNIT = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_BYTES_BY_UNIT = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
}
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_DURATION = re.compile(rf"(?:{_PART})+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_duration_ms(value: Any) -> int:
    """Milliseconds of "1h30m", "1.5s", "200ms"; 0 may stand alone.

    Raises ValueError for anything else, a bare number included.

    >>> parse_duration_ms("1h30m"), parse_duration_ms("1.5s"), parse_duration_ms(0)
    (5400000, 1500, 0)
    """
    text = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if text == "0":
        return 0
    if not _DURATION.fullmatch(text):
        raise ValueError('write a duration with its unit, such as "500ms", "30s", "10m", "1h30m" or "7d"')
    total_ms = sum(Decimal(count) * _MS_BY_UNIT[unit] for count, unit in re.findall(_PART, text))
    if total_ms != int(total_ms):
        raise ValueError("a duration is a whole number of milliseconds")
    return int(total_ms)


def format_duration_ms(value_ms: int) -> str:
    """The shortest text that `parse_duration_ms` reads as `value_ms`, in the largest unit that divides it.

    >>> format_duration_ms(5_400_000), format_duration_ms(1_500), format_duration_ms(0)
    ('90m', '1500ms', '0')
    """
    if value_ms == 0:
        return "0"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if value_ms % _MS_BY_UNIT[unit] == 0)
    return f"{value_ms // _MS_BY_UNIT[unit]}{unit}"


def parse_size_bytes(value: Any) -> int:
    """Bytes of "64MiB", "1GB", "4096"; KiB, MiB and GiB are powers of 1,024, kB, MB and GB of 1,000.

    Raises ValueError for anything else.

    >>> parse_size_bytes("64MiB"), parse_size_bytes("1.5kB"), parse_size_bytes(4096)
    (67108864, 1500, 4096)
    """
    usable = isinstance(value, (str, int)) and not isinstance(value, bool)
    match = _SIZE.fullmatch(str(value).strip().lower()) if usable else None
    if match is None or match[2] not in _BYTES_BY_UNIT:
        raise ValueError('write a size such as "64MiB", "512KiB" or a number of bytes')
    total_bytes = Decimal(match[1]) * _BYTES_BY_UNIT[match[2]]
    if total_bytes != int(total_bytes):
        raise ValueError("a size is a whole number of bytes")
    return int(total_bytes)


def format_size_bytes(value_bytes: int) -> str:
    """The shortest text that `parse_size_bytes` reads as `value_bytes`.

    >>> format_size_bytes(67_108_864), format_size_bytes(1_500)
    ('64MiB', '1500')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if value_bytes and value_bytes % _BYTES_BY_UNIT[unit.lower()] == 0:
            return f"{value_bytes // _BYTES_BY_UNIT[unit.lower()]}{unit}"
    return str(value_bytes)


def parse_start(value: Any) -> str | int:
    """ "earliest", "latest", or the epoch milliseconds of an ISO 8601 moment with its zone.

    Raises ValueError for anything else, a moment without a zone included.

    >>> parse_start("latest"), parse_start("1970-01-01T00:00:01Z")
    ('latest', 1000)
    """
    if value in ("earliest", "latest"):
        return str(value)
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value if isinstance(value, str) else ""))
    except ValueError:
        moment = datetime(1, 1, 1)
    if moment.tzinfo is None:
        raise ValueError('write "earliest", "latest" or a moment with its zone, "2026-11-01T00:00:00Z"')
    moment_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if moment_ms < 0:
        raise ValueError("the moment lies before 1970")
    return moment_ms


def format_start(value: str | int) -> str:
    """The text that `parse_start` reads as `value`."""
    if isinstance(value, str):
        return value
    return moment_of(value, "milliseconds")


@dataclass(frozen=True)
class Between:
    """The check that a whole number lies in [low, high], and the words for it."""

    low: int
    high: int
    write: Callable[[int], str]

    def __call__(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise ValueError(f"must be {self.text}, not {self.write(value)}")
        return value

    @property
    def text(self) -> str:
        """The range as a person writes it, "1s to 7d"."""
        return f"{self.write(self.low)} to {self.write(self.high)}"


def lasting(low: str, high: str) -> AfterValidator:
    """Bounds of a duration, for `Annotated[DurationMs, lasting("1s", "7d")]`."""
    return AfterValidator(Between(parse_duration_ms(low), parse_duration_ms(high), format_duration_ms))


def sized(low: str, high: str) -> AfterValidator:
    """Bounds of a size, for `Annotated[SizeBytes, sized("4KiB", "1MiB")]`."""
    return AfterValidator(Between(parse_size_bytes(low), parse_size_bytes(high), format_size_bytes))


def counting(low: int, high: int) -> AfterValidator:
    """Bounds of a whole number, for `Annotated[int, counting(1, 256)]`."""
    return AfterValidator(Between(low, high, str))


DURATION_PATTERN = r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$"
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? *([kKmMgG][iI]?[bB]|[bB])?$"

DurationMs = Annotated[
    int,
    BeforeValidator(parse_duration_ms),
    PlainSerializer(format_duration_ms, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": 0}]}),
]
SizeBytes = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    PlainSerializer(format_size_bytes, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 0}]}),
]
Start = Annotated[
    str | int,
    BeforeValidator(parse_start),
    PlainSerializer(format_start, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"enum": ["earliest", "latest"]}, {"type": "string", "format": "date-time"}]}),
]
Share = Annotated[float, Field(ge=0, le=1)]
TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
