"""Predictions from bytes of events: against the defining decoder, of one version, from memory that does not grow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.features import Event, event_text
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.model.losses import LOSSES
from stream_learner.core.snapshots import predictor as module
from stream_learner.core.snapshots.predictor import EVENT_ROOM, EventPredictor
from stream_learner.core.snapshots.table import Change, ReplicaTable
from tests.core.events import decode_help, json_texts

IGNORED = ("id",)
SPECS = (
    FeatureSpec(),
    FeatureSpec(categorical=("a", "n"), crosses=(("a", "b"), ("b", "c", "user.kind")), bias=False),
    FeatureSpec.from_dict({"fields": {"a": {"kind": "log", "missing": "indicator"}}, "max_features": 3}),
    FeatureSpec(include=("user", "a"), max_value_bytes=20),
)
UNUSUAL = b'{"\\u0061":"x"}'
"""Left to the defining decoder, however often it has come."""

Rows = list[tuple[int, list[int], list[float]]]


def plain_rows(spec: FeatureSpec, raws: Sequence[bytes]) -> Rows:
    """Status, keys and values of each event by the defining decoder."""
    plan = Plan(roles={}, features=spec, ignore=IGNORED)
    found = [decode_help.plainly(plan, raw, 0) for raw in raws]
    return [(status, keys, values) for status, _, _, _, keys, values, _ in found]


def table_of(keys: Sequence[int], weight: Callable[[int], float] = lambda key: key % 997 / 700 - 0.7) -> ReplicaTable:
    """A table with a weight for two of three keys, at version 3."""
    known = np.array(sorted(set(keys)), np.uint64)
    known = known[known % np.uint64(3) != 0]
    table = ReplicaTable(lambda: None)
    table.apply([Change(None, known, np.array([weight(int(key)) for key in known], np.float32))], 3)
    return table


def expected(table: ReplicaTable, rows: Rows) -> list[float]:
    """The predictions of rows one by one, as bits; NaN for what was refused."""
    found = []
    for status, keys, values in rows:
        arrays = np.array(keys, np.uint64), np.array(values, np.float64), np.array([0, len(keys)])
        found.append(np.nan if status else table.predict(*arrays)[0][0])
    return np.array(found, np.float64).view(np.int64).tolist()


def bits(p_click: np.ndarray) -> list[int]:
    return p_click.view(np.int64).tolist()


def one_by_one(predictor: EventPredictor, events: Sequence[Event]) -> tuple[list[int], list[int]]:
    """Bits and statuses of `predict`, called for each event."""
    found, statuses = np.full(len(events), np.nan), [0] * len(events)
    for i, event in enumerate(events):
        try:
            found[i], version = predictor.predict(event)
            assert version == 3
        except Refused as refused:
            statuses[i] = int(refused.reason)
    return bits(found), statuses


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(SPECS), st.sampled_from((0.0, 0.02, 0.3)))
def test_predictions_are_those_of_the_defining_decoder(seed: int, spec: FeatureSpec, odd: float) -> None:
    """Ordinary, unusual and broken events, one by one, as a list and in a buffer, twice: the same bits and reasons."""
    rng = Random(seed)
    raws = [json_texts.event(rng, odd) for _ in range(rng.randrange(12))]
    raws = [json_texts.damage(rng, raw) if rng.random() < odd else raw for raw in raws]
    raws += rng.sample((b"", b"{}", b"[]", b" ", UNUSUAL, b'{"a":1e999}', b'{"a":"\xff"}'), rng.randrange(4))
    rng.shuffle(raws)
    rows = plain_rows(spec, raws)
    table = table_of([key for _, keys, _ in rows for key in keys])
    predictor = EventPredictor(table, spec, IGNORED)
    wanted, statuses = expected(table, rows), [status for status, _, _ in rows]
    data, bounds = decode_help.batch(raws)
    for _ in range(2):
        assert one_by_one(predictor, raws) == (wanted, statuses)
        for found in (predictor.predict_many(raws), predictor.predict_json(data, bounds)):
            assert (bits(found.p_click), found.status.tolist(), found.version) == (wanted, statuses, 3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["id", "a", "b", "user"]), st.integers() | st.text(), max_size=4)))
def test_a_dictionary_is_predicted_as_its_json(events: list[dict[str, Any]]) -> None:
    """Dictionaries, texts and bytes of the same events give the same bits, mixed in one list or alone."""
    raws = []
    for event in events:
        try:
            raws.append(event_text(event))
        except TypeError:
            raws.append(b"{}")
    rows = plain_rows(SPECS[0], raws)
    predictor = EventPredictor(table_of([key for _, keys, _ in rows for key in keys]), SPECS[0], IGNORED)
    kinds: tuple[Callable[[bytes], Any], ...] = (bytes, bytes.decode, lambda raw: module.event_text(raw))
    mixed = [kinds[i % 3](raw) for i, raw in enumerate(raws)]
    wanted = expected(predictor._table, rows)
    assert bits(predictor.predict_many(mixed).p_click) == bits(predictor.predict_many(iter(raws)).p_click) == wanted
    assert one_by_one(predictor, mixed)[0] == wanted


@pytest.mark.parametrize("number", [float("nan"), float("inf"), np.float64("-inf"), None])
def test_a_number_that_json_has_not_is_none(number: float | None) -> None:
    """In a dictionary it counts as a missing field."""
    events = [{"a": number}, {}, *({"a": i} for i in range(9))]
    rows = plain_rows(SPECS[0], [b'{"a":%d}' % i for i in range(9)])
    predictor = EventPredictor(table_of([key for _, keys, _ in rows for key in keys]), SPECS[0], IGNORED)
    found = predictor.predict_many(events).p_click
    assert found[0] == found[1]
    assert (found[2:] != found[1]).any()


def test_an_event_without_json_is_named() -> None:
    """TypeError names its place; the predictor goes on as if nothing had been."""
    predictor = EventPredictor(table_of([]), SPECS[0], IGNORED)
    with pytest.raises(TypeError, match="event 1: "):
        predictor.predict_many([{}, {"a": object()}])
    with pytest.raises(TypeError, match="event 0: "):
        predictor.predict({"a": object()})
    assert predictor.predict({}) == (0.5, 3) and predictor.predict_many([{}]).p_click.tolist() == [0.5]


@pytest.mark.parametrize("bounds", [[0, 3], [2, 1], [-1, 2], [0, 1, 0, 2], [], [[0, 2]]])
def test_bounds_that_do_not_fit_are_refused(bounds: list[Any]) -> None:
    predictor = EventPredictor(table_of([]), SPECS[0], IGNORED)
    with pytest.raises(ValueError, match="bounds must"):
        predictor.predict_json(b"{}", np.array(bounds, np.int64))
    assert predictor.predict_json(b"{}", np.array([0, 2])).status.tolist() == [0]


def test_no_events_are_of_the_version_served() -> None:
    """Nothing to predict, or nothing that can be predicted, still names the version."""
    predictor = EventPredictor(table_of([]), SPECS[0], IGNORED)
    assert predictor.predict_many([]).version == predictor.predict_json(b"", np.array([0])).version == 3
    assert predictor.predict_many([b"no", b"JSON"]).version == 3
    assert EventPredictor(ReplicaTable(lambda: None), SPECS[0], ()).predict_many([b"{}"]).version == -1


def test_its_memory_does_not_grow() -> None:
    """Events around the room for one, and far beyond it, are predicted, and the memory stays as it was."""
    spec = FeatureSpec(max_value_bytes=1 << 20)
    sizes = [*range(EVENT_ROOM - 70, EVENT_ROOM + 70), 9 * EVENT_ROOM]
    raws = [b'{"a":"%b"}' % (b"x" * (size - 8)) for size in sizes]
    rows = plain_rows(spec, raws)
    predictor = EventPredictor(table_of([key for _, keys, _ in rows for key in keys]), spec, IGNORED)
    before = predictor.nbytes
    wanted = expected(predictor._table, rows)
    assert one_by_one(predictor, raws)[0] == bits(predictor.predict_many(raws).p_click) == wanted
    assert predictor.nbytes == before < EVENT_ROOM + 64 * (spec.max_features + 10)


def test_a_loss_has_its_link() -> None:
    """The link is that of the version: another loss comes with its version, not before."""
    predictor = EventPredictor(ReplicaTable(lambda: None), FeatureSpec(bias=False), IGNORED)
    (_, (key,), _) = plain_rows(FeatureSpec(bias=False), [b'{"a":"x"}'])[0]
    rows = Change(None, np.array([key], np.uint64), np.array([2.5], np.float32))
    predictor._table.apply([rows], 1, LOSSES["squared"])
    assert predictor.predict(b'{"a":"x"}') == (2.5, 1)
    predictor._table.apply([], 2)
    assert predictor.predict(b'{"a":"x"}') == (1 / (1 + np.exp(-2.5)), 2)


class Interrupted:
    """A predictor whose defining decoder calls something before it decodes."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.raws = [b'{"a":"x"}', b'{"b":"y"}', UNUSUAL, b'{"b":"x","a":"z"}', b"no", UNUSUAL, b'{"a":"x"}']
        self.rows = plain_rows(SPECS[0], self.raws)
        self.keys = sorted({key for _, keys, _ in self.rows for key in keys})
        self.table = ReplicaTable(lambda: None)
        self.serve(1)
        self.predictor = EventPredictor(self.table, SPECS[0], IGNORED)
        self.predictor.predict_many(self.raws)
        plainly, decoder = self.predictor._encoder.decoder.plain_row, self.predictor._encoder.decoder

        def plain_row(raw: bytes, time_ms: int = 0) -> Any:
            call()
            return plainly(raw, time_ms)

        decoder.plain_row = plain_row  # type: ignore[method-assign]

    def serve(self, version: int) -> None:
        weights = np.full(len(self.keys), version / 10, np.float32)
        self.table.apply([Change(None, np.array(self.keys, np.uint64), weights)], version)


@pytest.mark.parametrize("again", [False, True])
def test_versions_are_not_mixed_where_events_are_unusual(again: bool) -> None:
    """A version, or twice the same one with other weights, comes while an event is decoded plainly: all are of it."""
    version = 1

    def next_version() -> None:
        nonlocal version
        version += not again
        interrupted.table.apply([Change((0, 2**64 - 1), np.zeros(0, np.uint64), np.zeros(0, np.float32))], version)
        interrupted.serve(version)

    interrupted = Interrupted(lambda: next_version())
    for _ in range(5):
        found = interrupted.predictor.predict_many(interrupted.raws)
        assert found.version == version
        assert bits(found.p_click) == expected(interrupted.table, interrupted.rows)


def test_a_call_within_a_call_is_answered() -> None:
    """As in a handler of signals: the inner call and the outer one are both right."""
    inner: list[tuple[float, int]] = []
    within = [False]

    def call() -> None:
        if not within[0]:
            within[0] = True
            inner.append(interrupted.predictor.predict(b'{"b":"y"}'))
            inner.append(interrupted.predictor.predict(UNUSUAL))
            within[0] = False

    interrupted = Interrupted(call)
    wanted = expected(interrupted.table, interrupted.rows)
    assert bits(interrupted.predictor.predict_many(interrupted.raws).p_click) == wanted
    assert bits(np.array([interrupted.predictor.predict(UNUSUAL)[0]])) == [wanted[2]]
    assert [bits(np.array([p_click]))[0] for p_click, _ in inner] == [wanted[1], wanted[2]] * (len(inner) // 2)
    assert len(inner) >= 6


def test_an_error_within_a_call_ends_it_alone() -> None:
    """As an interrupt of the keyboard: it is raised, no reader stays in a bank, and the next call is right."""

    def call() -> None:
        if failing:
            raise KeyboardInterrupt

    failing = True
    interrupted = Interrupted(call)
    for ask in (lambda: interrupted.predictor.predict(UNUSUAL), lambda: interrupted.predictor.predict_many([UNUSUAL])):
        with pytest.raises(KeyboardInterrupt):
            ask()
    failing = False
    interrupted.serve(2)
    found = interrupted.predictor.predict_many(interrupted.raws)
    assert (bits(found.p_click), found.version) == (expected(interrupted.table, interrupted.rows), 2)


def test_threads_beside_a_writer_never_see_a_mixture() -> None:
    """Whatever is predicted from bytes while versions are applied and tables grow is of the version that it names."""
    raws = [b'{"f%d":"v%d","g":[%d,"w"]}' % (i % 7, i, i) for i in range(200)] + [UNUSUAL]
    rows = plain_rows(SPECS[0], raws)
    keys = np.array(sorted({key for _, keys, _ in rows for key in keys}), np.uint64)
    counts = np.array([sum(values) for _, _, values in rows])
    table, rng, stop = ReplicaTable(lambda: None), np.random.default_rng(5), threading.Event()
    table.apply([Change(None, keys, np.full(len(keys), 0.0, np.float32))], 0)
    wrong: list[tuple[int, float]] = []
    done = [0] * 3

    def read(number: int) -> None:
        predictor = EventPredictor(table, SPECS[0], IGNORED)
        while not stop.is_set():
            found = predictor.predict_many(raws)
            logits = np.log(found.p_click) - np.log1p(-found.p_click)
            if not np.allclose(logits, counts * (found.version % 64) / 1e4, atol=1e-6):
                wrong.append((found.version, float(logits[0])))
            p_click, version = predictor.predict(raws[number])
            if not np.isclose(np.log(p_click / (1 - p_click)), counts[number] * (version % 64) / 1e4, atol=1e-6):
                wrong.append((version, p_click))
            done[number] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for version in range(1, 120):
        crowd = np.setdiff1d(np.unique(rng.integers(1, 2**64, 3_000, dtype=np.uint64)), keys)
        weights = np.full(len(keys), version % 64 / 1e4, np.float32)
        table.apply([Change(None, keys, weights), Change(None, crowd, np.ones(len(crowd), np.float32))], version)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and min(done) > 5


def test_reasons_are_those_of_the_table_of_reasons() -> None:
    """One event of each reason that a scorer may give, one by one and together."""
    spec = FeatureSpec(max_features=3, max_value_bytes=20, key_rule=2)
    events = {
        b"no": Reason.NOT_JSON,
        b"[]": Reason.NOT_OBJECT,
        b'{"a":[1,2,3,4,"x"]}': Reason.TOO_MANY_FEATURES,
        b'{"a":"%b"}' % (b"x" * 21): Reason.VALUE_TOO_LONG,
        b'{"a":[1e308,1e308]}': Reason.NOT_FINITE,
    }
    predictor = EventPredictor(table_of([]), spec, IGNORED)
    assert predictor.predict_many(list(events)).status.tolist() == list(events.values())
    assert one_by_one(predictor, list(events))[1] == list(events.values())
