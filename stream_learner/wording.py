"""Words for messages. It imports nothing of ours, so that all layers may use it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def count_of(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun: "1 partition", "2 partitions", "1,200 partitions". plural: where it is not noun + "s"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def moment_of(time_ms: int, timespec: str = "seconds") -> str:
    """A time in ISO 8601, UTC; the number of ms where it is beyond the range of dates. timespec: as of `isoformat`.

    >>> moment_of(1_700_000_000_123), moment_of(1_700_000_000_123, "milliseconds"), moment_of(1 << 62)
    ('2023-11-14T22:13:20Z', '2023-11-14T22:13:20.123Z', '4611686018427387904 ms')
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")
