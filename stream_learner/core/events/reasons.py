"""The reasons why an event cannot be used, each with its code and its words.

The number of a code must never change: dead letters have it in a header, metrics in a label.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

LONGEST_SHAPE = 40


class Reason(IntEnum):
    """Outcome of reading one event: OK, or the reason of the first check that failed, in the order of `reference`.

    13 to 15 are of records in another form than plain JSON; they come before what `reference` checks.
    """

    OK = 0
    NOT_JSON = 1
    NOT_OBJECT = 2
    NO_ID = 3
    BAD_ID = 4
    BAD_TIME = 5
    TIME_AHEAD = 6
    TOO_LARGE = 7
    TOO_MANY_FEATURES = 8
    VALUE_TOO_LONG = 9
    BAD_WEIGHT = 10
    BAD_VALUE = 11
    NOT_FINITE = 12
    NOT_FRAMED = 13
    NOT_OF_SCHEMA = 14
    UNUSABLE_SCHEMA = 15
    NOT_A_TIME = 16

    @property
    def text(self) -> str:
        """The reason in words for a person."""
        return _TEXTS[self]


_TEXTS = {
    Reason.OK: "accepted",
    Reason.NOT_JSON: "not JSON",
    Reason.NOT_OBJECT: "JSON, but not an object",
    Reason.NO_ID: "the id field is missing or null",
    Reason.BAD_ID: "the id is neither a string nor an integer of at most 64 bits",
    Reason.BAD_TIME: "the time is missing, unreadable, negative or beyond the year 9999",
    Reason.TIME_AHEAD: "the time is too far ahead of the record's timestamp",
    Reason.TOO_LARGE: "more bytes than max_event_bytes",
    Reason.TOO_MANY_FEATURES: "more features than max_features",
    Reason.VALUE_TOO_LONG: "a feature's name or string value has more bytes than max_value_bytes",
    Reason.BAD_WEIGHT: "the weight is not a number from 0 to max_weight",
    Reason.BAD_VALUE: "the value is not a number between 0 and 1",
    Reason.NOT_FINITE: "a feature's value is not finite",
    Reason.NOT_FRAMED: "the bytes do not begin with 0 and a schema id",
    Reason.NOT_OF_SCHEMA: "the bytes are not what the schema says",
    Reason.UNUSABLE_SCHEMA: "the schema cannot be used",
    Reason.NOT_A_TIME: "a field of kind hour, weekday or hour_of_week holds no time in its time_unit",
}
BEYOND_FLOAT64 = "a number is beyond float64"
"""The words for NOT_JSON where `reference.beyond_float64` says so."""


def of_field(reason: Reason, path: str, value: Any) -> str:
    """The words for a reason, with the field and the shape of its value: a letter must not show what an event holds.

    >>> of_field(Reason.NOT_A_TIME, "ts", "24/Nov/2026")
    'a field of kind hour, weekday or hour_of_week holds no time in its time_unit: `ts` is text like 99/Aaa/9999'
    """
    return f"{reason.text}: `{path}` is {_shape(value)}"


def _shape(value: Any) -> str:
    """What a value is, without its digits and letters.

    >>> _shape(1795547716000000000), _shape(-1.5), _shape(None), _shape(True), _shape(["a"])
    ('a whole number of 19 digits', 'a number like -9.9', 'missing or null', 'a boolean', 'a list')
    """
    if value is None:
        return "missing or null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return f"a {'negative ' * (value < 0)}whole number of {len(str(abs(value)))} digits"
    if isinstance(value, (float, str)):
        known = str(value)[: LONGEST_SHAPE + 1]
        text = "".join("9" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else c for c in known)
        cut = f"{text[:LONGEST_SHAPE]}…" if len(text) > LONGEST_SHAPE else text
        return f"{'text' if isinstance(value, str) else 'a number'} like {cut}" if text else "an empty text"
    return "a list" if isinstance(value, list) else "an object"


class Refused(Exception):
    """Raised to end the reading of one event; `reason` is never OK. The text is that of the reason, or says more."""

    def __init__(self, reason: Reason, text: str = "") -> None:
        super().__init__(text or reason.text)
        self.reason = reason
