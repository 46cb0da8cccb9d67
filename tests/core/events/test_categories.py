"""Ordinary categories: runs of them, predicted lengths, and everything that looks like one and is none."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from stream_learner.core.events.decoders import BatchDecoder, EventSpec
from stream_learner.core.events.fast.layout import PADDING
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.field_numbers import FieldNumbers
from stream_learner.core.events.plan import Plan
from tests.core.events import decode_help

SPEC = FeatureSpec(categorical=("n", "m"))
RUN = b'{"id":"x","a":"abcd","b}c":"1","n":12345,"d":"","e":"0123456789abcdef","m":0,"tags":["p","q"],"z":"q"}'
STEADY = 20


def plan_of(spec: FeatureSpec = SPEC) -> Plan:
    """The plan of an impression decoder, which counts where the specification names fields."""
    return EventSpec().impression_plan(spec, FieldNumbers(spec) if spec.categorical else None)


def check(decoder: BatchDecoder, plan: Plan, raws: list[bytes]) -> None:
    """Assert that a batch decodes as the plain path decodes each event."""
    decode_help.check(decoder, plan, raws, [5] * len(raws))


@pytest.mark.parametrize("name_bytes", range(1, 40))
def test_names_and_texts_of_every_length(name_bytes: int) -> None:
    """A text keeps its length until it is predicted, then takes every other length."""
    plan, name = plan_of(), "f" * name_bytes
    decoder = BatchDecoder(plan)
    lengths = [7] * STEADY + [length for other in range(40) for length in (7, other)]
    check(decoder, plan, [f'{{"id":"x","k":"v","{name}":"{"t" * length}","z":"w"}}'.encode() for length in lengths])
    assert decoder.handed_over == 1


@pytest.mark.parametrize(
    "value", ["0", "00", "01", "9", "1234567", "12345678", "-1", "-0", "1.5", "1e3", "12a", "1 ", ""]
)
def test_integers_and_what_looks_like_them(value: str) -> None:
    """Between categories, at the end of an event, and in a list."""
    plan = plan_of()
    raws = [b'{"id":"x","a":"b","n":1,"m":[1],"z":"q"}'] * 2
    raws += [f'{{"id":"x","a":"b","n":{value},"z":"q"}}'.encode(), f'{{"id":"x","a":"b","n":{value}}}'.encode()]
    raws += [f'{{"id":"x","a":"b","m":[{value},{value}],"z":"q"}}'.encode()]
    check(BatchDecoder(plan), plan, raws)


@pytest.mark.parametrize("byte", b'"\\{}[],: 0a\n\x01\x80\xc3')
def test_a_run_with_any_byte_changed(byte: int) -> None:
    """Lengths are predicted when the damaged events come, and after each of them the run is as before."""
    plan = plan_of()
    decoder = BatchDecoder(plan)
    check(decoder, plan, [RUN] * STEADY)
    changed = [RUN[:i] + bytes([byte]) + RUN[i + 1 :] for i in range(len(RUN))]
    check(decoder, plan, [raw for one in changed for raw in (one, RUN)])


def test_what_lies_behind_a_cut_run_never_counts() -> None:
    """Every cut, followed by exactly what was cut off, or by digits and quotes."""
    plan = plan_of()
    decoder = BatchDecoder(plan)
    check(decoder, plan, [RUN] * STEADY)
    for cut in range(len(RUN) + 1):
        for raw in (RUN[:cut], RUN[:cut] + b"}"):
            expected = decode_help.plainly(plan, raw, 5)
            for behind in (RUN[cut:], RUN[len(raw) :], b"7" * 99, b'"' * 99, b'7,"z":"q"}', b""):
                padded = raw + behind + bytes(2 * PADDING)
                columns = decoder.decode(padded, np.array([0, len(raw)]), np.array([5]))
                assert decode_help.events(columns) == [expected], (raw, behind)


def test_fields_that_come_twice_or_elsewhere() -> None:
    """A repeated field is summed or refused as the plain path says; the same key below an object is another field."""
    plan = plan_of()
    decoder = BatchDecoder(plan)
    good = b'{"id":"x","a":"b","c":"d","o":{"a":"b","c":"d"},"z":"q"}'
    odd = [
        b'{"id":"x","a":"b","a":"b","c":"d"}',
        b'{"id":"x","a":"b","c":"d","a":"e"}',
        b'{"id":"x","o":{"a":"b","c":"d","z":"q"},"a":"b"}',
        b'{"id":"x","o":["a","b"],"c":"d"}',
        b'{"id":"x","o":["a","c":"d"]}',
    ]
    check(decoder, plan, [raw for one in odd for raw in (good, one, good)] * 2)


def test_the_most_features_and_the_longest_text() -> None:
    """Limits hold inside of runs."""
    spec = FeatureSpec(max_features=3, max_value_bytes=5, bias=False)
    plan = plan_of(spec)
    events = ['"a":"1"', '"a":"1","b":"2","c":"3"', '"a":"1","b":"2","c":"3","d":"4"', '"a":"12345"', '"a":"123456"']
    raws = [f'{{"id":"x",{fields}}}'.encode() for fields in events]
    check(BatchDecoder(plan), plan, raws * 3)


def test_crosses_and_indicators_see_their_fields() -> None:
    """Fields that others ask for stay out of runs, and stand among them."""
    spec = FeatureSpec(crosses=(("a", "c"),), categorical=("n",))
    plan = plan_of(spec)
    rng = Random(4)
    raws = []
    for _ in range(60):
        fields = [f'"{name}":"{rng.choice(("u", "vw"))}"' for name in "abcd" if rng.random() < 0.8]
        raws.append(('{"id":"x",' + ",".join([*fields, f'"n":{rng.randrange(2000)}']) + "}").encode())
    check(BatchDecoder(plan), plan, raws)
