"""Whether requests fit the model: what is counted and what the log says, beside a model of a few weights."""

from __future__ import annotations

import re
import threading
from typing import Any, Literal

import numpy as np
import pytest

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from stream_learner.core.snapshots.predictor import EventPredictor
from stream_learner.core.snapshots.table import Change, ReplicaTable
from stream_learner.roles.scorer.request_fit import ANY, LEAST_LOOKS, NONE, UNKNOWN_ONLY, RequestFit

TEXTS = (b"site=news", b"ad=a1", b"price", b"user_id=7", b"user.kind=new")


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[str]]] = []

    def warning(self, event: str, *, fields: list[str], action: str) -> None:
        assert action
        self.lines.append((event, fields))


BY_VALUE = FeatureSpec(fields={"price": FieldSpec("number")})


class Fit:
    """A `RequestFit` of a model that has weights for `TEXTS` and the bias."""

    def __init__(self, spec: FeatureSpec | None = None, ignored: tuple[str, ...] = ("id",)) -> None:
        self.spec, self.ignored, self.log, self.metrics = spec or BY_VALUE, ignored, Log(), Metrics("ctr")
        keys = np.array(sorted([BIAS_KEY, *hash_texts(list(TEXTS))]), np.uint64)
        self.table = ReplicaTable(lambda: None)
        self.table.apply([Change(None, keys, np.full(len(keys), 0.5, np.float32))], 1)
        self.fit = RequestFit(self.metrics, self.log)  # type: ignore[arg-type]

    def look(self, *events: Any) -> list[tuple[str, list[str]]]:
        """Look at events one after the other; what was logged since the last call."""
        before = len(self.log.lines)
        for event in events:
            self.fit.keep(event)
            self.turn()
        return self.log.lines[before:]

    def turn(self) -> None:
        self.fit.turn(self.spec, self.ignored, self.table.weight)

    def metric(self, name: str) -> float:
        found = re.search(
            rf'^stream_learner_scorer_{name}_total{{model="ctr"}} (\S+)$', self.metrics.text().decode(), re.M
        )
        return float(found[1]) if found else 0.0


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"Site": "news"}, ["Site: did you mean site?"]),
        ({"SITE": "sport", "id": "i7"}, ["SITE"]),  # no weight for site=sport, and nothing seen of site yet
        ({"userId": "7", "Ad": "a1"}, ["userId: did you mean user_id?", "Ad: did you mean ad?"]),
        ({"User": {"Kind": "new"}}, ["User.Kind: did you mean user.kind?"]),
        ({"Price": 0.5}, ["Price: did you mean price?"]),
        ({"colour": "red", "empty": None, "none": []}, ["colour"]),
        ({}, []),
        ({"id": "i7"}, []),
    ],
)
def test_an_event_without_a_known_feature_is_told_at_once(event: dict[str, Any], said: list[str]) -> None:
    """With its fields, and the name that has a weight for the value; and only once."""
    world = Fit()
    assert world.look(event) == [("request_without_known_feature", said)]
    assert world.look(event, event) == []


def test_the_nearest_name_comes_from_events_and_the_specification() -> None:
    """Of those that the event does not have itself."""
    world = Fit(FeatureSpec(categorical=("placement",)))
    world.look({"site": "news"})
    ((_, said),) = world.look({"stie": "x", "placment": 3, "site": "rare"})
    assert said == ["stie", "placment: did you mean placement?", "site"]
    ((_, said),) = world.look({"siet": "x"})
    assert said == ["siet: did you mean site?"]


def test_a_field_that_never_has_a_weight_among_others_is_told_after_some_events() -> None:
    """Not one whose values have one now and then; both are counted in the share of fields."""
    world = Fit()
    events = [{"Ad": "a1", "site": "news", "price": 1.0 if i == 3 else 0} for i in range(LEAST_LOOKS)]
    assert world.look(*events[:-1]) == []
    assert world.look(events[-1]) == [("request_fields_unknown", ["Ad: did you mean ad?"])]
    assert world.look(*events) == []
    assert world.metric("fields_unknown") == 1 + LEAST_LOOKS
    assert world.metric("fields") == 2 * 2 * LEAST_LOOKS + 2  # a number of 0 is no feature


def test_fields_that_are_left_out_are_not_told() -> None:
    """Excluded ones, and the paths of id and time; one that `include` does not name is, in an event without others."""
    world = Fit(FeatureSpec(exclude=("ua",)), ignored=("id", "at"))
    assert world.look({"id": 1, "at": 2, "ua": {"os": "x"}, "tpyo": 1}) == [("request_without_known_feature", ["tpyo"])]
    world = Fit(FeatureSpec(include=("site",)))
    assert world.look({"Site": "rare"}) == [("request_without_known_feature", ["Site: did you mean site?"])]


@pytest.mark.parametrize("missing", ["skip", "indicator"])
def test_a_time_that_no_event_has_is_told_once(missing: Literal["skip", "indicator"]) -> None:
    """Its hour is a feature, and a request has no time by itself. Not where an event had it now and then; of a few
    events at once, unless what is missing is a feature of its own."""
    spec = FeatureSpec(fields={"at.ts": FieldSpec("hour", missing=missing), "seen": FieldSpec("weekday")})
    without, seen = {"site": "news"}, {"site": "news", "seen": 1_795_547_716_000}
    world, told = Fit(spec), [("request_time_missing", ["at.ts"])]
    assert world.look(seen, *[without] * (LEAST_LOOKS - 2)) == []
    assert world.look(without) == told
    assert world.look(*[without] * LEAST_LOOKS) == []
    few = Fit(spec)
    few.fit.tell_of([b'{"site":"news","seen":1}'] * 2, spec, few.ignored, few.table.weight)
    assert few.log.lines == (told if missing == "skip" else [])


@pytest.mark.parametrize("name", ["knd", "kindd", "kimd", "kidn"])
def test_a_misspelt_name_in_a_single_line_is_told_once(name: str) -> None:
    """Though no other event has shown the right one: that has a weight for the value. Not a value that is new."""
    world, line = Fit(), b'{"user":{"%s":"new"}}' % name.encode()
    for event in (line, line, b'{"user":{"kind":"rare","king":"new"}}'):
        world.fit.tell_of([event], world.spec, world.ignored, world.table.weight)
    assert world.log.lines == [("request_fields_unknown", [f"user.{name}: did you mean user.kind?"])]


def test_most_of_the_fields_that_are_named_are_in_no_event() -> None:
    """Told once, and counted as fields that are unknown, so that the alert on their share fires. Not where half of them
    come, be it now and then, or in an object."""
    spec = FeatureSpec(
        include=("site", "ad", "user", "price", "slot", "os"),
        categorical=("ad", "slot"),
        fields={"price": FieldSpec("number")},
        crosses=(("site", "os"),),
    )
    world = Fit(spec)
    assert world.look(*[{"site": "news"}] * (LEAST_LOOKS - 1)) == []
    lacking = ("request_fields_missing", ["ad", "user", "price", "slot", "os"])
    assert world.look({"site": "news"}) == [lacking]
    assert world.look(*[{"site": "news"}] * LEAST_LOOKS) == []
    fields, unknown = world.metric("fields"), world.metric("fields_unknown")
    world.look({"site": "news"})
    assert (world.metric("fields") - fields, world.metric("fields_unknown") - unknown) == (6, 5)
    half = Fit(spec)
    assert half.look({"user": {"kind": "new"}, "price": 1.5}, *[{"site": "news", "seen": 1}] * LEAST_LOOKS) == []


def test_names_are_bounded() -> None:
    """However many a client makes up: the log names some, and forgets none of the known ones."""
    world = Fit()
    for i in range(300):
        world.look({f"made_up_{i}_{j}": "x" for j in range(20)})
    assert 1 <= sum(len(fields) for _, fields in world.log.lines) <= 50
    assert len(world.fit._looks) <= 4_096
    assert world.look(b"no JSON", {"x" * 500: 1}) == []


def test_events_are_counted_over_threads_that_come_and_go() -> None:
    """Those of predictors that are gone, too, and hashed ones."""
    world = Fit()

    def serve(events: list[dict[str, Any]]) -> None:
        predictor = EventPredictor(world.table, world.spec, world.ignored)
        world.fit.follow(predictor)
        for event in events:
            predictor.predict(event)
        predictor.predict_many(events)

    for i in range(6):
        thread = threading.Thread(target=serve, args=([{"site": "news"}, {"Site": "news"}, {}],))
        thread.start()
        thread.join()
        if i % 2:
            world.fit.report()
    world.fit.count(np.array([0, 3, 0]))
    world.turn()
    assert (world.metric("events"), world.metric("events_unknown")) == (6 * 6 + 3, 6 * 4 + 2)
    assert not world.fit._predictors


def test_an_event_of_each_kind_is_wanted_in_turn() -> None:
    """None before the first turn, and none twice in a turn."""
    world = Fit()
    wanted = [world.fit.wanted]
    for _ in range(4):
        world.turn()
        wanted.append(world.fit.wanted)
        world.fit.keep({"site": "news"})
        assert world.fit.wanted == NONE
    assert wanted == [NONE, ANY, UNKNOWN_ONLY, ANY, UNKNOWN_ONLY]
