"""Features of each field: the field that the decoder made a key of, and counts near the true ones in bounded memory."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events import field_counts
from stream_learner.core.events.decoders import EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.field_counts import FieldCounts, named_keys
from stream_learner.core.machine.hashing import BIAS_KEY
from tests.core.events.test_features import SPECS

EVENTS = EventSpec(id="id", time="t")


class Joiner:
    """Decodes batches of impressions and counts, as a joiner does."""

    def __init__(self, spec: FeatureSpec) -> None:
        self.plan = EVENTS.impression_plan(spec)
        self.counts = FieldCounts(self.plan)
        self.decoder = ImpressionDecoder(EVENTS, spec)

    def keys_of(self, raws: list[bytes]) -> np.ndarray:
        """Decode and count a batch; returns the keys of all its events."""
        bounds = np.zeros(len(raws) + 1, np.int64)
        np.cumsum([len(raw) for raw in raws], out=bounds[1:])
        data = b"".join(raws)
        found = self.decoder.decode(data, bounds, np.full(len(raws), 2_000_000_000_000))
        self.counts.note(data, bounds, found.row_start, found.keys)
        return found.keys


def impression(number: int, **fields: Any) -> bytes:
    return json.dumps({"id": f"i{number}", "t": 1_700_000_000_000, **fields}).encode()


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-3, 3), st.text("xy=", max_size=2))


@given(
    st.sampled_from(SPECS),
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d.e", "a\\", "d=.e", "", "a:missing"]),
        st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(st.sampled_from(["a", "e"]), VALUES)),
        max_size=5,
    ),
)
@settings(max_examples=40, deadline=None)
def test_every_key_of_an_event_but_the_bias_has_the_field_that_gave_it(
    spec: dict[str, Any], event: dict[str, Any]
) -> None:
    """The names of all keys that the decoder makes, for every kind of field, for indicators and crosses."""
    joiner = Joiner(FeatureSpec.from_dict(spec))
    raw = impression(1, **event)
    keys = {int(key) for key in joiner.keys_of([raw])} - {BIAS_KEY}
    named = named_keys(joiner.plan, raw)
    assert keys <= set(named)
    fields = {name for names in named.values() for name in names.split(" x ")}
    known = {
        *joiner.plan.indicators(),
        *event,
        *(f"{n}.{i}" for n, v in event.items() if isinstance(v, dict) for i in v),
    }
    assert fields <= known


def test_indicators_crosses_and_nested_fields_are_named() -> None:
    """A cross by its fields, an indicator by the field that is missing."""
    spec = FeatureSpec(fields={"age": FieldSpec(missing="indicator")}, crosses=(("site", "user.os"),))
    raw = impression(1, site="news", user={"os": "x"}, tags=["p", "q"])
    names = sorted(named_keys(EVENTS.impression_plan(spec), raw).values())
    assert names == ["age", "site", "site x user.os", "tags", "tags", "user.os"]


@pytest.mark.parametrize("raw", [b"", b"[]", b"nonsense", b'{"id":"i","t":1,"a":"' + b"x" * 9_000 + b'"}'])
def test_an_event_that_gives_no_features_names_none(raw: bytes) -> None:
    assert named_keys(EVENTS.impression_plan(FeatureSpec()), raw) == {}


def test_an_event_whose_crosses_would_be_too_many_costs_nothing() -> None:
    """The decoder refuses it; its combinations are counted before any is made."""
    spec = FeatureSpec(crosses=(("a", "b", "c"),), max_features=1_000)
    many = list(map(str, range(300)))
    raw = impression(1, a=many, b=many, c=many)
    joiner = Joiner(spec)
    assert named_keys(joiner.plan, raw) == {} and not len(joiner.keys_of([raw]))


def test_names_and_large_events_do_not_fill_the_memory() -> None:
    """A producer that makes up names, and one that sends huge events."""
    joiner = Joiner(FeatureSpec())
    for number in range(300):
        joiner.keys_of([impression(number, **{f"{number}" + "n" * 3_000: "x"})])
    large = [impression(number, **{f"{number}-{i}": "y" * 4_000 for i in range(20)}) for number in range(50)]
    joiner.keys_of(large)
    assert sum(len(raw) for raw, _ in joiner.counts._waiting) == 0
    assert max(map(len, joiner.counts._sample.values())) <= field_counts.LONGEST_NAME


def exact(raws: list[bytes]) -> dict[str, int]:
    """The oracle: the different values of each field."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for raw in raws:
        for name, value in json.loads(raw).items():
            if name not in ("id", "t"):
                seen[name].add(str(value))
    return {name: len(values) for name, values in seen.items()}


def test_few_features_are_counted_one_by_one() -> None:
    """Up to what the sample holds: exact, but for a key in a hundred; and the same values again change nothing."""
    joiner, rng = Joiner(FeatureSpec()), random.Random(5)
    raws = [impression(i, site=f"s{rng.randrange(40)}", ad=f"a{rng.randrange(900)}", one="x") for i in range(3_000)]
    for _ in range(2):
        for start in range(0, len(raws), 10):
            joiner.keys_of(raws[start : start + 10])
    right, found = exact(raws), joiner.counts.counts()
    assert joiner.counts.level == 0
    assert list(found) == ["ad", "site", "one"]
    assert found["one"] == 1 and right["site"] - 1 <= found["site"] <= right["site"]
    assert 0.98 * right["ad"] <= found["ad"] <= right["ad"]


@pytest.mark.parametrize("size", [50, 2_000])
def test_a_flood_is_found_in_its_field(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field with a new value in every event: named first, and counted to a part; the sample stays in its bounds."""
    monkeypatch.setattr(field_counts, "ROOM", 1_000)
    joiner, rng = Joiner(FeatureSpec()), random.Random(6)
    raws = [
        impression(i, site=f"s{rng.randrange(40)}", ad=f"a{rng.randrange(2_000)}", session=f"{rng.random()}")
        for i in range(16_000)
    ]
    for start in range(0, len(raws), size):
        joiner.keys_of(raws[start : start + size])
    found = joiner.counts.counts()
    assert next(iter(found)) == "session"
    assert 0.5 * 16_000 < found["session"] < 2 * 16_000
    assert joiner.counts.level > 3
    assert len(joiner.counts._sample) <= 1_000 and len(joiner.counts._waiting) <= field_counts.WAITING


def test_many_fields_that_come_at_once_are_all_found() -> None:
    """Fifty fields with a new value in every event, in one large batch and no event after it: known soon, each near."""
    joiner, rng = Joiner(FeatureSpec()), random.Random(9)
    raws = [impression(i, **{f"u{field}": f"{rng.random()}" for field in range(50)}) for i in range(1_800)]
    joiner.keys_of(raws)
    for _ in range(field_counts.WAITING // field_counts.CAUGHT_UP + 1):
        joiner.counts.catch_up()
    found = joiner.counts.counts()
    assert not joiner.counts._waiting and set(found) == {f"u{field}" for field in range(50)}
    assert 0.8 * 90_000 < sum(found.values()) < 1.25 * 90_000
    assert all(1_800 / 3 < count < 1_800 * 3 for count in found.values())


def test_looking_up_takes_a_bounded_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood costs the first look-ups, then one for so many events; the counts stay near the true ones."""
    looked_up = 0

    def counted(*event: Any) -> dict[int, str]:
        nonlocal looked_up
        looked_up += 1
        return named_keys(*event)

    monkeypatch.setattr(field_counts, "FIRST_LOOK_UPS", 100)
    monkeypatch.setattr(field_counts, "EVENTS_A_LOOK_UP", 50)
    monkeypatch.setattr(field_counts, "named_keys", counted)
    joiner, rng = Joiner(FeatureSpec()), random.Random(8)
    raws = [impression(i, site=f"s{rng.randrange(40)}", session=f"{rng.random()}") for i in range(20_000)]
    for start in range(0, len(raws), 100):
        joiner.keys_of(raws[start : start + 100])
    assert 100 + 20_000 // 50 - 10 <= looked_up <= 100 + 20_000 // 50
    assert 0.5 * 20_000 < joiner.counts.counts()["session"] < 2 * 20_000
