"""Events: ids, times, weights and values, and the reason for every event that is refused."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.decoders import ClickDecoder, Clicks, EventSpec, ImpressionDecoder, Impressions, Reason
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec
from tests.core.events import decode_help

NOW = 1_700_000_000_000
YEAR_9999 = 253_402_300_799_999


def impressions(spec: EventSpec, *raws: bytes, record_time_ms: int = NOW) -> Impressions:
    """Each event twice: first as one with unknown fields, then as one the kernel knows."""
    data, bounds = decode_help.batch([raw for raw in raws for _ in range(2)])
    got = ImpressionDecoder(spec, FeatureSpec()).decode(data, bounds, np.full(2 * len(raws), record_time_ms))
    assert got.status[::2].tolist() == got.status[1::2].tolist()
    assert got.time_ms[::2].tolist() == got.time_ms[1::2].tolist()
    assert got.id_hash[::2].tolist() == got.id_hash[1::2].tolist()
    return got


def clicks(spec: EventSpec, *raws: bytes) -> Clicks:
    """Clicks, all with the same record time."""
    data, bounds = decode_help.batch(list(raws))
    return ClickDecoder(spec).decode(data, bounds, np.full(len(raws), NOW))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"id":"x"}', Reason.OK),
        (b"", Reason.NOT_JSON),
        (b'{"id":"x"', Reason.NOT_JSON),
        (b'{"id":"x"}}', Reason.NOT_JSON),
        (b'{"id":"x","a":NaN}', Reason.NOT_JSON),
        (b'{"id":"x","a":"\xff"}', Reason.NOT_JSON),
        (b'{"id":"x","a":1e999}', Reason.NOT_JSON),
        (b'[{"id":"x"}]', Reason.NOT_OBJECT),
        (b"null", Reason.NOT_OBJECT),
        (b"{}", Reason.NO_ID),
        (b'{"id":null}', Reason.NO_ID),
        (b'{"id":true}', Reason.BAD_ID),
        (b'{"id":1.0}', Reason.BAD_ID),
        (b'{"id":18446744073709551616}', Reason.BAD_ID),
        (b'{"id":["x"]}', Reason.BAD_ID),
        (b'{"id":{"x":1}}', Reason.BAD_ID),
        (b'{"id":"x","a":"' + b"x" * 300 + b'"}', Reason.TOO_LARGE),
        (b'{"id":"x","a":[' + b"1," * 100 + b"1]}", Reason.OK),
    ],
)
def test_reasons(raw: bytes, reason: Reason) -> None:
    """One example of each."""
    got = impressions(EventSpec(max_event_bytes=300), raw)
    assert got.status.tolist() == [reason, reason]
    if reason:
        assert got.row_start.tolist() == [0, 0, 0]
        assert (got.id_hash.tolist(), got.time_ms.tolist(), got.weight.tolist()) == ([0, 0], [0, 0], [0.0, 0.0])


def test_every_reason_has_words() -> None:
    """Dead letters and metrics show them."""
    assert len({reason.text for reason in Reason}) == len(Reason)


@pytest.mark.parametrize(
    "number", [0, 1, -1, 123456789012345678, 2**53 + 1, 2**63, 2**64 - 1, -(2**63), 10**18, 10**19]
)
def test_an_integer_id_is_its_decimal_text(number: int) -> None:
    """123 and "123" are one id, up to the limits of 64 bits."""
    got = impressions(EventSpec(), b'{"id":%d}' % number, b'{"id":"%d"}' % number)
    assert set(got.id_hash.tolist()) == {xxhash.xxh64_intdigest(str(number).encode())}


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.booleans())
def test_a_string_id_is_hashed_as_utf8(text: str, ascii_only: bool) -> None:
    """However the string is written."""
    raw = json.dumps({"id": text}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    got = impressions(EventSpec(), raw)
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert got.status.tolist() == [Reason.NOT_JSON] * 2
    else:
        assert got.id_hash.tolist() == [xxhash.xxh64_intdigest(text.encode())] * 2


def test_paths_lead_into_objects() -> None:
    """A dotted path is a field of an object, or a key with a dot; the first in the event counts."""
    spec = EventSpec(id="ad.id", time="at.ms")
    got = impressions(spec, b'{"ad":{"id":"x"},"at":{"ms":5}}', b'{"at.ms":5,"ad.id":"x","ad":{"id":"y"}}')
    assert set(got.id_hash.tolist()) == {xxhash.xxh64_intdigest(b"x")}
    assert set(got.time_ms.tolist()) == {5}


def time_of(unit: Any, value: str, record_time_ms: int = NOW) -> int | Reason:
    """The time read from a field written so, or the reason."""
    spec = EventSpec(time="t", time_unit=unit, max_skew_ms=10**15)
    raw = b'{"id":"x","t":%s}' % value.encode()
    got = impressions(spec, b'{"id":"x","t":0}', raw, record_time_ms=record_time_ms)
    return int(got.time_ms[3]) if got.status[3] == 0 else Reason(int(got.status[3]))


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("ms", "0", 0),
        ("ms", "1700000000123", NOW + 123),
        ("ms", "1700000000123.999", NOW + 123),
        ("ms", "1.7e12", NOW),
        ("ms", str(YEAR_9999), YEAR_9999),
        ("ms", str(YEAR_9999 + 1), Reason.BAD_TIME),
        ("ms", "-1", Reason.BAD_TIME),
        ("ms", "-0.25", Reason.BAD_TIME),
        ("ms", "null", Reason.BAD_TIME),
        ("ms", "true", Reason.BAD_TIME),
        ("ms", '"1700000000123"', Reason.BAD_TIME),
        ("ms", "[1]", Reason.BAD_TIME),
        ("ms", "1e300", Reason.BAD_TIME),
        ("ms", "99999999999999999999", Reason.BAD_TIME),
        ("s", "1700000000", NOW),
        ("s", "1700000000.123", NOW + 123),
        ("s", "1700000000.123999", NOW + 123),
        ("s", "253402300800", Reason.BAD_TIME),
        ("s", "9223372036854775807", Reason.BAD_TIME),
        ("us", "1700000000123999", NOW + 123),
        ("us", "1700000000123999.75", NOW + 124),
        ("iso", "1700000000", Reason.BAD_TIME),
        ("iso", '"2023-11-14T22:13:20Z"', NOW),
        ("iso", '"2023-11-14T22:13:20"', NOW),
        ("iso", '"2023-11-14t22:13:20z"', NOW),
        ("iso", '"2023-11-14 22:13:20.123999999+00:00"', NOW + 123),
        ("iso", '"2023-11-15T03:43:20.1+05:30"', NOW + 100),
        ("iso", '"2023-11-14T14:13:20,12-0800"', NOW + 120),
        ("iso", '"2023-11-14T14:13-08"', NOW - 20_000),
        ("iso", '"2024-02-29T00:00:00Z"', 1_709_164_800_000),
        ("iso", '"2023-02-29T00:00:00Z"', Reason.BAD_TIME),
        ("iso", '"1969-12-31T23:59:59Z"', Reason.BAD_TIME),
        ("iso", '"1969-12-31T23:00:00-01:00"', 0),
        ("iso", '"9999-12-31T23:59:59.999Z"', YEAR_9999),
        ("iso", '"9999-12-31T23:59:59-01:00"', Reason.BAD_TIME),
        ("iso", '"2023-11-14T24:00:00Z"', Reason.BAD_TIME),
        ("iso", '"2023-11-14T22:13:60Z"', Reason.BAD_TIME),
        ("iso", '"2023-11-14T22:13:20+24:00"', Reason.BAD_TIME),
        ("iso", '"2023-11-14T22:13:20+01:60"', Reason.BAD_TIME),
        ("iso", '"2023-11-14"', Reason.BAD_TIME),
        ("iso", '"2023-11-14T22:13:20.Z"', Reason.BAD_TIME),
        ("auto", "1700000000", NOW),
        ("auto", "1700000000.5", NOW + 500),
        ("auto", "1700000000123", NOW + 123),
        ("auto", "1700000000123456", NOW + 123),
        ("auto", "99999999999", 99_999_999_999_000),
        ("auto", "100000000000", 100_000_000_000),
        ("auto", "100000000000000", 100_000_000_000),
        ("auto", "100000000000000000", Reason.BAD_TIME),
        ("auto", '"2023-11-14T22:13:20Z"', NOW),
    ],
)
def test_times(unit: str, value: str, expected: int | Reason) -> None:
    """The rules of decode_times, by example, on both paths."""
    assert time_of(unit, value) == expected


@settings(max_examples=150, deadline=None)
@given(
    st.datetimes(datetime(1960, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
)
def test_iso_times_are_those_of_the_standard_library(moment: datetime, zone_minutes: int, digits: str) -> None:
    """Any moment in any zone, against datetime."""
    local = moment.replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
    text = local.isoformat(timespec=digits)
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    expected = (datetime.fromisoformat(text) - epoch) // timedelta(milliseconds=1)
    assert time_of("iso", f'"{text}"') == (expected if 0 <= expected <= YEAR_9999 else Reason.BAD_TIME)


def test_without_a_time_field_the_record_tells_the_time() -> None:
    """Its Kafka timestamp, if that is a time."""
    for record_time_ms, status in (
        (NOW, 0),
        (0, 0),
        (YEAR_9999, 0),
        (-1, Reason.BAD_TIME),
        (YEAR_9999 + 1, Reason.BAD_TIME),
    ):
        got = impressions(EventSpec(), b'{"id":"x"}', record_time_ms=record_time_ms)
        assert got.status.tolist() == [status] * 2
        assert got.time_ms.tolist() == [record_time_ms if status == 0 else 0] * 2


def test_a_time_too_far_ahead_of_the_record_is_refused() -> None:
    """One millisecond decides; a record without a timestamp is not checked."""
    spec = EventSpec(time="t", max_skew_ms=1000)
    for ahead, record_time_ms, status in (
        (1000, NOW, Reason.OK),
        (1001, NOW, Reason.TIME_AHEAD),
        (-NOW, NOW, Reason.OK),
        (1001, -1, Reason.OK),
    ):
        raw = b'{"id":"x","t":%d}' % (NOW + ahead)
        assert impressions(spec, raw, record_time_ms=record_time_ms).status.tolist() == [status] * 2


@pytest.mark.parametrize(
    ("written", "weight"),
    [
        ("2.5", 2.5),
        ("0", 0.0),
        ("-0.0", 0.0),
        ("null", 1.0),
        ("1e308", 1e308),
        ("-1", None),
        ('"2"', None),
        ("true", None),
    ],
)
def test_table(written: str, weight: float | None) -> None:
    """Finite numbers of 0 and more; null and absent are 1."""
    raw = b'{"id":"x","w":%s}' % written.encode()
    got = impressions(EventSpec(weight="w"), b'{"id":"x"}', raw)
    assert got.weight[:2].tolist() == [1.0, 1.0]
    assert got.status[2:].tolist() == [Reason.OK if weight is not None else Reason.BAD_WEIGHT] * 2
    assert got.weight[2:].tolist() == [weight or 0.0] * 2


@pytest.mark.parametrize(
    ("written", "good"),
    [("10", True), ("1e1", True), ("0", True), ("10.000000000000002", False), ("1e15", False), ("11", False)],
)
def test_a_weight_above_the_largest_is_refused(written: str, good: bool) -> None:
    """By both decoders."""
    got = impressions(EventSpec(weight="w", max_weight=10), b'{"id":"x","w":%s}' % written.encode())
    assert got.status.tolist() == [Reason.OK if good else Reason.BAD_WEIGHT] * 2


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_a_largest_weight_that_allows_nothing_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="max_weight must be more than 0"):
        EventSpec(weight="w", max_weight=wrong)


@pytest.mark.parametrize(
    ("written", "value"),
    [("0.25", 0.25), ("0", 0.0), ("1", 1.0), ("null", 1.0), ("1.0000001", None), ("-0.1", None), ("[]", None)],
)
def test_values(written: str, value: float | None) -> None:
    """Soft labels from 0 to 1; null and absent are 1."""
    got = clicks(EventSpec(value="v"), b'{"id":"x","v":%s}' % written.encode(), b'{"id":"x"}')
    assert got.status.tolist() == [Reason.OK if value is not None else Reason.BAD_VALUE, Reason.OK]
    assert got.value.tolist() == [value or 0.0, 1.0]
    assert len(got) == 2


def test_id_time_weight_and_value_are_never_features() -> None:
    """An impression's features are those of the scorer's encoder, which needs no id and no time."""
    spec = EventSpec(time="t", weight="w", value="v")
    raw = b'{"id":"x","t":5,"w":2,"v":1,"site":"a","n":[1.5,{"id":"inner"}]}'
    got = impressions(spec, raw)
    rows = FeatureEncoder(FeatureSpec(), spec.paths()).encode_json(raw, np.array([0, len(raw)]))
    assert got.keys[: got.row_start[1]].tolist() == rows.keys.tolist()
    assert len(rows.keys) == 4


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"time_unit": "ns"}, "time_unit must be one of"),
        ({"max_event_bytes": 0}, "max_event_bytes"),
        ({"max_skew_ms": -1}, "max_skew_ms"),
        ({"time": "id"}, "fields of their own"),
        ({"time": "id.time"}, "fields of their own"),
    ],
)
def test_a_specification_that_cannot_work_is_refused(settings_: dict[str, Any], message: str) -> None:
    """Before any event is read."""
    with pytest.raises(ValueError, match=message):
        EventSpec(**settings_)
