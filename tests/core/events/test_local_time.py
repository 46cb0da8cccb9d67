"""Kinds for times: kernel, plain path and the standard library agree on every hour; what is no time is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from random import Random
from zoneinfo import ZoneInfo

import numpy as np
import orjson
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.decoders import BatchDecoder, EventSpec
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec, FieldSpec, category_key, names_of_keys
from stream_learner.core.events.field_numbers import FieldNumbers
from stream_learner.core.events.local_time import PARTS, zone_changes
from stream_learner.core.events.plan import Plan, Role
from stream_learner.core.events.reasons import Reason
from tests.core.events import decode_help, json_texts

KINDS = ("hour", "weekday", "hour_of_week")
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca")
"""Lord Howe's summer time is half an hour; Casablanca's goes by the moon, listed until 2087."""
YEAR_2101_MS, LAST_DAY_MS = 4_133_980_800_000, 253_402_214_400_000
CHANGES_MS = (
    1_774_746_000_000,  # Berlin, 2026-03-29 01:00 UTC, and back on 2026-10-25
    1_792_890_000_000,
    1_775_314_800_000,  # Lord Howe, 2026-04-04 15:00 UTC
    1_772_955_000_000,  # St John's, 2026-03-08 05:30 UTC
    1_771_124_400_000,  # Casablanca, 2026-02-15 03:00 UTC, before Ramadan
)
TIMES_MS = st.one_of(
    st.integers(0, YEAR_2101_MS),
    st.integers(YEAR_2101_MS, LAST_DAY_MS),
    st.builds(int.__add__, st.sampled_from(CHANGES_MS), st.integers(-2_000, 2_000)),
)


def oracle(kind: str, zone: str, time_ms: int) -> int:
    """The standard library's hour and weekday."""
    local = (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms)).astimezone(ZoneInfo(zone))
    return {"hour": local.hour, "weekday": local.weekday(), "hour_of_week": 24 * local.weekday() + local.hour}[kind]


def key(text: str) -> int:
    return xxhash.xxh64_intdigest(text.encode())


EVERYWHERE = FeatureSpec(
    fields={f"{zone} {kind}": FieldSpec(kind, zone=zone, time_unit="ms") for zone in ZONES for kind in KINDS},
    bias=False,
)
EVERYWHERE_PLAN = Plan({}, EVERYWHERE)
EVERYWHERE_DECODER = BatchDecoder(EVERYWHERE_PLAN)


@settings(max_examples=60, deadline=None)
@given(st.lists(TIMES_MS, min_size=1, max_size=20))
def test_hours_and_weekdays_are_those_of_the_zone(times_ms: list[int]) -> None:
    """Any zone, 1970 to 9999, to the second of a change of the clocks."""
    raws = [orjson.dumps(dict.fromkeys(EVERYWHERE.fields, time_ms)) for time_ms in times_ms]
    assert decode_help.check(EVERYWHERE_DECODER, EVERYWHERE_PLAN, raws, [0] * len(raws)) == len(raws)
    found = EVERYWHERE_DECODER.decode(*decode_help.batch(raws)).keys.reshape(len(raws), -1).tolist()
    places = [tuple(name.split()) for name in EVERYWHERE.fields]
    for time_ms, keys in zip(times_ms, found, strict=True):
        assert keys == [key(f"{zone} {kind}={oracle(kind, zone, time_ms)}") for zone, kind in places], time_ms
    assert EVERYWHERE_DECODER.handed_over <= 1


def test_every_change_of_a_zone_is_found() -> None:
    """Week by week and at both sides of each change, the table has the standard library's offset."""
    for zone in ZONES[1:]:
        begins, ahead = zone_changes(zone)
        known = ZoneInfo(zone)
        times = [*range(0, 4_150_000_000, 7 * 86_400), *(at - 1 for at in begins[1:]), *begins]
        rows = np.searchsorted(begins, times, side="right") - 1
        offsets = [datetime.fromtimestamp(at, known).utcoffset() for at in times]
        assert [timedelta(seconds=ahead[row]) for row in rows] == offsets


FORMS = {unit: FieldSpec("hour_of_week", (), "indicator", "Europe/Berlin", unit) for unit in ("ms", "s", "us", "iso")}
OF_FORMS = FeatureSpec(fields={**FORMS, "auto": FieldSpec("hour_of_week", zone="Europe/Berlin")}, bias=False)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4_133_980_800), st.sampled_from(["Z", "", "+05:30", "-03:00"]))
def test_every_form_of_a_time_gives_the_same_hour(time_s: int, zone: str) -> None:
    """Seconds, milliseconds, microseconds, ISO 8601 with zones and fractions, and a list of them."""
    ahead = {"+05:30": timedelta(hours=5.5), "-03:00": timedelta(hours=-3)}.get(zone, timedelta())
    text = (datetime(1970, 1, 1) + timedelta(seconds=time_s) + ahead).isoformat() + ".999" + zone
    forms = {"ms": time_s * 1000 + 1, "s": time_s + 0.25, "us": time_s * 10**6 + 7, "iso": text, "auto": [time_s, text]}
    plan, hour = Plan({}, OF_FORMS), oracle("hour_of_week", "Europe/Berlin", 1000 * time_s)
    decoder, raws = BatchDecoder(plan), [orjson.dumps(forms)] * 2
    assert decode_help.check(decoder, plan, raws, [0, 0]) == 2
    row = decoder.decode(*decode_help.batch(raws[:1]))
    assert dict(zip(row.keys.tolist(), row.values.tolist(), strict=True)) == {
        key(f"{name}={hour}"): 2.0 if name == "auto" else 1.0 for name in OF_FORMS.fields
    }


NO_TIMES = ["true", '"no"', '""', "-1", "-0.5", "1e30", '"2026-01-01"', '"1969-12-31T23:59:59Z"', "[1, false]", "1e17"]


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize("known", [False, True])
def test_what_is_no_time_is_refused(value: str, known: bool) -> None:
    """With a reason of its own, whether or not the kernel knows the field."""
    plan = Plan({}, FeatureSpec(fields={"at": FieldSpec("hour")}))
    raws = [b'{"at":1700000000}'] * known + [b'{"at":%s}' % value.encode()]
    decoder = BatchDecoder(plan)
    assert decode_help.check(decoder, plan, raws, [0] * len(raws)) == known
    assert decoder.decode(*decode_help.batch(raws)).status[-1] == Reason.NOT_A_TIME
    assert decoder.words(raws[-1], Reason.NOT_A_TIME).startswith(f"{Reason.NOT_A_TIME.text}: `at` is ")


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ('"24/Nov/2026:19:08:47"', "text like 99/Aaa/9999:99:99:99"),
        ("1795547716000000000", "a whole number of 19 digits"),
        ("-5", "a negative whole number of 1 digits"),
        ('"München 2026-11-24T19:08:47+01:00 and more"', "text like Aaaaaaa 9999-99-99A99:99:99+99:99 aaa aa…"),
        ('""', "an empty text"),
        ("true", "a boolean"),
        ("null", "missing or null"),
        ("{}", "an object"),
    ],
)
def test_the_words_for_a_time_that_cannot_be_read_name_its_field_and_show_no_value(value: str, shape: str) -> None:
    """Of the event's own time, in an object; a dead letter has these words."""
    plan = Plan({"id": Role.ID, "at.ms": Role.TIME}, None, time_unit="ms" if value.startswith("1") else "auto")
    decoder, raw = BatchDecoder(plan), b'{"id": 1, "at": {"ms": %s}}' % value.encode()
    assert decoder.decode(raw, np.array([0, len(raw)])).status.tolist() == [Reason.BAD_TIME]
    assert decoder.words(raw, Reason.BAD_TIME) == f"{Reason.BAD_TIME.text}: `at.ms` is {shape}"


def test_a_record_without_a_timestamp_is_told_without_a_field() -> None:
    """The time is that of the record, and no field is to blame."""
    assert BatchDecoder(Plan({}, None)).words(b"{}", Reason.BAD_TIME) == Reason.BAD_TIME.text


@pytest.mark.parametrize("text", ["{}", '{"at":null}', '{"at":[]}', '{"at":{}}'])
def test_without_a_time_there_is_the_missing_indicator(text: str) -> None:
    """As of any other field: so a request need not have it."""
    spec = FeatureSpec(fields={"at": FieldSpec("hour", missing="indicator")}, bias=False)
    encoder = FeatureEncoder(spec)
    for _ in range(2):
        assert encoder.encode_one(text).keys.tolist() == [key("at:missing")]


OWN = EventSpec(time="t", time_unit="auto", weight="w", value="v", max_skew_ms=10**15)
TIMED = FeatureSpec(
    fields={
        "t": FieldSpec("hour_of_week", (), "indicator", "Asia/Kolkata"),
        "n": FieldSpec("weekday", time_unit="s"),
        "a": FieldSpec("hour", (), "indicator"),
    },
    crosses=(("t", "b"), ("a", "t")),
    max_value_bytes=48,
)


@pytest.mark.parametrize("oddness", [0.02, 0.5])
@pytest.mark.parametrize("counted", [False, True])
def test_paths_agree_where_the_events_own_time_is_a_feature(oddness: float, counted: bool) -> None:
    """Generated and damaged events, with the event's time as role and as feature, and other fields as times."""
    rng, plan = Random(f"times {oddness}"), OWN.impression_plan(TIMED, FieldNumbers(TIMED) if counted else None)
    decoder, accepted = BatchDecoder(plan), 0
    for _ in range(150):
        raw = json_texts.event(rng, oddness).replace(b'"a":"', b'"a":"2026-11-27T12:00:00Z","_":"')
        raws = [raw, raw, json_texts.damage(rng, raw)]
        accepted += decode_help.check(decoder, plan, raws, [1_700_000_000_000] * 3)
    assert accepted > 0


def test_a_request_has_the_features_of_its_impression() -> None:
    """The joiner reads the time as time and feature; a scorer, which ignores the id, makes the same keys."""
    plan, scorer = OWN.impression_plan(TIMED), FeatureEncoder(TIMED, OWN.paths(TIMED))
    raw = b'{"id":"1","t":"2026-11-27T18:30:00Z","b":"x","a":1700000000}'
    assert OWN.paths() == ("id", "t", "w", "v")
    assert OWN.paths(TIMED) == ("id", "w", "v")
    joiner = BatchDecoder(plan)
    for _ in range(2):
        row = joiner.decode(*decode_help.batch([raw]), np.zeros(1, np.int64))
        assert row.keys.tolist() == scorer.encode_one(raw).keys.tolist()
        assert row.keys[0] == key("t=120")  # midnight of Saturday in India is the hour 5 * 24
        assert row.time_ms[0] == 1_795_804_200_000


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (FieldSpec("log"), "never a feature; the time is one by the kinds hour, weekday and hour_of_week"),
        (FieldSpec("hour", time_unit="s"), "is the event's time, in auto, and cannot have time_unit s"),
    ],
)
def test_the_events_time_is_a_feature_as_a_time_only(field: FieldSpec, message: str) -> None:
    """And in the unit that it has as the event's time."""
    with pytest.raises(ValueError, match=message):
        OWN.impression_plan(FeatureSpec(fields={"t": field}))
    with pytest.raises(ValueError, match=r"never a feature$"):
        OWN.impression_plan(FeatureSpec(fields={"w": FieldSpec("hour")}))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"kind": "hour", "zone": "Europe/Berln"}, "zone 'Europe/Berln' is not in .*; did you mean Europe/Berlin?"),
        ({"kind": "hour", "zone": "kolkata"}, "did you mean Asia/Kolkata?"),
        ({"kind": "hour", "zone": "../../etc/passwd"}, "zone '../../etc/passwd' is not"),
        ({"kind": "hour", "zone": ""}, "a zone is called as Europe/Berlin is"),
        ({"kind": "hour", "time_unit": "ns"}, "time_unit must be one of ms, s, us, iso, auto, not 'ns'"),
        ({"kind": "log", "zone": "Asia/Kolkata"}, "belong to the kinds hour, weekday, hour_of_week, not to log"),
        ({"time_unit": "ms"}, "zone and time_unit belong to the kinds hour, weekday, hour_of_week, not to auto"),
        ({"kind": "weekday", "edges": [1]}, "edges belong to kind bucket, not to weekday"),
    ],
)
def test_settings_of_times_that_cannot_work_are_refused(settings_: dict[str, object], message: str) -> None:
    """The message names the field, and the nearest zone."""
    with pytest.raises(ValueError, match=rf"field 'at': .*{message}"):
        FeatureSpec.from_dict({"fields": {"at": settings_}})


def test_a_specification_with_times_is_read_as_it_was_written() -> None:
    """And one without them has the form that it had before there were any."""
    spec = FeatureSpec(fields={"at": FieldSpec("hour", zone="Asia/Kolkata", time_unit="s"), "x": FieldSpec("log")})
    form = spec.to_dict()["fields"]
    assert FeatureSpec.from_dict(spec.to_dict()) == spec
    assert form["at"] == {"kind": "hour", "edges": [], "missing": "skip", "zone": "Asia/Kolkata", "time_unit": "s"}
    assert form["x"] == {"kind": "log", "edges": [], "missing": "skip"}


def test_keys_of_times_have_their_names_and_values() -> None:
    """For messages, and for slices of the gate, whose value is the hour or weekday."""
    for kind, (_, count) in PARTS.items():
        spec = FeatureSpec(fields={"at": FieldSpec(kind)})  # type: ignore[arg-type]
        raw = b'{"at":1700000000}'
        found = FeatureEncoder(spec).encode_one(raw).keys[0]
        assert names_of_keys([found], raw, spec) == ["at"]
        assert found == category_key("at", oracle(kind, "UTC", 1_700_000_000_000), spec)
        for value in (count, -1, "2026-11-27T18:30:00Z", True):
            with pytest.raises(ValueError, match="is not a category"):
                category_key("at", value, spec)
